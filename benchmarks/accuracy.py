"""Test errors of stochastic BCD and its rivals: same data, widths, batches, epochs, one run.

    python benchmarks/accuracy.py --suite mlp --seeds 3 --epochs 10 --json results/accuracy_mlp.json

Suites: ``mlp`` (MNIST and Fashion-MNIST, 784-1000-1000-10), ``small`` (digits, breast cancer with
the defaults, 5-fold, against scikit-learn's MLPClassifier with its own), ``blocks`` (every V-step
with every U-step on MNIST, 784-500-500-10). Our settings were tuned on a validation part.
Cells run side by side, one thread each; every finished cell is kept in the record at once, one that
fails with its reason, and ``--resume`` goes on with the others.
"""

import argparse
import json
import statistics
import sys
import warnings
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from measure import begin, finish, parser
from zeroone.baselines.settings import RivalSettings
from zeroone.baselines.train import train_rival
from zeroone.data.files import load_data
from zeroone.data.registry import REGISTRY
from zeroone.data.sources import obtain
from zeroone.training import TrainSettings, train

# The better rate of 1e-3 and 3e-3 on a validation part of MNIST after 5 epochs, for each of them.
RATE = 3e-3
STE = {"activation": "step-ste", "learning_rate": RATE}
RELU = {"activation": "relu", "learning_rate": RATE}


@dataclass(frozen=True)
class Row:
    """One line of a table: a method on a data set."""

    data: str
    method: str
    hidden: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)  # of training
    rival: dict[str, Any] | None = None  # of a network trained by Adam


def mlp_rows() -> Iterable[Row]:
    hidden = (1000, 1000)
    for data in ("mnist", "fashion-mnist"):
        yield Row(data, "stochastic BCD", hidden)
        yield Row(data, "0/1 + STE + Adam", hidden, rival=STE)
        yield Row(data, "0/1 + STE + BatchNorm + Adam", hidden, rival={**STE, "batch_norm": True})
        yield Row(data, "ReLU + Adam", hidden, rival=RELU)
    # On Fashion-MNIST the validation part did not tell the two rates apart: both are shown.
    slow = {**STE, "learning_rate": 1e-3}
    yield Row("fashion-mnist", "0/1 + STE + Adam, 1e-3", hidden, rival=slow)
    slow_norm = {**slow, "batch_norm": True}
    yield Row("fashion-mnist", "0/1 + STE + BatchNorm + Adam, 1e-3", hidden, rival=slow_norm)
    yield Row("mnist", "stochastic BCD, hardmax head", hidden, {"head": "hardmax"})
    yield Row("mnist", "stochastic BCD, keep=0.5", hidden, {"keep": 0.5})
    plain = {"activation": "relu", "smoothing": 0.0, "learning_rate": 1e-3}
    yield Row("mnist", "ReLU + Adam, no regularisers", hidden, {"input_dropout": 0.0}, plain)


def block_rows() -> Iterable[Row]:
    for v_step, v_damping in (("one-step", 10.0), ("solve", 10.0), ("solve", 1.0)):
        for u_step in ("expected", "drawn", "half"):
            if (v_damping, u_step) == (1.0, "half"):
                continue
            name = v_step if v_step == "one-step" else f"{v_step} ({v_damping:g}x)"
            options = {"v_step": v_step, "v_damping": v_damping, "u_step": u_step}
            yield Row("mnist", f"{name}, {u_step}", (500, 500), options)


def small_rows() -> Iterable[Row]:
    for data in ("digits", "breast-cancer"):
        yield Row(data, "stochastic BCD", (256, 256))
        yield Row(data, "MLPClassifier", ())
        yield Row(data, "StandardScaler + MLPClassifier", ())


SUITES = {"mlp": mlp_rows, "blocks": block_rows, "small": small_rows}


def run_cell(row: Row, seed: int, epochs: int) -> dict[str, Any]:
    """Train and score once; what the record keeps of it."""
    torch.set_num_threads(1)
    if row.data in ("digits", "breast-cancer"):
        return {"test_error": five_fold_error(row, seed)}
    split = load_data(row.data)
    options = {"hidden": row.hidden, "epochs": epochs, "batch": 256, "seed": seed, **row.options}
    settings = TrainSettings.from_options(**options)
    if row.rival is None:
        record = train(split.X, split.y, settings, test=split.test).record
    else:
        rival = RivalSettings(**row.rival)
        _, record = train_rival(split.X, split.y, rival, settings, test=split.test)
    result = record["result"]
    return {**result, "seconds_per_epoch": result["seconds"] / record["n_iter"]}


