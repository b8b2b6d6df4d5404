"""Figures of training runs, from their records only, and of data."""

from pathlib import Path
from typing import Any

import numpy as np

from zeroone.data.splits import Split
from zeroone.utils.checks import need_extra
from zeroone.utils.storage import replacing

LABEL = {"textcoords": "offset points", "va": "center", "fontsize": 9}


def plot_methods(records: dict[str, list[dict[str, Any]]], path: Path, most: float = 11) -> Path:
    """Draw how many hidden bits each method flips, and its test errors of up to ``most`` %."""
    plt = _pyplot()
    figure, (flips, errors) = plt.subplots(
        1, 2, figsize=(9.6, 3.2), layout="constrained", sharey=True, width_ratios=(2, 3)
    )
    for row, runs in enumerate(records.values()):
        share, found = mean_flips(runs), [100 * run["result"]["test_error"] for run in runs]
        mean, colour = float(np.mean(found)), "0.6" if share is None else "C0"
        if share is not None:
            flips.barh(row, 100 * share, color=colour, height=0.6)
            flips.annotate(f"{100 * share:.2g}%", (100 * share, row), (4, 0), **LABEL)
        errors.barh(row, min(mean, most), color=colour, height=0.6)
        errors.plot(found, [row] * len(found), "o", color="0.2", markersize=3)
        inside = (-4, 0) if mean > most else (6, 0)
        side = {"ha": "right", "color": "white"} if mean > most else {}
        at = min(max(found), most)
        errors.annotate(f"{mean:.1f}%" + " →" * (mean > most), (at, row), inside, **LABEL, **side)
    flips.set_yticks(range(len(records)), list(records))
    flips.invert_yaxis()
    flips.set_title("Hidden outputs that flip in each pass", fontsize=10)
    errors.set_title("Test error (dots: single runs)", fontsize=10)
    errors.set(xlim=(0, most))
    for axis in (flips, errors):
        axis.spines[["top", "right"]].set_visible(False)
        axis.xaxis.set_major_formatter("{x:g}%")
    flips.margins(x=0.2)
    return _save(figure, path)


def mean_flips(runs: list[dict[str, Any]]) -> float | None:
    """Return the mean share of hidden bits that an iteration flips, if the runs counted them."""
    counted = [entry["flipped"] for run in runs for entry in run["history"] if entry.get("flipped")]
    return float(np.mean([np.mean(layers) for layers in counted])) if counted else None


def plot_contact_sheet(split: Split, path: Path, per_class: int = 10) -> Path:
    """Draw the first images of each class, one class per row (of the first 20 classes)."""
    plt = _pyplot()
    if split.shape is None:
        raise ValueError(f"{split.name} does not hold images")
    channels, height, width = split.shape
    labels = np.unique(split.y)[:20]
    sheet = np.ones((len(labels) * height, per_class * width, channels))
    bright = 255 if split.X.dtype == np.uint8 else max(float(split.X.max()), 1e-9)
    for row, label in enumerate(labels):
        images = split.X[np.flatnonzero(split.y == label)[:per_class]] / bright
        tiles = images.clip(0, 1).reshape(-1, channels, height, width).transpose(2, 0, 3, 1)
        top = row * height
        sheet[top : top + height, : len(images) * width] = tiles.reshape(height, -1, channels)
    size = (per_class * 0.6 + 1.6, len(labels) * 0.6)
    figure, axis = plt.subplots(figsize=size, layout="constrained")
    axis.imshow(sheet if channels == 3 else sheet[..., 0], cmap="gray", interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks(
        [height * (row + 0.5) for row in range(len(labels))],
        [split.class_name(label) for label in labels],
    )
    return _save(figure, path)


def _pyplot() -> Any:
    """Import matplotlib, for files only."""
    need_extra("plots", "matplotlib")
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _save(figure: Any, path: Path) -> Path:
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."), dpi=120)
    _pyplot().close(figure)
    return path
