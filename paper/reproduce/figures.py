"""The paper's figures, drawn from records (and images from the data), as PNG and SVG."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paper.matrix.methods import METHODS
from paper.matrix.tables import Row
from paper.reproduce.comparison import PAPERS_ROW
from paper.reproduce.results import Results
from zeroone.analysis.metrics import Noise
from zeroone.baselines.activations import ACTIVATIONS
from zeroone.data.splits import Split
from zeroone.exact.blocks import u_step
from zeroone.nn.functional import step
from zeroone.nn.scaling import Scaling
from zeroone.utils.storage import replacing

THIN = 1.1  # lines of baselines
PARTS = ("train_error", "test_error")
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
    """Yield axes in ``size`` rows and columns, then write them as PNG and SVG.

    The same records give the same bytes: the user's matplotlibrc and backend are not used.
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
    """Add one legend for all axes that have none of their own."""
    named: dict[str, Any] = {}
    for axis in axes.flat:
        if axis.get_legend() is None:
            handles, labels = axis.get_legend_handles_labels()
            named = dict(zip(labels, handles, strict=True)) | named
    if named:
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=4)


def _look(method: str, label: str) -> dict[str, Any]:
    """Style a line; the paper's row has one name, though its units differ between data sets."""
    ours = method.startswith("bcd")
    return {
        "label": "0/1 BCD, the paper's row" if method == PAPERS_ROW else label,
        "color": COLOURS.get(method, "#444444"),
        "linewidth": 2.0 if ours else THIN,
        "zorder": 3 if ours else 2,
    }


def _band(axis: Any, x: Sequence[float], values: Sequence[Sequence[float]], look: Any) -> None:
    """Draw the mean of several curves, in %, with a shade of one standard deviation."""
    stacked = 100 * np.array(values)
    mean = stacked.mean(axis=0)
    axis.plot(x, mean, **look)
    if len(stacked) > 1:
        spread = stacked.std(axis=0, ddof=1)
        axis.fill_between(x, mean - spread, mean + spread, color=look["color"], alpha=0.15, lw=0)


def _rows_with_records(results: Results) -> Iterator[tuple[Row, list[dict[str, Any]]]]:
    for row in results.rows_done:
        yield row, results.records(row["architecture"], row["method"])


def _title(results: Results, part: str) -> str:
    """Name the data and the number of seeds."""
    counts = sorted(row["n"] for row in results.rows_done)
    n = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return f"{results.protocol.title}: {part} (n = {n})"


def plot_training(all_results: Sequence[Results], path: Path) -> None:
    """Plot top-1 training and test errors after each epoch, mean and deviation over the seeds."""
    with _drawing(path, len(all_results), 2, width=5, height=3.4) as axes:
        for results, pair in zip(all_results, axes, strict=True):
            for row, records in _rows_with_records(results):
                histories = [record["history"][1:] for record in records]
                x = [entry["iteration"] for entry in histories[0]]
                for axis, part in zip(pair, PARTS, strict=True):
                    values = [[entry[part] for entry in history] for history in histories]
                    _band(axis, x, values, _look(row["method"], row["label"]))
            _label_errors(results, pair, "epoch")


def plot_pretraining(all_results: Sequence[Results], path: Path) -> None:
    """Plot training and test errors of the trained network against epochs of pretraining."""
    with _drawing(path, len(all_results), 2, width=5, height=3.4) as axes:
        for results, pair in zip(all_results, axes, strict=True):
            for method in results.protocol.spec.methods:
                by_epochs = results.by_pretraining_epochs(method)
                rows = {epochs: row for epochs, row in by_epochs.items() if row["n"]}
                for axis, part in zip(pair, PARTS, strict=True):
                    _points(axis, method, rows, part)
            _label_errors(results, pair, "epochs of pretraining")


def _label_errors(results: Results, pair: Any, x: str) -> None:
    """Label the axes of training and test errors."""
    for axis, part in zip(pair, ("training", "test"), strict=True):
        _label(axis, _title(results, part), x, "error (%)")
        _epochs_and_errors(axis)


