"""The paper's figures, from records (those of images also from the data), as PNG and SVG."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paper.matrix.methods import INITIAL, METHODS
from paper.reproduce.comparison import PAPERS_ROW
from paper.reproduce.results import Results
from zeroone.analysis.metrics import Noise
from zeroone.baselines.activations import ACTIVATIONS
from zeroone.data.splits import Split
from zeroone.exact.blocks import u_step
from zeroone.nn.functional import step
from zeroone.nn.scaling import Scaling
from zeroone.utils.storage import replacing

THIN = 1.1  # the lines of rivals
RHO = 0.1  # of the paper's illustration of Lemma 2
COLOURS = {
    "relu": "#1f77b4",
    "sigmoid": "#2ca02c",
    "swish": "#17becf",
    "selu": "#8c564b",
    "tanh": "#bcbd22",
    "ste": "#ff7f0e",
    "ccnn": "#9467bd",
    "pcnn": "#e377c2",
    "bi-real": "#7f7f7f",
    "bcd-95": "#d62728",
    "bcd": "#000000",
}


@contextmanager
def _drawing(path: Path, *size: int, width: float, height: float) -> Iterator[Any]:
    """Axes in ``size`` rows and columns; written as PNG and SVG, the same to the bit every time.

    Neither the reader's matplotlibrc nor the backend of a notebook has a say.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, columns = size
    own = {"svg.hashsalt": "zeroone", "font.size": 9, "axes.titlesize": 9, "legend.fontsize": 7}
    settings: Any = {**mpl.rcParamsDefault, **own}
    settings.pop("backend", None)
    with mpl.rc_context(settings):
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
        yield axes
        _add_legend(figure, axes)
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            with replacing(path.with_suffix(f".{kind}")) as temporary:
                figure.savefig(temporary, format=kind, dpi=120, metadata=metadata)


def _add_legend(figure: Any, axes: Any) -> None:
    """One for all axes that have none of their own, each name once."""
    named: dict[str, Any] = {}
    for axis in axes.flat:
        if axis.get_legend() is None:
            handles, labels = axis.get_legend_handles_labels()
            named = dict(zip(labels, handles, strict=True)) | named
    if named:
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=4)


def _look(method: str, label: str) -> dict[str, Any]:
    """The paper's row has another share of units on each data set, and one name in the legend."""
    ours = method.startswith("bcd")
    return {
        "label": "0/1 BCD, the paper's row" if method == PAPERS_ROW else label,
        "color": COLOURS.get(method, "#444444"),
        "linewidth": 2.0 if ours else THIN,
        "zorder": 3 if ours else 2,
    }


def _band(axis: Any, x: Sequence[float], values: Sequence[Sequence[float]], look: Any) -> None:
    """The mean of several curves, and a shade of one standard deviation; values in %."""
    stacked = 100 * np.array(values)
    mean = stacked.mean(axis=0)
    axis.plot(x, mean, **look)
    if len(stacked) > 1:
        spread = stacked.std(axis=0, ddof=1)
        axis.fill_between(x, mean - spread, mean + spread, color=look["color"], alpha=0.15, lw=0)


def _rows_with_runs(results: Results) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    for row in results.rows:
        runs = results.runs(row["architecture"], row["method"])
        if runs and row["method"] != INITIAL:
            yield row, runs


def _title(results: Results, part: str) -> str:
    """Which data, and how many seeds."""
    counts = sorted(row["n"] for row in results.rows_done)
    n = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return f"{results.protocol.title}: {part} (n = {n})"


def plot_training(all_results: Sequence[Results], path: Path) -> None:
    """Top-1 training and test error after each epoch, mean and deviation over the seeds."""
    with _drawing(path, len(all_results), 2, width=5, height=3.4) as axes:
        for results, (train, test) in zip(all_results, axes, strict=True):
            for row, runs in _rows_with_runs(results):
                histories = [run["history"][1:] for run in runs]
                x = [entry["iteration"] for entry in histories[0]]
                for axis, part in ((train, "train_error"), (test, "test_error")):
                    values = [[entry[part] for entry in history] for history in histories]
                    _band(axis, x, values, _look(row["method"], row["label"]))
            for axis, part in ((train, "training"), (test, "test")):
                _label(axis, _title(results, part), "epoch", "error (%)")
                _epochs_and_errors(axis)


