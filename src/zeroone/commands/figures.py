"""Figures: of training runs, from their records only, and of data."""

from pathlib import Path
from typing import Any

import numpy as np

from zeroone.data.splits import Split
from zeroone.utils.storage import replacing


def plot_training(records: dict[str, dict[str, Any]], path: Path) -> Path:
    """The share of hidden bits that each iteration flips, and the errors, of all runs."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (flips, errors) = plt.subplots(1, 2, figsize=(9.6, 3.6), layout="constrained")
    for colour, (name, record) in enumerate(records.items()):
        _plot_flips(flips, record["history"], name, f"C{colour}")
        _plot_errors(errors, record["history"], name, f"C{colour}")
    flips.set(xlabel="share of the training", ylabel="bits flipped (%)", yscale="symlog")
    flips.set_title("Hidden bits that an iteration flips", fontsize=10)
    errors.set(xlabel="share of the training", ylabel="error (%)", yscale="log")
    errors.set_title("Test error of the 0/1 network (dashed: training)", fontsize=10)
    errors.legend(fontsize=8)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."), dpi=120)
    plt.close(figure)
    return path


def _done(history: list[dict[str, Any]]) -> list[float]:
    """How much of the training is over after each iteration."""
    return [entry["iteration"] / max(1, len(history) - 1) for entry in history]


def _plot_flips(axis: Any, history: list[dict[str, Any]], name: str, colour: str) -> None:
    flipped = [100 * float(np.mean(entry.get("flipped") or 0)) for entry in history]
    axis.plot(_done(history)[1:], flipped[1:], color=colour, label=name)


def _plot_errors(axis: Any, history: list[dict[str, Any]], name: str, colour: str) -> None:
    done = _done(history)
    for part, style in (("train", "--"), ("test", "-")):
        if f"{part}_error" in history[-1]:
            errors = [100 * entry[f"{part}_error"] or None for entry in history]
            axis.plot(done, errors, style, color=colour, label=name if part == "test" else None)


def plot_contact_sheet(split: Split, path: Path, per_class: int = 10) -> Path:
    """The first images of each class, one class a row (of the first 20 classes)."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    if split.shape is None:
        raise ValueError(f"{split.name} does not hold images")
    channels, height, width = split.shape
    labels = np.unique(split.y)[:20]
    sheet = np.full((len(labels) * height, per_class * width, channels), 255, dtype=np.uint8)
    bright = 255 if split.X.dtype == np.uint8 else max(float(split.X.max()), 1e-9)
    for row, label in enumerate(labels):
        for column, k in enumerate(np.flatnonzero(split.y == label)[:per_class]):
            image = split.X[k].reshape(channels, height, width).transpose(1, 2, 0)
            if split.X.dtype != np.uint8:
                image = (255 * image / bright).astype(np.uint8)
            top, left = row * height, column * width
            sheet[top : top + height, left : left + width] = image
    size = (per_class * 0.6 + 1.6, len(labels) * 0.6)
    figure, axis = plt.subplots(figsize=size, layout="constrained")
    axis.imshow(sheet if channels == 3 else sheet[..., 0], cmap="gray", interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks(
        [height * (row + 0.5) for row in range(len(labels))],
        [split.class_name(label) for label in labels],
    )
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    plt.close(figure)
    return path
