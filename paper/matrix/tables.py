"""Tables of a run matrix, made from its records only."""

import statistics
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from paper.matrix.matrix import Matrix
from paper.matrix.methods import METHODS, PRETRAINING, Method
from paper.matrix.run import FAILED, Run
from paper.printed_numbers import paper_flops

ERRORS = ("train_error", "validation_error", "test_error", "train_top5_error", "test_top5_error")
HEADINGS = {
    "train_error": "train error",
    "validation_error": "validation error",
    "test_error": "test error",
    "test_top5_error": "top-5",
}
OPERATIONS = {"macs": "MACs", "additions": "additions", "word_operations": "1-bit words"}
Row = dict[str, Any]


def summarise(matrix: Matrix, methods: dict[str, Method] = METHODS) -> list[Row]:
    """Make a row for each data set, architecture and method: means over the repetitions.

    The row of a backbone comes first in the group of those on it.
    """
    groups: dict[tuple[str, str], dict[str, list[Run]]] = {}
    for run in matrix.runs:
        if run.method == PRETRAINING:
            continue
        by_method = groups.setdefault((run.data, run.architecture), {})
        if run.backbone_run and run.backbone_run not in by_method.setdefault(PRETRAINING, []):
            by_method[PRETRAINING].append(run.backbone_run)
        by_method.setdefault(run.method, []).append(run)
    times = matrix.times()
    return [
        {"data": data, "architecture": architecture, "method": method}
        | {"label": _label(method, methods)}
        | _summary(matrix, runs, times)
        for (data, architecture), by_method in groups.items()
        for method, runs in by_method.items()
    ]


def _label(method: str, methods: dict[str, Method]) -> str:
    if method == PRETRAINING:
        return "pretraining (Adam)"
    return methods[method].label if method in methods else method


def _summary(matrix: Matrix, runs: list[Run], times: dict[Run, float]) -> Row:
    """Sum up the repetitions of a run."""
    records = [matrix.records[run] for run in runs if run in matrix.records]
    good = [record for record in records if record["status"] != FAILED]
    first = runs[0]
    row: Row = {
        "n": len(good),
        "planned": len(runs),
        "failed": [record["reason"] for record in records if record["status"] == FAILED],
        "paper_flops_millions": paper_flops(first.data, first.architecture, first.method),
    }
    if good:
        row |= _means([record["result"] for record in good])
        row["seeds"] = [record["seed"] for record in good]
        seconds = [times[run] for run in runs if run in times]
        row["seconds_per_iteration"] = statistics.median(seconds) if seconds else None
    return row


def _means(results: list[dict[str, Any]]) -> Row:
    row: Row = {}
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
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.mean(values), "deviation": deviation, "values": values}


def print_summary(rows: list[Row]) -> None:
    """Print errors, sizes and errors in noise of each data set and architecture."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    for (data, architecture), group in groupby(rows, lambda r: (r["data"], r["architecture"])):
        members = list(group)
        tables = {"errors": _error_table(members)}
        if sized := [row for row in members if "macs" in row]:
            tables["what is left, and what a prediction takes"] = _size_table(sized)
        if noisy := [row for row in members if "noise" in row]:
            levels = [f"{level:g}" for level in noisy[0]["noise"]["levels"]]
            lines = [map(percent, row["noise"]["errors"]) for row in noisy]
            tables[f"{noisy[0]['noise']['part']} error in noise"] = _table(levels, noisy, lines)
        for title, table in tables.items():
            console.print(f"\n{escape(f'{data}, {architecture}')}: {title}")
            console.print(table)


def _table(headings: Iterable[str], rows: list[Row], lines: Iterable[Iterable[str]]) -> Table:
    """Make a table of methods: ``lines`` are the entries of ``rows`` after the label."""
    table = Table()
    table.add_column("method")
    for heading in headings:
        table.add_column(heading, justify="right")
    for row, line in zip(rows, lines, strict=True):
        table.add_row(escape(row["label"]), *line)
    return table


def _error_table(rows: list[Row]) -> Table:
    shown = [name for name in HEADINGS if any(name in row for row in rows)]
    lines = []
    for row in rows:
        seconds = row.get("seconds_per_iteration")
        timing = "" if seconds is None else f"{seconds:.2g}"
        lines.append([counted(row), *(percent(row.get(name)) for name in shown), timing])
    return _table(["n", *(HEADINGS[name] for name in shown), "s/epoch"], rows, lines)


def _size_table(rows: list[Row]) -> Table:
    flops = [row["paper_flops_millions"] for row in rows]
    lines = []
    for row, theirs in zip(rows, flops, strict=True):
        units = "-".join(f"{layer:.0f}" for layer in row["active_units"]) or "none"
        printed = [f"{theirs:g}M" if theirs else ""] if any(flops) else []
        lines.append(
            [units, *(f"{row[name]:,.0f}" for name in ("parameters", *OPERATIONS)), *printed]
        )
    headings = ["units", "parameters", *OPERATIONS.values()] + ["paper's FLOPs"] * any(flops)
    return _table(headings, rows, lines)


def counted(row: Row) -> str:
    """Write the number of results, '3', or '2 of 3' if some are missing."""
    return f"{row['n']}" if row["n"] == row["planned"] else f"{row['n']} of {row['planned']}"


def percent(value: dict[str, Any] | None) -> str:
    """Write '1.53 +- 0.04%', without the deviation if there is none; nothing for None."""
    if value is None:
        return ""
    deviation = "" if value["deviation"] is None else f" +- {100 * value['deviation']:.2f}"
    return f"{100 * value['mean']:.2f}{deviation}%"


def failures(rows: Iterable[Row]) -> list[str]:
    """Write a sentence for each failed run."""
    return [
        f"{row['data']}, {row['architecture']}, {row['method']}: {reason}"
        for row in rows
        for reason in row["failed"]
    ]