def plot_initial(all_results: Sequence[Results], path: Path) -> None:
    """Training and test error of the trained network against epochs of the initial process."""
    with _drawing(path, len(all_results), 2, width=5, height=3.4) as axes:
        for results, (train, test) in zip(all_results, axes, strict=True):
            spec = results.protocol.spec
            for method in spec.methods:
                label = spec.known_methods[method].label
                points = [
                    (int(name.split("@")[1].split(":")[0]), runs)
                    for name in spec.architectures
                    if (runs := results.runs(name, method))
                ]
                for axis, part in ((train, "train_error"), (test, "test_error")):
                    values = [[run["result"][part] for run in runs] for _, runs in points]
                    _points(axis, [x for x, _ in points], values, _look(method, label))
            for axis, part in ((train, "training"), (test, "test")):
                _label(axis, _title(results, part), "epochs of the initial process", "error (%)")
                _epochs_and_errors(axis)


def _epochs_and_errors(axis: Any) -> None:
    """Whole epochs; errors of every size, written as plain numbers."""
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(_plain(axis.yaxis.get_major_formatter()))
    axis.yaxis.set_minor_formatter(_plain(axis.yaxis.get_minor_formatter()))


def _plain(formatter: Any) -> Callable[[float, int], str]:
    """Label what ``formatter`` would, 10 in place of 10^1."""

    def label(x: float, position: int) -> str:
        formatter.set_locs()  # which of the ticks have room for a label
        return f"{x:g}" if formatter(x, position) else ""

    return label


def _points(axis: Any, x: list[int], values: list[list[float]], look: Any) -> None:
    """Means and standard deviations of as many values as each point has; in %."""
    if not x:
        return
    means = [100 * float(np.mean(v)) for v in values]
    spreads = [100 * float(np.std(v, ddof=1)) if len(v) > 1 else 0.0 for v in values]
    axis.errorbar(x, means, yerr=spreads, marker=".", capsize=2, **look)


def plot_noise(all_results: Sequence[Results], path: Path) -> None:
    """Test error against the level of Gaussian noise, and its difference from ReLU by seed.

    Seeds have bodies of their own, which differ by more than methods do: the means are drawn
    without their spread, the differences of BCD with it.
    """
    results = all_results[0]
    noisy = [
        (_look(row["method"], row["label"]), {run["seed"]: run["result"]["noise"] for run in runs})
        for row, runs in _rows_with_runs(results)
    ]
    relu = next((runs for look, runs in noisy if look["label"] == METHODS["relu"].label), {})
    with _drawing(path, 1, 2, width=5, height=3.8) as axes:
        errors, differences = axes[0]
        for look, runs in noisy:
            levels = next(iter(runs.values()))["levels"]
            values = 100 * np.array([noise["errors"] for noise in runs.values()])
            errors.plot(levels, values.mean(axis=0), **look)
            shared = [seed for seed in runs if seed in relu]
            gaps = [np.subtract(runs[s]["errors"], relu[s]["errors"]) for s in shared]
            if gaps and look["linewidth"] > THIN:
                _band(differences, levels, gaps, look)
            elif gaps:
                differences.plot(levels, 100 * np.mean(gaps, axis=0), **look)
        level = "standard deviation of the noise"
        _label(errors, _title(results, "test"), level, "test error (%)")
        _label(differences, "difference from ReLU", level, "points")


