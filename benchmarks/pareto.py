"""``zeroone bench pareto``: both fronts of error against size and time, ours and int8 ReLU.

    python benchmarks/pareto.py --data mnist --json results/pareto_mnist.json

Trains what is not in the cache folder yet (``pareto_models``). Every call goes from an array of
bytes to labels, on one thread, in turns. Networks are compared at equal error on the held-out part;
test errors are for the report only.
"""

import json
import statistics
import tempfile
import time
import zlib
from argparse import ArgumentParser
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from platformdirs import user_cache_path
from rich.table import Table

from benchmarks import pareto_models as models
from benchmarks.bench_inference import describe_kernels, relu_as_onnx
from zeroone.commands.checks import check_output
from zeroone.commands.console import print_table
from zeroone.deploy.integer_form import IntegerNetwork, weight_bits
from zeroone.deploy.runtime import open_session
from zeroone.utils.allocator import keep_freed_memory
from zeroone.utils.checks import one_of
from zeroone.utils.records import new_record, write_record

BATCHES = (16, 256, 4096)
SINGLES, IN_BATCHES = 300, 8192  # samples of a turn: in calls of one each, in batches
Labels = Callable[[NDArray[np.uint8]], NDArray[Any]]


def by_session(content: bytes, *, bytes_in: bool) -> Labels:
    """Return a function from bytes to labels in ONNX Runtime."""
    session = open_session(content, 1, spin=False)
    name, out = session.get_inputs()[0].name, [session.get_outputs()[0].name]

    def call(X: NDArray[np.uint8]) -> NDArray[Any]:
        inputs = X if bytes_in else X.astype(np.float32) / np.float32(255)
        labels: NDArray[Any] = session.run(out, {name: inputs})[0].argmax(1)
        return labels

    return call


def by_torch(layers: torch.nn.Module) -> Labels:
    def call(X: NDArray[np.uint8]) -> NDArray[Any]:
        with torch.inference_mode():
            labels: NDArray[Any] = layers(torch.from_numpy(X).float() / 255).argmax(1).numpy()
        return labels

    return call


def our_operations(network: IntegerNetwork) -> dict[str, int]:
    """Count additions, and products with multiplications: those of bytes with int8 weights."""
    counts = [int(np.count_nonzero(stage.main.weights)) for stage in network.stages]
    multiplied = counts[0] if weight_bits(network.stages[0].main.weights) == 8 else 0
    return {"additions": sum(counts) - multiplied, "multiply_adds": multiplied}


def about(call: Labels, data: models.Data, content: bytes) -> dict[str, Any]:
    return {
        "held_out": float((call(data.held_out.X) != data.held_out.y).mean()),
        "test": float((call(data.test.X) != data.test.y).mean()),
        "bytes": len(content),
        "deflated": len(zlib.compress(content, 9)),
    }


def find_ours(
    name_of_data: str, data: models.Data, folder: Path, epochs: int
) -> tuple[dict[str, Any], dict]:
    rows, calls = {}, {}
    for name, form in models.our_forms(name_of_data).items():
        path = models.our_model(name, form, data, folder, epochs)
        model = models.read_ours(path)
        model.threads = 1
        calls[name] = model.predict
        rows[name] = {"kind": "ours"} | about(model.predict, data, path.read_bytes())
        rows[name] |= our_operations(model.network)
    return rows, calls


