"""Figures of training runs, from their records only, and of data."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zeroone.data.splits import Split
from zeroone.utils.checks import need_extra
from zeroone.utils.storage import replacing

COLOURS = ("#3b82d6", "#e06c1f", "#3f9b4f", "#a855c7", "#b08900", "#1f93a5", "#d6487e", "#7d8794")
SOFT = "#808892"  # legible on light and dark pages
LARGEST = 1e30  # beyond it, and below its inverse, axes have no sensible ticks


@dataclass(frozen=True)
class Line:
    """The values of all iterations; NaN is a gap."""

    name: str
    values: ArrayLike
    number: int = 0  # of its colour
    dashed: bool = False

    @property
    def colour(self) -> str:
        """The colour of the line, also in a legend."""
        return COLOURS[self.number % len(COLOURS)]


def line_chart(lines: Sequence[Line], *, log: bool = False) -> str:
    """Draw lines over the iterations, for light and dark pages; return the data URI of an SVG.

    On a logarithmic axis, 0 is the bottom.
    """
    figure = _new_figure(figsize=(4.8, 2.7))
    axis = figure.add_axes((0.14, 0.1, 0.84, 0.86))
    curves = [_shown(line.values) for line in lines]
    for line, curve in zip(lines, curves, strict=True):
        style = "--" if line.dashed else "-"
        axis.plot(curve, style, color=line.colour, marker=".", markersize=3, linewidth=1.5)
    if log and any((curve > 0).any() for curve in curves):
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(axis="y", color=SOFT, alpha=0.3)
    axis.spines[:].set_visible(False)
    axis.tick_params(which="both", color=SOFT, labelcolor=SOFT)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg", transparent=True)
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn.getvalue()).decode()}"


def _shown(values: ArrayLike) -> NDArray[np.float64]:
    """Return what an axis can show; all else becomes a gap."""
    curve = np.asarray(values, dtype=np.float64)
    fits = (curve == 0) | ((curve > 1 / LARGEST) & (curve < LARGEST))
    return np.where(fits, curve, np.nan)


def plot_methods(records: dict[str, list[dict[str, Any]]], path: Path, most: float = 11) -> Path:
    """Draw how many hidden bits each method flips, and its test errors of up to ``most`` %."""
    figure = _new_figure(figsize=(9.6, 3.2), layout="constrained")
    flips, errors = figure.subplots(1, 2, sharey=True, width_ratios=(2, 3))
    for row, runs in enumerate(records.values()):
        share, found = mean_flips(runs), [100 * run["result"]["test_error"] for run in runs]
        mean, colour = float(np.mean(found)), "0.6" if share is None else "C0"
        if share is not None:
            bar = flips.barh(row, 100 * share, color=colour, height=0.6)
            flips.bar_label(bar, [f"{100 * share:.2g}%"], padding=4, fontsize=9)
        errors.barh(row, min(mean, most), color=colour, height=0.6)
        errors.plot(found, [row] * len(found), "o", color="0.2", markersize=3)
        inside = {"ha": "right", "color": "white"} if mean > most else {"ha": "left"}
        text = f" {mean:.1f}% " + "→ " * (mean > most)
        errors.text(min(max(found), most), row, text, va="center", fontsize=9, **inside)
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
    assert split.shape is not None
    channels, height, width = split.shape
    labels = np.unique(split.y)[:20]
    tiles = np.ones((len(labels), per_class, *split.shape))
    bright = 255 if split.X.dtype == np.uint8 else max(float(split.X.max()), 1e-9)
    for row, label in enumerate(labels):
        images = split.X[np.flatnonzero(split.y == label)[:per_class]] / bright
        tiles[row, : len(images)] = images.clip(0, 1).reshape(-1, *split.shape)
    sheet = tiles.transpose(0, 3, 1, 4, 2).reshape(-1, per_class * width, channels)
    size = (per_class * 0.6 + 1.6, len(labels) * 0.6)
    figure = _new_figure(figsize=size, layout="constrained")
    axis = figure.subplots()
    axis.imshow(sheet if channels == 3 else sheet[..., 0], cmap="gray", interpolation="nearest")
    middles = height * (np.arange(len(labels)) + 0.5)
    axis.set(xticks=[], yticks=middles, yticklabels=[split.class_name(label) for label in labels])
    return _save(figure, path)


def _new_figure(**how: Any) -> Any:
    """Make a figure for files only."""
    return need_extra("plots", "matplotlib.figure").Figure(**how)


def _save(figure: Any, path: Path) -> Path:
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."), dpi=120)
    return path
