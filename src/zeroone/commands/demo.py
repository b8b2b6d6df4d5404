"""``zeroone demo``: what trains 0/1 networks and what does not, on handwritten digits."""

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from zeroone.baselines.settings import BaselineSettings
from zeroone.commands.checks import set_threads
from zeroone.commands.console import counters, print_table
from zeroone.commands.figures import mean_flips, plot_methods
from zeroone.data.load import load_data
from zeroone.deploy import IntegerModel, quantise
from zeroone.nn.network import Network
from zeroone.training import TrainSettings, train
from zeroone.training.baselines import train_baseline
from zeroone.utils.checks import need_extra
from zeroone.utils.storage import make_folder

FOLDS = 5
HIDDEN = (128, 128)  # the classifier's own choice for so many samples
SHIPPED = "zeroone, half the units"
RUNS: dict[str, dict[str, Any]] = {
    "paper's BCD, as printed": {"preset": "paper"},
    "paper's BCD, our settings": {"solver": "exact", "head": "hardmax"},
    "zeroone": {},
    SHIPPED: {"keep": 0.5},
}
# With the better of two rates, with and without BatchNorm: that with the lower test error.
BASELINES: dict[str, BaselineSettings] = {
    "straight-through + Adam": BaselineSettings("ste", batch_norm=True, learning_rate=3e-3),
    "ReLU + Adam (not 0/1)": BaselineSettings("relu", batch_norm=True, learning_rate=3e-3),
}
NEXT = """\
Next, try your own data, or a larger set:
  zeroone train --data mine.csv --label kind --validation 0.1 --out runs/mine
  zeroone data get mnist && zeroone train --data mnist --hidden 1000,1000 --out runs/mnist
  zeroone reproduce all --quick"""

Samples = NDArray[Any]
Fold = tuple[Samples, Samples, Samples, Samples]  # X, y, and those of the test


def demo(
    *,
    out: Path = Path("zeroone-demo"),
    seed: int = 0,
    threads: int = 1,
    quiet: bool = False,
) -> None:
    """Compare six ways to train on handwritten digits, by cross-validation; ship one network.

    Example: zeroone demo --out zeroone-demo

    Args:
        out: folder for the figure, the C code, and the page to draw on.
        seed: seed of the folds and of the random starts.
        threads: CPU threads; the matrices are too small for more than one.
    """
    set_threads(threads)
    need_extra("plots", "matplotlib")
    need_extra("pages", "jinja2")
    TrainSettings(seed=seed)  # refuses a wrong seed before anything is written
    make_folder(out)
    folds = list(_folds(seed))
    records: dict[str, list[dict[str, Any]]] = {name: [] for name in (*RUNS, *BASELINES)}
    with counters(quiet=quiet) as show:
        for name, done in records.items():
            for fold in folds:
                model, record = _train(name, fold, seed, scores=fold is folds[0])
                if name == SHIPPED and fold is folds[0]:
                    shipped = model
                done.append(record)
                show(name, len(done), FOLDS)
    print_table(_table(records))
    figure = plot_methods(records, out / "demo.png")
    print(_ship(shipped, out, folds[0][2]))
    print(f"Open {out / 'draw.html'} to draw a digit and watch the bits, {figure} for the figure.")
    print(NEXT)


def _folds(seed: int) -> Iterator[Fold]:
    """Cut all digits into training and test parts: each sample is once in a test part."""
    X, y = load_data("digits").everything
    X = (X * (255 / 16)).round().astype(np.uint8)  # the code and the page to draw on take bytes
    order = np.random.default_rng(seed).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]  # so that classes spread evenly
    for fold in range(FOLDS):
        test = order[fold::FOLDS]
        rest = np.setdiff1d(order, test)
        yield X[rest], y[rest], X[test], y[test]


def _train(name: str, fold: Fold, seed: int, *, scores: bool) -> tuple[Any, dict[str, Any]]:
    """Train by one of the methods; return the network and the record."""
    X, y, *test = fold
    settings = TrainSettings.from_options(**RUNS.get(name, {}), hidden=HIDDEN, seed=seed)
    if name in BASELINES:
        return train_baseline(X, y, BASELINES[name], settings, test=(test[0], test[1]))
    run = train(X, y, settings, test=(test[0], test[1]), scores=scores)
    return run.network, run.record


def _table(records: dict[str, list[dict[str, Any]]]) -> Table:
    """List the errors, the bits that flip, and the units; nothing that depends on the machine."""
    widths = "-".join(map(str, (64, *HIDDEN, 10)))
    title = f"1,797 digits, {widths}, {FOLDS}-fold cross-validation"
    table = Table(title=title, title_justify="left")
    table.add_column("trained by")
    for heading in ("test error", "spread", "bits flipped per pass", "units"):
        table.add_column(heading, justify="right")
    for name, runs in records.items():
        errors = [100 * run["result"]["test_error"] for run in runs]
        flips = mean_flips(runs)
        table.add_row(
            name,
            f"{statistics.mean(errors):.2f}%",
            f"{statistics.stdev(errors):.2f}",
            "" if flips is None else f"{100 * flips:.2f}%",
            "-".join(map(str, runs[0]["result"]["active_units"])),
        )
    return table


def _ship(network: Network, out: Path, X: Samples) -> str:
    """Round a network to integers, write it as C and as a page; say what that gives."""
    integers = IntegerModel(quantise(network))
    small = integers.save(out / "digits.safetensors")
    integers.export("c", out / "digits.c")
    integers.export("html", out / "draw.html")
    same = int((integers.predict(X) == network.predict(X)).sum())
    return (
        f'Shipped "{SHIPPED}" as {out / "digits.c"}: {small.stat().st_size / 1e3:.0f} kB in int8, '
        f"{same} of {len(X)} labels of the first fold as in float32."
    )
