"""Figures: of training runs, from their records only, and of data."""

from pathlib import Path
from typing import Any

import numpy as np

from zeroone.data.arrays import Split
from zeroone.experiments.catalogue import class_name
from zeroone.storage import replacing

TERMS = ("loss", "sparsity", "ridge", "coupling", "activation")


def plot_training(records: dict[str, dict[str, Any]], path: Path) -> Path:
    """F by term (left, one panel a run) and the errors of all runs (right)."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels = len(records) + 1
    figure, axes = plt.subplots(1, panels, figsize=(4.2 * panels, 3.6), layout="constrained")
    for axis, (name, record) in zip(axes, records.items(), strict=False):
        _plot_terms(axis, record["history"])
        axis.set_title(f"F by term: {name}", fontsize=10)
    for colour, (name, record) in enumerate(records.items()):
        _plot_errors(axes[-1], record["history"], name, f"C{colour}")
    axes[-1].set(xlabel="sweep", ylabel="error (%)", ylim=(0, 100))
    axes[-1].set_title("Error of the 0/1 network (dashed: training)", fontsize=10)
    axes[-1].legend(fontsize=8)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."), dpi=120)
    plt.close(figure)
    return path


def _plot_terms(axis: Any, history: list[dict[str, Any]]) -> None:
    sweeps = [entry["iteration"] for entry in history]
    for colour, term in enumerate(TERMS):
        values = [entry[term] or None for entry in history]  # a logarithmic axis has no zero
        if any(values):
            axis.plot(sweeps, values, label=term, color=f"C{colour}")
    axis.plot(sweeps, [entry["F"] for entry in history], "k--", label="F")
    axis.set(xlabel="sweep", yscale="log")
    axis.legend(fontsize=8)


def _plot_errors(axis: Any, history: list[dict[str, Any]], name: str, colour: str) -> None:
    sweeps = [entry["iteration"] for entry in history]
    axis.plot(sweeps, [100 * e["train_error"] for e in history], "--", color=colour, alpha=0.6)
    if "test_error" in history[-1]:
        axis.plot(sweeps, [100 * e["test_error"] for e in history], color=colour, label=name)


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
        [class_name(split, label) for label in labels],
    )
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)
    plt.close(figure)
    return path