def five_fold_error(row: Row, seed: int) -> float:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from zeroone import ZeroOneClassifier
    from zeroone.data.embedded import load_embedded

    data = load_embedded(row.data)
    X, y = data.everything
    models = {
        "stochastic BCD": ZeroOneClassifier(row.hidden, random_state=seed),
        "MLPClassifier": MLPClassifier(random_state=seed),
        # It does not scale its inputs and ours does: a row for those who would.
        "StandardScaler + MLPClassifier": make_pipeline(
            StandardScaler(), MLPClassifier(random_state=seed)
        ),
    }
    warnings.simplefilter("ignore", ConvergenceWarning)  # 200 iterations are its default
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    return 1 - float(cross_val_score(models[row.method], X, y, cv=folds).mean())


def summarise(rows: list[Row], cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and spread over the seeds, one entry a row."""
    table = []
    for row in rows:
        own = [
            c
            for c in cells
            if (c["data"], c["method"]) == (row.data, row.method) and "failed" not in c
        ]
        if not own:
            continue
        errors = [100 * c["test_error"] for c in own]
        entry = {
            "data": row.data,
            "method": row.method,
            "seeds": len(own),
            "mean": statistics.mean(errors),
            "deviation": statistics.stdev(errors) if len(errors) > 1 else None,
        }
        times = [c["seconds_per_epoch"] for c in own if "seconds_per_epoch" in c]
        entry["seconds_per_epoch"] = statistics.median(times) if times else None
        table.append(entry)
    return table


def show(table: list[dict[str, Any]]) -> None:
    print(f"{'data':14} {'method':36} {'test error, %':>16} {'s/epoch':>8}")
    for entry in table:
        spread = "" if entry["deviation"] is None else f" +- {entry['deviation']:.2f}"
        seconds = entry["seconds_per_epoch"]
        timing = "" if seconds is None else f"{seconds:.1f}"
        print(f"{entry['data']:14} {entry['method']:36} {entry['mean']:8.2f}{spread:8} {timing:>8}")


def finished_cells(record: dict[str, Any], path: Path | None) -> list[dict[str, Any]]:
    """The cells of an interrupted run of the same settings and the same committed code."""
    if path is None or not path.is_file():
        sys.exit("--resume needs the record of the interrupted run: --json OUT")
    before = json.loads(path.read_text(encoding="utf-8"))
    if any(before.get(key) != record[key] for key in ("kind", "commit", "settings")):
        sys.exit(f"{path} comes from other settings or another commit: take another file")
    if record["commit"] is None or record["commit"].endswith("+"):
        sys.exit("--resume needs a clean checkout: cells of different code must not mix")
    return [cell for cell in before["cells"] if "failed" not in cell]


def attempt(row: Row, seed: int, epochs: int) -> dict[str, Any]:
    """A finished cell, or one that says why there is no result."""
    cell = {"data": row.data, "method": row.method, "seed": seed}
    try:
        return {**cell, **run_cell(row, seed, epochs)}
    except Exception as error:
        return {**cell, "failed": f"{type(error).__name__}: {error}"}


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=None, threads=None)
    arguments.formatter_class = argparse.RawDescriptionHelpFormatter
    arguments.add_argument("--suite", choices=SUITES, default="mlp")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--epochs", type=int, default=10)
    arguments.add_argument("--data", help="only this data set")
    arguments.add_argument("--jobs", type=int, default=2, help="cells at a time")
    arguments.add_argument("--resume", action="store_true", help="keep the cells of --json")
    options = arguments.parse_args()
    rows = [row for row in SUITES[options.suite]() if options.data in (None, row.data)]
    for name in {row.data for row in rows} & set(REGISTRY):
        obtain(REGISTRY[name])
    record = begin(f"accuracy-{options.suite}", options)
    record["cells"] = finished_cells(record, options.json) if options.resume else []
    done = {(cell["data"], cell["method"], cell["seed"]) for cell in record["cells"]}
    # One process a cell: a cell's threads, memory and failures are its own.
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        jobs = [
            pool.submit(attempt, row, seed, options.epochs)
            for seed in range(options.seeds)
            for row in rows
            if (row.data, row.method, seed) not in done
        ]
        for job in as_completed(jobs):
            cell = job.result()
            record["cells"].append(cell)
            result = cell.get("failed") or f"{100 * cell['test_error']:.2f}%"
            print(
                f"{len(record['cells'])}/{len(done) + len(jobs)} {cell['data']}, "
                f"{cell['method']}, seed {cell['seed']}: {result}",
                file=sys.stderr,
                flush=True,
            )
            finish(record, options.json, quiet=True)
    record["table"] = summarise(rows, record["cells"])
    show(record["table"])
    finish(record, options.json)


if __name__ == "__main__":
    main()
