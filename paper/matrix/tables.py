"""Tables of a run matrix, made from its records only."""

import statistics
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paper.matrix.matrix import Matrix
from paper.matrix.methods import INITIAL, METHODS, Method
from paper.matrix.run import FAILED, Cell
from paper.printed_numbers import paper_flops

ERRORS = ("train_error", "validation_error", "test_error", "train_top5_error", "test_top5_error")
HEADINGS = {
    "train_error": "train error",
    "validation_error": "validation error",
    "test_error": "test error",
    "test_top5_error": "top-5",
}


def summarise(matrix: Matrix, methods: dict[str, Method] = METHODS) -> list[dict[str, Any]]:
    """One row for each data, architecture and method: mean and deviation over the repetitions."""
    times = matrix.times()
    rows = []
    cells = sorted(matrix.cells, key=_order(matrix))
    for (data, architecture), group in groupby(cells, lambda c: (c.data, c.architecture)):
        by_method: dict[str, list[Cell]] = {}
        for cell in group:
            if cell.below:  # the body's line comes first in every table on it
                bodies = by_method.setdefault(INITIAL, [])
                bodies += [cell.below] if cell.below not in bodies else []
            if cell.method != INITIAL:
                by_method.setdefault(cell.method, []).append(cell)
        for method, members in by_method.items():
            named = {"data": data, "architecture": architecture, "method": method}
            named["label"] = _label(method, methods)
            rows.append(named | _row(matrix, members, times))
    return rows


def _row(matrix: Matrix, members: list[Cell], times: dict[Cell, float]) -> dict[str, Any]:
    """What the repetitions of a cell gave."""
    records = [matrix.records[cell] for cell in members if cell in matrix.records]
    good = [record["result"] for record in records if record["status"] != FAILED]
    first = members[0]
    row: dict[str, Any] = {
        "n": len(good),
        "planned": len(members),
        "failed": [record["reason"] for record in records if record["status"] == FAILED],
        "paper_flops_millions": paper_flops(first.data, first.architecture, first.method),
    }
    if good:
        row |= _means(good) | {"seeds": [r["seed"] for r in records if r["status"] != FAILED]}
        seconds = [times[cell] for cell in members if cell in times]
        row["seconds_per_iteration"] = statistics.median(seconds) if seconds else None
    return row


def _label(method: str, methods: dict[str, Method]) -> str:
    if method == INITIAL:
        return "initial process (Adam)"
    return methods[method].label if method in methods else method


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
        layers = zip(*(r["active_units"] for r in results), strict=True)
        row["active_units"] = [statistics.mean(layer) for layer in layers]
        row["parameters"] = statistics.mean(r["parameters"] for r in results)
        for name in results[0]["operations"]:
            row[name] = statistics.mean(r["operations"][name] for r in results)
    noisy = [result["noise"] for result in results if "noise" in result]
    if noisy:
        columns = zip(*(entry["errors"] for entry in noisy), strict=True)
        row["noise"] = {
            "part": noisy[0]["part"],
            "levels": noisy[0]["levels"],
            "errors": [_mean_and_deviation(list(column)) for column in columns],
        }
    return row


def _mean_and_deviation(values: list[float]) -> dict[str, Any]:
    spread = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "deviation": spread, "values": values}


def print_summary(rows: list[dict[str, Any]]) -> None:
    """For each data set and architecture: errors, then sizes, then errors in noise."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    for (data, architecture), group in groupby(rows, lambda r: (r["data"], r["architecture"])):
        members, name = list(group), escape(f"{data}, {architecture}")
        console.print(f"\n{name}: errors")
        console.print(_error_table(members))
        if any("macs" in row for row in members):
            console.print(f"\n{name}: what is left, and what a prediction takes")
            console.print(_size_table(members))
        if noisy := [row for row in members if "noise" in row]:
            console.print(f"\n{name}: {noisy[0]['noise']['part']} error in noise")
            console.print(_noise_table(noisy))


def _new_table(headings: Iterable[str]) -> Table:
    table = Table()
    table.add_column("method")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _error_table(rows: list[dict[str, Any]]) -> Table:
    shown = [name for name in HEADINGS if any(name in row for row in rows)]
    table = _new_table(["n", *(HEADINGS[name] for name in shown), "s/epoch"])
    for row in rows:
        n = f"{row['n']}" if row["n"] == row["planned"] else f"{row['n']} of {row['planned']}"
        errors = [percent(row.get(name)) for name in shown]
        seconds = row.get("seconds_per_iteration")
        timing = "" if seconds is None else f"{seconds:.2g}"
        table.add_row(escape(row["label"]), n, *errors, timing)
    return table


def _size_table(rows: list[dict[str, Any]]) -> Table:
    printed = any(row["paper_flops_millions"] for row in rows)
    headings = ["units", "parameters", "MACs", "additions", "1-bit words"]
    table = _new_table(headings + ["paper's FLOPs"] * printed)
    for row in rows:
        if "macs" not in row:
            continue
        units = "-".join(f"{layer:.0f}" for layer in row["active_units"]) or "none"
        names = ("parameters", "macs", "additions", "word_operations")
        flops = row["paper_flops_millions"]
        theirs = [f"{flops:g}M" if flops else ""] if printed else []
        table.add_row(escape(row["label"]), units, *(f"{row[n]:,.0f}" for n in names), *theirs)
    return table


def _noise_table(rows: list[dict[str, Any]]) -> Table:
    table = _new_table([f"{level:g}" for level in rows[0]["noise"]["levels"]])
    for row in rows:
        table.add_row(escape(row["label"]), *map(percent, row["noise"]["errors"]))
    return table


def percent(value: dict[str, Any] | None) -> str:
    """'1.53 +- 0.04%', without the spread if there is none, nothing for nothing."""
    if value is None:
        return ""
    spread = "" if value["deviation"] is None else f" +- {100 * value['deviation']:.2f}"
    return f"{100 * value['mean']:.2f}{spread}%"


def failures(rows: Iterable[dict[str, Any]]) -> list[str]:
    """One sentence for each method that has failed cells."""
    return [
        f"{row['data']}, {row['architecture']}, {row['method']}: {reason}"
        for row in rows
        for reason in row["failed"]
    ]
