"""``zeroone demo``: what trains 0/1 networks and what does not, on handwritten digits."""

import ctypes
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from zeroone.baselines.settings import BaselineSettings
from zeroone.commands.checks import output_folder, set_threads
from zeroone.commands.console import print_table, steps
from zeroone.commands.figures import mean_flips, plot_methods
from zeroone.data.load import load_data
from zeroone.deploy import IntegerModel, quantise
from zeroone.nn.network_file import load
from zeroone.training import TrainSettings, train
from zeroone.training.baselines import train_baseline
from zeroone.training.checkpoint import MODEL, RECORD
from zeroone.utils.checks import need_extra
from zeroone.utils.records import write_record
from zeroone.utils.storage import make_folder, replacing

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
        out: folder for the figure, the report, the exports, and the models of the first fold.
        seed: seed of the folds and of the random starts.
        threads: CPU threads; the matrices are too small for more than one.
    """
    set_threads(threads)
    need_extra("plots", "matplotlib")
    need_extra("pages", "jinja2")
    from zeroone.commands.report import write_report

    TrainSettings(seed=seed)  # refuses a wrong seed before anything is written
    records: dict[str, list[dict[str, Any]]] = {}
    with output_folder(out):
        data = _write_fold(next(_folds(seed)), out / "digits.npz")
        for name in (*RUNS, *BASELINES):
            with steps(name, FOLDS, quiet=quiet) as done:
                records[name] = list(_cross_validate(name, data, seed, done))
        print_table(_table(records))
        figure = plot_methods(records, out / "demo.png")
        shipped = _ship(out, next(_folds(seed)))
        page = write_report([out / _as_folder(name) for name in records], out / "report.html")
    print("\n".join(shipped))
    print(f"Open {out / 'draw.html'} to draw a digit and watch the bits, {figure} for the figure,")
    print(f"and {page} for the runs of the first fold.")
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


def _write_fold(fold: Fold, path: Path) -> Path:
    """Write the data of a fold for the report, which shows mistakes and weights as images."""
    X, y, X_test, y_test = fold
    X, X_test = X.reshape(-1, 8, 8), X_test.reshape(-1, 8, 8)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, X=X, y=y, X_test=X_test, y_test=y_test)
    return path


def _cross_validate(
    name: str, data: Path, seed: int, done: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Train on every fold; keep the record and the model of the first one beside its data."""
    folder = data.parent / _as_folder(name)
    for number, (X, y, *test) in enumerate(_folds(seed)):
        given: dict[str, Any] = {"test": tuple(test), "name": str(data)}
        settings = TrainSettings.from_options(**RUNS.get(name, {}), hidden=HIDDEN, seed=seed)
        if name in BASELINES:
            _, record = train_baseline(X, y, BASELINES[name], settings, **given)
            if number == 0:
                write_record(make_folder(folder) / RECORD, record)
        else:
            run = train(X, y, settings, **given, scores=number == 0)
            record = run.record
            if number == 0:
                run.save(folder)
        done(f"{100 * record['result']['test_error']:.1f}% test error")
        yield record


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


def _ship(out: Path, fold: Fold) -> list[str]:
    """Round a network to integers, write it as C and as a page; say what that gives."""
    network = load(out / _as_folder(SHIPPED) / MODEL)
    integers = IntegerModel(quantise(network))
    small = integers.save(out / "digits.safetensors")
    for kind, path in (("c", out / "digits.c"), ("html", out / "draw.html")):
        integers.export(kind, path)
    X = fold[2]
    labels = integers.predict(X)
    same = int((labels == network.predict(X)).sum())
    each = _microseconds(lambda: integers.predict(X[:1]))
    lines = [
        f'Shipped "{SHIPPED}": {small.stat().st_size / 1e3:.0f} kB in int8, {each:.0f} us for one '
        f"sample in Python, {same} of {len(X)} labels of the first fold as in float32."
    ]
    in_c = _run_c(out / "digits.c", X)
    if in_c is None:
        return [*lines, "No C compiler is here to run digits.c."]
    by_c, each = in_c
    agree = int((np.asarray(integers.classes)[by_c] == labels).sum())
    return [*lines, f"{out / 'digits.c'}: {each:.1f} us, {agree} of {len(X)} labels the same."]


def _run_c(source: Path, X: Samples) -> tuple[NDArray[np.int64], float] | None:
    """Compile the C export and classify with it; return class numbers and us per sample."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "digits.so"
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        classify = ctypes.CDLL(str(library)).digits_classify
    pointers = [sample.ctypes.data_as(ctypes.c_void_p) for sample in np.ascontiguousarray(X)]
    labels = np.array([classify(pointer) for pointer in pointers])
    return labels, _microseconds(lambda: classify(pointers[0]))


def _microseconds(call: Callable[[], Any], repeats: int = 300) -> float:
    """Return the median time of a call, in microseconds."""
    times = []
    for _ in range(repeats):
        begun = perf_counter()
        call()
        times.append(perf_counter() - begun)
    return 1e6 * statistics.median(times)


def _as_folder(name: str) -> str:
    kept = "".join(letter if letter.isalnum() else " " for letter in name.replace("'", ""))
    return "-".join(kept.lower().split())
