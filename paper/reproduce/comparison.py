"""The paper's tables with our numbers beside the printed ones."""

from typing import Any

from paper.matrix.methods import PRETRAINING
from paper.matrix.tables import OPERATIONS, Row, counted
from paper.printed_numbers import printed
from paper.reproduce.results import Results
from paper.reproduce.text_tables import Entry, TextTable

PAPERS_ROW = "bcd-95"  # the method that stands for the paper's row "0/1(BCD)"
ERRORS = {
    "train_error": "train error (%)",
    "test_error": "test error (%)",
    "test_top5_error": "top-5 error (%)",
}
NEAR = 0.02  # a relative difference of errors that needs no note
# The letters of notes, by what they explain; ``papers_`` marks those of the paper's row.
MARKS = {
    "error": "a",
    "papers_error": "b",
    "units": "c",
    "papers_units": "d",
    "parameters": "e",
    "papers_parameters": "f",
    "flops": "g",
}


def compare_with_paper(results: Results) -> list[TextTable]:
    """Make a table for each architecture: every method, with the printed numbers beside ours."""
    architectures = dict.fromkeys(row["architecture"] for row in results.rows)
    return [_text_table(results, name) for name in architectures]


def _text_table(results: Results, architecture: str) -> TextTable:
    rows = [row for row in results.rows if row["architecture"] == architecture]
    protocol = results.protocol
    printed_rows = [_printed(results, row["method"]) for row in rows]
    errors = [name for name in ERRORS if any(name in row for row in rows)]
    if protocol.paper is None or protocol.paper[0] == "table1":
        errors = [name for name in errors if name != "test_top5_error"]
    best = _best(rows, errors)
    lines = [
        _line(row, theirs, errors, best) for row, theirs in zip(rows, printed_rows, strict=True)
    ]
    headings = ["method", "n", *(h for name in errors for h in (ERRORS[name], "paper"))]
    headings += ["units", "paper", "parameters", "paper", *OPERATIONS.values(), "paper's FLOPs"]
    if not any(printed_rows):
        ours = [k for k, heading in enumerate(headings) if not heading.startswith("paper")]
        headings, lines = [headings[k] for k in ours], [[line[k] for k in ours] for line in lines]
    used = {entry.mark for line in lines for entry in line}
    notes = {mark: protocol.differs[what] for what, mark in MARKS.items() if mark in used}
    return TextTable(f"{protocol.title} ({architecture})", headings, lines, notes)


def errors_in_noise(results: Results) -> list[TextTable]:
    """Make one table: the test error of every method at every noise level."""
    rows = [row for row in results.rows if "noise" in row]
    if not rows:
        return []
    levels = [f"{level:g}" for level in rows[0]["noise"]["levels"]]
    errors = [dict(zip(levels, row["noise"]["errors"], strict=True)) for row in rows]
    title = f"{results.protocol.title}: test error (%) by the deviation of the noise"
    return [_error_table(results, title, levels, rows, errors)]


def errors_by_pretraining_epochs(results: Results) -> list[TextTable]:
    """Make one table: the test error of every method after each number of pretraining epochs."""
    by_method = [results.by_pretraining_epochs(name) for name in results.protocol.spec.methods]
    epochs = sorted({each for rows in by_method for each in rows})
    if not epochs:
        return []
    errors = [{str(e): rows[e].get("test_error") for e in epochs} for rows in by_method]
    # A row for all epochs: its count is that of every one of them, if they differ.
    firsts = [rows[epochs[0]] for rows in by_method]
    counts = [", ".join(dict.fromkeys(counted(rows[e]) for e in epochs)) for rows in by_method]
    title = f"{results.protocol.title}: test error (%) by epochs of pretraining"
    return [_error_table(results, title, list(map(str, epochs)), firsts, errors, counts)]


def _error_table(
    results: Results,
    title: str,
    columns: list[str],
    rows: list[Row],
    errors: list[dict[str, Any]],
    counts: list[str] | None = None,
) -> TextTable:
    """Make a table of errors by column; the lowest is in bold once all runs have a result."""
    methods = [k for k, row in enumerate(rows) if row["method"] != PRETRAINING]
    best: dict[str, float] = {}
    if not results.lacking:
        best = {name: min(errors[k][name]["mean"] for k in methods) for name in columns}
    lines = []
    for k, row in enumerate(rows):
        found = [(errors[k][name], best.get(name) if k in methods else None) for name in columns]
        entries = [Entry(percent(e), best=e is not None and e["mean"] == low) for e, low in found]
        lines.append([Entry(row["label"]), Entry(counts[k] if counts else counted(row)), *entries])
    return TextTable(title, ["method", "n", *columns], lines)


def _printed(results: Results, method: str) -> dict[str, float]:
    """What the paper prints of a method; our default has no row in it."""
    if results.protocol.paper is None or method == "bcd":
        return {}
    return printed(*results.protocol.paper, "bcd" if method == PAPERS_ROW else method)


def _best(rows: list[Row], errors: list[str]) -> dict[str, float]:
    """The lowest mean of each error, if all runs have a result and there are several seeds."""
    methods = [row for row in rows if row["method"] != PRETRAINING]
    if any(row["n"] < max(2, row["planned"]) for row in methods):
        return {}
    means = {name: [row[name]["mean"] for row in methods if name in row] for name in errors}
    return {name: min(values) for name, values in means.items() if values}


def _line(
    row: Row, theirs: dict[str, float], errors: list[str], best: dict[str, float]
) -> list[Entry]:
    """Write a method's row, with the printed number after each of ours."""
    is_papers = row["method"] == PAPERS_ROW
    whose = "papers_" if is_papers else ""
    entries = [Entry(row["label"]), Entry(counted(row))]
    for name in errors:
        leads = row["method"] != PRETRAINING and name in row and row[name]["mean"] == best.get(name)
        entries += _error(row.get(name), theirs.get(name), MARKS[f"{whose}error"], leads=leads)
    units = sum(row["active_units"]) if "active_units" in row else None
    # The units of the paper's row are asked for: worth a note even where they are the paper's.
    entries += _size(units, theirs.get("units"), MARKS[f"{whose}units"], always=is_papers)
    parameters = 1000 * theirs["parameters"] if "parameters" in theirs else None
    entries += _size(row.get("parameters"), parameters, MARKS[f"{whose}parameters"])
    entries += [Entry(_count(row.get(name))) for name in OPERATIONS]
    flops = theirs.get("flops")
    return [*entries, Entry(f"{flops:g}M", MARKS["flops"]) if flops else Entry()]


def _error(
    value: dict[str, Any] | None, paper: float | None, mark: str, *, leads: bool
) -> list[Entry]:
    if paper is None:
        return [Entry(percent(value), best=leads), Entry()]
    far = value is not None and abs(100 * value["mean"] - paper) > NEAR * paper
    return [Entry(percent(value), mark if far else "", leads), Entry(f"{paper:.3f}")]


def _size(
    ours: float | None, paper: float | None, mark: str, *, always: bool = False
) -> list[Entry]:
    marked = ours is not None and (always or paper not in (None, ours))
    return [Entry(_count(ours), mark if marked else ""), Entry(_count(paper))]


def percent(value: dict[str, Any] | None) -> str:
    """Write '0.58 ± 0.04', without the deviation if there is none; 'missing' for None."""
    if value is None:
        return "missing"
    deviation = "" if value["deviation"] is None else f" ± {100 * value['deviation']:.2f}"
    return f"{100 * value['mean']:.2f}{deviation}"


def _count(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"
