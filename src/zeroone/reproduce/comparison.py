"""The paper's tables with our numbers beside the printed ones."""

from typing import Any

from zeroone.experiments.methods import INITIAL
from zeroone.experiments.paper import printed
from zeroone.reproduce.results import Results
from zeroone.reproduce.sheets import Entry, Sheet

PAPERS_ROW = "bcd-95"  # the method that stands for the paper's row "0/1(BCD)"
ERRORS = {
    "train_error": "train error (%)",
    "test_error": "test error (%)",
    "test_top5_error": "top-5 (%)",
}
NEAR = 0.02  # relative: a difference of an error that is not worth a note
MARKS = {"error": "a", "bcd": "b", "units": "c", "parameters": "d", "flops": "e"}


def compare_with_paper(results: Results) -> list[Sheet]:
    """One sheet an architecture: every method, the printed number beside each of ours."""
    architectures = dict.fromkeys(row["architecture"] for row in results.rows)
    return [_sheet(results, name) for name in architectures]


def _sheet(results: Results, architecture: str) -> Sheet:
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
    headings += ["units", "paper", "parameters", "paper"]
    headings += ["MACs", "additions", "1-bit words", "paper's FLOPs"]
    if not any(printed_rows):
        ours = [k for k, heading in enumerate(headings) if not heading.startswith("paper")]
        headings, lines = [headings[k] for k in ours], [[line[k] for k in ours] for line in lines]
    used = {entry.mark for line in lines for entry in line}
    notes = {mark: protocol.differs[what] for what, mark in MARKS.items() if mark in used}
    return Sheet(f"{protocol.title} ({architecture})", headings, lines, notes)


def _printed(results: Results, method: str) -> dict[str, float]:
    """What the paper prints of a method: of the row that stands for it."""
    if results.protocol.paper is None or method == "bcd":
        return {}
    return printed(*results.protocol.paper, "bcd" if method == PAPERS_ROW else method)


def _best(rows: list[dict[str, Any]], errors: list[str]) -> dict[str, float]:
    """The lowest mean of each error, once all cells are there to compare."""
    methods = [row for row in rows if row["method"] != INITIAL]
    if any(row["n"] < row["planned"] for row in methods):
        return {}
    means = {name: [row[name]["mean"] for row in methods if name in row] for name in errors}
    return {name: min(values) for name, values in means.items() if values}


def _line(
    row: dict[str, Any], theirs: dict[str, float], errors: list[str], best: dict[str, float]
) -> list[Entry]:
    """A method, every measure with the printed one after it."""
    n = f"{row['n']}" if row["n"] == row["planned"] else f"{row['n']} of {row['planned']}"
    entries = [Entry(row["label"]), Entry(n)]
    for name in errors:
        leads = row["method"] != INITIAL and name in row and row[name]["mean"] == best.get(name)
        mark = MARKS["bcd" if row["method"] == PAPERS_ROW else "error"]
        entries += _error(row.get(name), theirs.get(name), mark, leads=leads)
    units = sum(row["active_units"]) if "active_units" in row else None
    entries += _size("units", units, theirs.get("units"))
    thousands = theirs.get("parameters")
    in_full = None if thousands is None else 1000 * thousands
    entries += _size("parameters", row.get("parameters"), in_full)
    entries += [Entry(_count(row.get(name))) for name in ("macs", "additions", "word_operations")]
    flops = theirs.get("flops")
    return [*entries, Entry(f"{flops:g}M", MARKS["flops"]) if flops else Entry()]


def _error(
    value: dict[str, Any] | None, paper: float | None, mark: str, *, leads: bool
) -> list[Entry]:
    if paper is None:
        return [Entry(percent(value), best=leads), Entry()]
    far = value is not None and abs(100 * value["mean"] - paper) > NEAR * paper
    return [Entry(percent(value), mark if far else "", leads), Entry(f"{paper:g}")]


def _size(what: str, ours: float | None, paper: float | None) -> list[Entry]:
    differs = None not in (ours, paper) and ours != paper
    return [Entry(_count(ours), MARKS[what] if differs else ""), Entry(_count(paper))]


def percent(value: dict[str, Any] | None) -> str:
    """'0.58 ± 0.04', the spread only if there is one; 'missing' for nothing."""
    if value is None:
        return "missing"
    spread = "" if value["deviation"] is None else f" ± {100 * value['deviation']:.2f}"
    return f"{100 * value['mean']:.2f}{spread}"


def _count(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"
