"""Tables of a run matrix, made from its records only."""

import statistics
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

from zeroone.experiments.matrix import FAILED, Matrix
from zeroone.experiments.methods import METHODS, Method

ERRORS = ("train_error", "validation_error", "test_error", "train_top5_error", "test_top5_error")
HEADINGS = {
    "train_error": "train error",
    "validation_error": "validation error",
    "test_error": "test error",
    "test_top5_error": "top-5",
}

# The FLOPs that Tables 1 and 2 of the paper print, in millions; they follow no single way of
# counting (erratum E9), so they stand beside our counts and are compared with nothing.
_CONTINUOUS = ("relu", "sigmoid", "swish", "selu", "tanh")
_ONE_BIT = ("ste", "ccnn", "bi-real")
PAPER_FLOPS = {
    (data, architecture, method): flops
    for (data, architecture), (continuous, one_bit, bcd) in {
        ("mnist", "convnet"): (0.558, 0.382, 0.363),
        ("fashion-mnist", "convnet"): (0.558, 0.382, 0.363),
        ("cifar10", "resnet18"): (223.4, 221.7, 221.4),
        ("cifar100", "resnet18"): (225.6, 183.0, 182.9),
    }.items()
    for methods, flops in ((_CONTINUOUS, continuous), (_ONE_BIT, one_bit), (("bcd",), bcd))
    for method in methods
} | {
    ("mnist", "convnet", "pcnn"): 0.382,
    ("fashion-mnist", "convnet", "pcnn"): 0.382,
    ("cifar10", "resnet18", "pcnn"): 221.7,
}


def summarise(matrix: Matrix, methods: dict[str, Method] = METHODS) -> list[dict[str, Any]]:
    """One row for each data, architecture and method: mean and deviation over the repetitions."""
    times = matrix.times()
    rows = []
    cells = sorted(matrix.cells, key=_order(matrix))
    for (data, architecture, method), group in groupby(
        cells, lambda c: (c.data, c.architecture, c.method)
    ):
        members = list(group)
        records = [matrix.records[cell] for cell in members if cell in matrix.records]
        good = [record["result"] for record in records if record["status"] != FAILED]
        row: dict[str, Any] = {
            "data": data,
            "architecture": architecture,
            "method": method,
            "label": methods[method].label if method in methods else method,
            "n": len(good),
            "planned": len(members),
            "failed": [record["reason"] for record in records if record["status"] == FAILED],
            "paper_flops_millions": PAPER_FLOPS.get((data, architecture, method)),
        }
        if good:
            row |= _means(good)
            seconds = [times[cell] for cell in members if cell in times]
            row["seconds_per_iteration"] = statistics.median(seconds) if seconds else None
        rows.append(row)
    return rows


def _order(matrix: Matrix) -> Any:
    """By data, architecture and method, in the order in which the matrix names them."""
    place: dict[Any, int] = {}
    for cell in matrix.cells:
        for name in ((1, cell.data), (2, cell.architecture), (3, cell.method)):
            place.setdefault(name, len(place))
    return lambda c: (place[1, c.data], place[2, c.architecture], place[3, c.method])


def _means(results: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name in ERRORS:
        values = [result[name] for result in results if name in result]
        if values:
            row[name] = _mean_and_deviation(values)
    if all("operations" in result for result in results):
        row["active_units"] = statistics.mean(sum(r["active_units"]) for r in results)
        row["parameters"] = statistics.mean(r["parameters"] for r in results)
        for name in results[0]["operations"]:
            row[name] = statistics.mean(r["operations"][name] for r in results)
    noisy = [result["noise"] for result in results if "noise" in result]
    if noisy:
        columns = zip(*(entry["errors"] for entry in noisy), strict=True)
        row["noise"] = {
            "levels": noisy[0]["levels"],
            "errors": [_mean_and_deviation(list(column)) for column in columns],
        }
    return row


def _mean_and_deviation(values: list[float]) -> dict[str, float | None]:
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "deviation": spread}


def print_summary(rows: list[dict[str, Any]]) -> None:
    """One table for each data set and architecture; a second one if noise was measured."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    for (data, architecture), group in groupby(rows, lambda r: (r["data"], r["architecture"])):
        members = list(group)
        console.print(_table(f"{data}, {architecture}", members))
        if any("noise" in row for row in members):
            console.print(_noise_table(f"{data}, {architecture}: test error in noise", members))


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    shown = [name for name in HEADINGS if any(name in row for row in rows)]
    printed = any(row["paper_flops_millions"] for row in rows)
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    headings = ["n", *(HEADINGS[name] for name in shown), "units", "parameters"]
    headings += ["MACs", "additions", "1-bit words", "s/epoch"]
    for heading in (*headings, *(["paper's FLOPs"] if printed else [])):
        table.add_column(heading, justify="right")
    for row in rows:
        n = f"{row['n']}" if row["n"] == row["planned"] else f"{row['n']} of {row['planned']}"
        errors = [percent(row.get(name)) for name in shown]
        sizes = [_number(row.get(name)) for name in ("active_units", "parameters", "macs")]
        sizes += [_number(row.get(name)) for name in ("additions", "word_operations")]
        seconds = row.get("seconds_per_iteration")
        cells = [n, *errors, *sizes, "" if seconds is None else f"{seconds:.2g}"]
        flops = row["paper_flops_millions"]
        table.add_row(row["label"], *cells, *([f"{flops:g}M" if flops else ""] if printed else []))
    return table


def _noise_table(title: str, rows: list[dict[str, Any]]) -> Table:
    levels = next(row["noise"]["levels"] for row in rows if "noise" in row)
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    for level in levels:
        table.add_column(f"{level:g}", justify="right")
    for row in rows:
        if "noise" in row:
            table.add_row(row["label"], *map(percent, row["noise"]["errors"]))
    return table


def percent(value: dict[str, float | None] | None) -> str:
    """'1.53 +- 0.04%', without the spread if there is none, nothing for nothing."""
    if value is None or value["mean"] is None:
        return ""
    spread = "" if value["deviation"] is None else f" +- {100 * value['deviation']:.2f}"
    return f"{100 * value['mean']:.2f}{spread}%"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def failures(rows: Iterable[dict[str, Any]]) -> list[str]:
    """One sentence for each method that has failed cells."""
    return [
        f"{row['data']}, {row['architecture']}, {row['method']}: {reason}"
        for row in rows
        for reason in row["failed"]
    ]