def plot_noisy_images(results: Results, split: Split, path: Path) -> bool:
    """Single images with more and more noise, and the class probabilities that networks give them.

    As in the paper's figures rubfashion1 and rubfashion2, of the first repetition of ReLU and of
    BCD. Nothing is drawn (False) if these have no record.
    """
    looked = [
        (label, runs[0]["result"]["images"])
        for method, label in (("relu", "ReLU"), ("bcd", "0/1 BCD"))
        if (runs := results.runs(results.protocol.spec.architectures[0], method))
    ]
    if len(looked) < 2 or split.shape is None:
        return False
    rows, levels = looked[0][1]["rows"], looked[0][1]["levels"]
    X, y = split.test or (split.X, split.y)
    names = [split.class_name(label) for label in np.unique(split.y)]
    noisy = _noisy(split, np.asarray(X)[rows], levels)
    width = 2.0 * max(2, len(levels)) / 3
    with _drawing(path, 3, len(rows), width=width, height=2.0) as axes:
        for column, row in enumerate(rows):
            strip = np.concatenate([images[column] for images in noisy], axis=1)
            axis, side = axes[0, column], noisy[0][column].shape[1]
            axis.imshow(strip, cmap="gray", interpolation="nearest")
            axis.set_title(split.class_name(np.asarray(y)[row]))
            axis.set_xticks(
                [(k + 0.5) * side for k in range(len(levels))], map("{:g}".format, levels)
            )
            axis.set_yticks([])
            for line, (label, content) in enumerate(looked, start=1):
                axis = axes[line, column]
                shares = np.array(content["probabilities"])[:, column].T
                truth = names.index(split.class_name(np.asarray(y)[row]))
                lead = sorted(range(len(shares)), key=lambda c: -shares[c].max())[:5]
                for c in sorted({truth, *lead}):
                    wide = 2.5 if c == truth else 1.0
                    axis.plot(levels, shares[c], color=f"C{c % 10}", label=names[c], linewidth=wide)
                axis.legend(fontsize=6)
                _label(axis, label, "noise", "probability")
                axis.set_ylim(-0.02, 1.02)
    return True


def _noisy(split: Split, X: Any, levels: Sequence[float]) -> list[list[Any]]:
    """For each level the images with the noise that the records' networks saw, clipped to show."""
    shape = split.shape
    assert shape is not None
    inputs = torch.from_numpy(np.ascontiguousarray(X).reshape(len(X), -1))
    is_bytes = inputs.dtype == torch.uint8
    if not is_bytes:
        inputs = inputs.float()
    everything = torch.from_numpy(np.ascontiguousarray(split.X).reshape(len(split.X), -1))
    scaling = Scaling.fit(everything, torch.float32, "auto")
    high = 255.0 if is_bytes else float(everything.max())
    shown = []
    for level in levels:
        noisy = Noise(level, scaling, is_bytes).add(inputs).clamp(0, high) / high
        images = noisy.reshape(-1, *shape).permute(0, 2, 3, 1).numpy()
        shown.append([image if shape[0] == 3 else image[..., 0] for image in images])
    return shown


def plot_activations(_results: Sequence[Results], path: Path) -> None:
    """The six activation functions (label figureactivation)."""
    u = torch.linspace(-3, 3, 601)
    curves: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [("0/1", step)]
    for name in ("relu", "sigmoid", "swish", "selu", "tanh"):
        curves.append((name, ACTIVATIONS[name](1)))
    with _drawing(path, 2, 3, width=2.6, height=2.2) as axes:
        for axis, (name, function) in zip(axes.flat, curves, strict=True):
            with torch.no_grad():
                values = function(u[:, None])[:, 0]
            if name == "0/1":
                values[300] = torch.nan  # the jump
            axis.plot(u.numpy(), values.numpy(), color="black")
            axis.axhline(0, color="0.8", lw=0.8, zorder=1)
            axis.set_title({"0/1": "0/1 (step)", "selu": "SELU", "relu": "ReLU"}.get(name, name))


def plot_prox(_results: Sequence[Results], path: Path) -> None:
    """The solution u* of the U_i sub-problem against b, for b > 0 and b <= 0 (Lemma 2)."""
    sides = (("b > 0", 1, (-2.0, -0.5, 0.2, 0.6)), ("b <= 0", -1, (3.0, 1.5, 0.8, 0.4)))
    with _drawing(path, 1, 2, width=4, height=3) as axes:
        for axis, (where, sign, values) in zip(axes[0], sides, strict=True):
            b = sign * torch.linspace(0, 8, 1601, dtype=torch.float64)
            b = b[b > 0] if sign > 0 else b
            for k, a in enumerate(values):
                u = u_step(torch.full_like(b, a), b.clone(), RHO, printed_epsilon=True)
                u[1:][u.diff().abs() > 0.1] = torch.nan  # the jump
                axis.plot(b.numpy(), u.numpy(), label=f"a = {a:g}", linewidth=7 - 2 * k)
            _label(axis, f"{where}, rho = {RHO:g}", "b", "u*")
            axis.legend()


def _label(axis: Any, title: str, x: str, y: str) -> None:
    axis.set(title=title, xlabel=x, ylabel=y)
    axis.grid(color="0.9", lw=0.6)