def _epochs_and_errors(axis: Any) -> None:
    """Mark whole epochs, and errors of every size as plain numbers."""
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(_plain(axis.yaxis.get_major_formatter()))
    axis.yaxis.set_minor_formatter(_plain(axis.yaxis.get_minor_formatter()))


def _plain(formatter: Any) -> Callable[[float, int], str]:
    """Label the ticks that ``formatter`` would label, with 10 in place of 10^1."""

    def label(x: float, position: int) -> str:
        formatter.set_locs()  # which of the ticks have room for a label
        return f"{x:g}" if formatter(x, position) else ""

    return label


def _points(axis: Any, method: str, rows: dict[int, Row], part: str) -> None:
    """Draw the mean and the standard deviation of a method's error, in %, against epochs."""
    if not rows:
        return
    errors = [row[part] for row in rows.values()]
    means = [100 * error["mean"] for error in errors]
    deviations = [100 * (error["deviation"] or 0.0) for error in errors]
    look = _look(method, next(iter(rows.values()))["label"])
    axis.errorbar(list(rows), means, yerr=deviations, marker=".", capsize=2, **look)


def plot_noise(all_results: Sequence[Results], path: Path) -> None:
    """Plot test errors against the level of Gaussian noise, and differences from ReLU by seed.

    Backbones differ by more than methods do, so that the means are drawn without their deviation,
    and the differences of BCD with it.
    """
    results = all_results[0]
    noisy = [
        (_look(row["method"], row["label"]), {r["seed"]: r["result"]["noise"] for r in records})
        for row, records in _rows_with_records(results)
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
    """Plot single images in more and more noise, and the class probabilities networks give them.

    These are the paper's figures rubfashion1 and rubfashion2, for the first repetition of ReLU and
    BCD. Returns False, and draws nothing, if these have no record.
    """
    looked = {
        label: records[0]["result"]["images"]
        for method, label in (("relu", "ReLU"), ("bcd", "0/1 BCD"))
        if (records := results.records(results.protocol.spec.architectures[0], method))
    }
    if len(looked) < 2 or split.shape is None:
        return False
    rows, levels = looked["ReLU"]["rows"], looked["ReLU"]["levels"]
    X, y = split.test or (split.X, split.y)
    names = [split.class_name(label) for label in np.unique(split.y)]
    noisy = _noisy(split, np.asarray(X)[rows], levels)
    width = 2.0 * max(2, len(levels)) / 3
    with _drawing(path, 3, len(rows), width=width, height=2.0) as axes:
        for column, row in enumerate(rows):
            truth = split.class_name(np.asarray(y)[row])
            _draw_strip(axes[0, column], [images[column] for images in noisy], levels, truth)
            for axis, (label, content) in zip(axes[1:, column], looked.items(), strict=True):
                shares = np.array(content["probabilities"])[:, column].T
                _draw_shares(axis, shares, levels, names, names.index(truth))
                _label(axis, label, "noise", "probability")
                axis.set_ylim(-0.02, 1.02)
    return True


def _draw_strip(axis: Any, images: list[Any], levels: Sequence[float], title: str) -> None:
    """Draw an image at all noise levels, side by side."""
    side = images[0].shape[1]
    axis.imshow(np.concatenate(images, axis=1), cmap="gray", interpolation="nearest")
    axis.set_title(title)
    axis.set_xticks([(k + 0.5) * side for k in range(len(levels))], map("{:g}".format, levels))
    axis.set_yticks([])


def _draw_shares(
    axis: Any, shares: Any, levels: Sequence[float], names: list[str], truth: int
) -> None:
    """Draw the probabilities of the true class and of the five classes that reach most."""
    lead = sorted(range(len(shares)), key=lambda c: -shares[c].max())[:5]
    for c in sorted({truth, *lead}):
        width = 2.5 if c == truth else 1.0
        axis.plot(levels, shares[c], color=f"C{c % 10}", label=names[c], linewidth=width)
    axis.legend(fontsize=6)


def _noisy(split: Split, X: Any, levels: Sequence[float]) -> list[list[Any]]:
    """Add the noise that the networks of the records saw, at each level; clip it to be shown."""
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
    """Plot the six activation functions (label figureactivation)."""
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
    """Plot the solution u* of the U_i sub-problem against b, for b > 0 and b <= 0 (Lemma 2)."""
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
