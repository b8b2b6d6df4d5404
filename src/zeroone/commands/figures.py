"""Figures of training runs, from their records only, and of data."""

from pathlib import Path
from typing import Any

import numpy as np

from zeroone.data.splits import Split
from zeroone.utils.checks import need_extra
from zeroone.utils.storage import replacing


def plot_training(records: dict[str, dict[str, Any]], path: Path) -> Path:
    """Plot the share of hidden bits that each iteration flips, and the errors, of all runs."""
    plt = _pyplot()
    figure, (flips, errors) = plt.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained")
    for number, (name, record) in enumerate(records.items()):
        history, colour = record["history"], f"C{number}"
        done = [entry["iteration"] / max(1, len(history) - 1) for entry in history]
        flipped = [100 * float(np.mean(entry.get("flipped") or 0)) for entry in history]
        flips.plot(done[1:], flipped[1:], color=colour, label=name)
        for part, style in (("train", "--"), ("test", "-")):
            if f"{part}_error" in history[-1]:
                shares = [100 * entry[f"{part}_error"] or None for entry in history]
                label = name if part == "test" else None
                errors.plot(done, shares, style, color=colour, label=label)
    flips.set(xlabel="share of the training", ylabel="bits flipped (%)", yscale="symlog")
    flips.set_title("Hidden bits that an iteration flips", fontsize=10)
    errors.set(xlabel="share of the training", ylabel="error (%)", yscale="log")
    errors.set_title("Test error of the 0/1 network (dashed: training)", fontsize=10)
    errors.legend(fontsize=8)
    return _save(figure, path)


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