def find_relu(data: models.Data, folder: Path, epochs: int) -> tuple[dict[str, Any], dict]:
    """Take the better variant of each width, as int8, as float32 in ONNX Runtime and in torch."""
    rows: dict[str, Any] = {}
    calls: dict[str, Labels] = {}
    for hidden in models.RELU:
        tried = []
        for variant, layers in models.relu_models(hidden, data, folder, epochs).items():
            with tempfile.TemporaryDirectory() as scratch:
                content = models.as_int8(layers, data.fitted, Path(scratch))
            call = by_session(content, bytes_in=True)
            tried.append((about(call, data, content), variant, layers, call))
        row, variant, layers, call = min(tried, key=lambda one: one[0]["held_out"])
        widths = models.widths_of(hidden)
        shared = {"multiply_adds": sum(a * b for a, b in pairwise(widths))}
        shared |= {"additions": 0, "variant": variant}
        name, whole = f"ReLU {hidden}-{hidden}", relu_as_onnx(layers)
        kinds = {
            "int8": (call, row),
            "float32": (by_session(whole, bytes_in=False), None),
            "torch": (by_torch(layers), None),
        }
        for kind, (run, known) in kinds.items():
            calls[f"{name}, {kind}"] = run
            rows[f"{name}, {kind}"] = {"kind": kind} | (known or about(run, data, whole)) | shared
    return rows, calls


def time_all(calls: dict[str, Labels], X: NDArray[np.uint8], repeats: int) -> dict[str, Any]:
    """Time one sample after another, and batches, in turns; microseconds a sample."""
    singles: dict[str, list[float]] = {name: [] for name in calls}
    batches: dict[str, dict[int, list[float]]] = {
        name: {size: [] for size in BATCHES} for name in calls
    }
    samples = [X[k : k + 1] for k in range(SINGLES)]
    for repeat in range(repeats + 1):
        for name, call in calls.items():
            for sample in samples:
                begun = time.perf_counter()
                call(sample)
                taken = time.perf_counter() - begun
                if repeat:
                    singles[name].append(1e6 * taken)
            for size in BATCHES:
                rounds = max(1, IN_BATCHES // size)
                begun = time.perf_counter()
                for _ in range(rounds):
                    call(X[:size])
                if repeat:
                    taken = time.perf_counter() - begun
                    batches[name][size].append(1e6 * taken / rounds / size)
    return {
        name: {
            "one": statistics.median(singles[name]),
            "one_99": float(np.quantile(singles[name], 0.99)),
            **{str(size): statistics.median(taken) for size, taken in batches[name].items()},
        }
        for name in calls
    }


def front(rows: dict[str, Any], kind: str) -> list[str]:
    """Return the networks of a kind that no smaller one beats on the held-out part."""
    names = sorted((n for n, r in rows.items() if r["kind"] == kind), key=_size(rows))
    kept: list[str] = []
    for name in names:
        if not kept or rows[name]["held_out"] < rows[kept[-1]]["held_out"]:
            kept.append(name)
    return kept


def _size(rows: dict[str, Any]) -> Callable[[str], tuple[int, float]]:
    return lambda name: (rows[name]["bytes"], rows[name]["held_out"])


def compare(rows: dict[str, Any]) -> list[dict[str, Any]]:
    """For each int8 ReLU network of the front: our smallest one with at most its error."""
    found = []
    for theirs in front(rows, "int8"):
        them = rows[theirs]
        able = [
            name
            for name, row in rows.items()
            if row["kind"] == "ours" and row["held_out"] <= them["held_out"]
        ]
        row: dict[str, Any] = {"theirs": theirs, "ours": None}
        if able:
            ours = min(able, key=_size(rows))
            us = rows[ours]
            row |= {"ours": ours, "bytes": us["bytes"] / them["bytes"]}
            row |= {key: us["us"][key] / them["us"][key] for key in them["us"]}
        found.append(row)
    return found


def show(rows: dict[str, Any], compared: list[dict[str, Any]]) -> None:
    table = Table()
    for heading in ("network", "held out", "test", "bytes", "one, us", "99%", "256, us"):
        table.add_column(heading, justify="left" if heading == "network" else "right")
    for name in sorted(rows, key=lambda name: rows[name]["held_out"]):
        row = rows[name]
        times = [f"{row['us'][key]:.3g}" for key in ("one", "one_99", "256")]
        errors = [f"{100 * row[part]:.2f}%" for part in ("held_out", "test")]
        table.add_row(name, *errors, f"{row['bytes']:,}", *times)
    print_table(table, width=110)
    for row in compared:
        if row["ours"] is None:
            print(f"{row['theirs']}: none of ours has at most its error")
        else:
            ratios = f"{row['bytes']:.2f}x bytes, {row['one']:.2f}x one, {row['256']:.2f}x in 256"
            print(f"{row['theirs']}: {row['ours']}, {ratios}")


COLUMNS = (
    ("kilobytes of the file", lambda row: row["bytes"] / 1000),
    ("microseconds for one sample", lambda row: row["us"]["one"]),
    ("microseconds a sample in batches of 256", lambda row: row["us"]["256"]),
)
KINDS = (("ours", "o", "0/1, ternary"), ("int8", "s", "ReLU, int8 in ONNX Runtime"))


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """Draw test error against bytes, one sample and batches; a row for each data set."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    size = (11, 3.2 * len(records))
    figure, axes = pyplot.subplots(len(records), 3, figsize=size, sharey="row", squeeze=False)
    for line, record in zip(axes, records, strict=True):
        rows = record["result"]["networks"].values()
        for axis, (title, of) in zip(line, COLUMNS, strict=True):
            for kind, marker, label in KINDS:
                shown = sorted((of(row), 100 * row["test"]) for row in rows if row["kind"] == kind)
                axis.plot(*zip(*shown, strict=True), marker=marker, linewidth=1, label=label)
            axis.set_xlabel(title)
            axis.grid(alpha=0.3)
        line[0].set_ylabel(f"{record['settings']['data']}: test error, %")
    for axis in axes[:, 0]:
        axis.set_xscale("log")
        axis.set_xticks([10, 30, 100, 300], labels=["10", "30", "100", "300"])
    axes[0, 1].legend(loc="center")
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def bench_pareto(
    *,
    data: str = "mnist",
    epochs: int = 40,
    repeats: int = 5,
    models_dir: Path | None = None,
    json: Path | None = None,
    picture: Path | None = None,
) -> None:
    """Compare errors, sizes and times of 0/1 networks and of int8 ReLU networks.

    Trains networks of many widths, an hour or so the first time, and keeps them in a folder.

    Example: zeroone bench pareto --data mnist --json pareto.json

    Args:
        data: mnist or fashion-mnist.
        epochs: passes over the data.
        repeats: turns of the measurement.
        models_dir: the folder of the trained networks (default: in the platform's cache).
        json: write the record here.
        picture: draw both fronts here.

    """
    check_output(json)
    check_output(picture)
    one_of("data", data, ("mnist", "fashion-mnist"))
    torch.set_num_threads(1)
    keep_freed_memory()
    settings = {"data": data, "epochs": epochs, "repeats": repeats}
    record = new_record("bench pareto", settings, seed=0) | {"kernels": describe_kernels()}
    folder = (models_dir or user_cache_path("zeroone") / "pareto") / f"{data} {epochs} epochs"
    models.prepare(data, folder, epochs)
    found = models.Data.of(data)
    rows, calls = find_ours(data, found, folder, epochs)
    their_rows, their_calls = find_relu(found, folder, epochs)
    rows, calls = rows | their_rows, calls | their_calls
    for name, times in time_all(calls, found.test.X, repeats).items():
        rows[name]["us"] = times
    record["result"] = {"networks": rows, "compared": compare(rows)}
    show(rows, record["result"]["compared"])
    if json is not None:
        write_record(json, record)
    if picture is not None:
        draw([record], picture)


def main() -> None:
    arguments = ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--data", default="mnist")
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--draw", type=Path, nargs="+", help="only draw these records")
    for name in ("--models-dir", "--json", "--picture"):
        arguments.add_argument(name, type=Path)
    options = vars(arguments.parse_args())
    if records := options.pop("draw"):
        draw([json.loads(path.read_text()) for path in records], options["picture"])
    else:
        bench_pareto(**options)


if __name__ == "__main__":
    main()
