"""The paper's tables with our numbers beside the printed ones."""

from typing import Any

from paper.matrix.methods import INITIAL
from paper.printed_numbers import printed
from paper.reproduce.results import Results
from paper.reproduce.text_tables import Entry, TextTable

PAPERS_ROW = "bcd-95"  # the method that stands for the paper's row "0/1(BCD)"
ERRORS = {
    "train_error": "train error (%)",
    "test_error": "test error (%)",
    "test_top5_error": "top-5 error (%)",
}
NEAR = 0.02  # relative: a difference of an error that is not worth a note
# The letters of notes, by what they explain; ``papers_`` those of the paper's row.
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
    """One table an architecture: every method, the printed number beside each of ours."""
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
    headings += ["units", "paper", "parameters", "paper"]
    headings += ["MACs", "additions", "1-bit words", "paper's FLOPs"]
    if not any(printed_rows):
        ours = [k for k, heading in enumerate(headings) if not heading.startswith("paper")]
        headings, lines = [headings[k] for k in ours], [[line[k] for k in ours] for line in lines]
    used = {entry.mark for line in lines for entry in line}
    notes = {mark: protocol.differs[what] for what, mark in MARKS.items() if mark in used}
    return TextTable(f"{protocol.title} ({architecture})", headings, lines, notes)


def errors_in_noise(results: Results) -> list[TextTable]:
    """One table: the test error of every method at every level of noise."""
    rows = [row for row in results.rows if "noise" in row]
    if not rows:
        return []
    levels = rows[0]["noise"]["levels"]
    means = [[entry["mean"] for entry in row["noise"]["errors"]] for row in rows]
    complete = not results.lacking
    methods = [k for k, row in enumerate(rows) if row["method"] != INITIAL]
    best = [min(means[k][j] for k in methods) if complete else None for j in range(len(levels))]
    lines = []
    for k, row in enumerate(rows):
        errors = [
            Entry(percent(error), best=k in methods and error["mean"] == best[j])
            for j, error in enumerate(row["noise"]["errors"])
        ]
        lines.append([Entry(row["label"]), Entry(_n(row)), *errors])
    title = f"{results.protocol.title}: test error (%) by the deviation of the noise"
    return [TextTable(title, ["method", "n", *(f"{level:g}" for level in levels)], lines)]


def errors_by_initial_epochs(results: Results) -> list[TextTable]:
    """One table: the test error of every method after each number of epochs below it."""
    spec, lines = results.protocol.spec, []
    rows = {method: results.by_initial_epochs(method) for method in spec.methods}
    shown = {epochs for of_method in rows.values() for epochs in of_method}
    best = {
        epochs: min(of_method[epochs]["test_error"]["mean"] for of_method in rows.values())
        for epochs in (shown if not results.lacking else ())
    }
    for of_method in rows.values():
        errors = [of_method[epochs].get("test_error") for epochs in sorted(shown)]
        entries = [
            Entry(percent(error), best=error is not None and error["mean"] == best.get(epochs))
            for epochs, error in zip(sorted(shown), errors, strict=True)
        ]
        counts = dict.fromkeys(_n(of_method[epochs]) for epochs in sorted(shown))
        label = next(iter(of_method.values()))["label"]
        lines.append([Entry(label), Entry(", ".join(counts)), *entries])
    title = f"{results.protocol.title}: test error (%) by epochs of the initial process"
    return [TextTable(title, ["method", "n", *map(str, sorted(shown))], lines)] if lines else []


def _n(row: dict[str, Any]) -> str:
    return f"{row['n']}" if row["n"] == row["planned"] else f"{row['n']} of {row['planned']}"


def _printed(results: Results, method: str) -> dict[str, float]:
    """What the paper prints of a method: of the row that stands for it."""
    if results.protocol.paper is None or method == "bcd":
        return {}
    return printed(*results.protocol.paper, "bcd" if method == PAPERS_ROW else method)


def _best(rows: list[dict[str, Any]], errors: list[str]) -> dict[str, float]:
    """The lowest mean of each error, once all cells are there to compare: of one seed, none is."""
    methods = [row for row in rows if row["method"] != INITIAL]
    if any(row["n"] < max(2, row["planned"]) for row in methods):
        return {}
    means = {name: [row[name]["mean"] for row in methods if name in row] for name in errors}
    return {name: min(values) for name, values in means.items() if values}


def _line(
    row: dict[str, Any], theirs: dict[str, float], errors: list[str], best: dict[str, float]
) -> list[Entry]:
    """A method, every measure with the printed one after it."""
    whose = "papers_" * (row["method"] == PAPERS_ROW)
    entries = [Entry(row["label"]), Entry(_n(row))]
    for name in errors:
        leads = row["method"] != INITIAL and name in row and row[name]["mean"] == best.get(name)
        entries += _error(row.get(name), theirs.get(name), MARKS[f"{whose}error"], leads=leads)
    units = sum(row["active_units"]) if "active_units" in row else None
    asked = bool(whose) and units is not None  # worth a note also where it is the paper's number
    entries += _size(units, theirs.get("units"), MARKS[f"{whose}units"], marked=asked)
    thousands = theirs.get("parameters")
    in_full = None if thousands is None else 1000 * thousands
    entries += _size(row.get("parameters"), in_full, MARKS[f"{whose}parameters"])
    entries += [Entry(_count(row.get(name))) for name in ("macs", "additions", "word_operations")]
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
    ours: float | None, paper: float | None, mark: str, *, marked: bool = False
) -> list[Entry]:
    differs = None not in (ours, paper) and ours != paper
    return [Entry(_count(ours), mark if differs or marked else ""), Entry(_count(paper))]


def percent(value: dict[str, Any] | None) -> str:
    """'0.58 ± 0.04', the spread only if there is one; 'missing' for nothing."""
    if value is None:
        return "missing"
    spread = "" if value["deviation"] is None else f" ± {100 * value['deviation']:.2f}"
    return f"{100 * value['mean']:.2f}{spread}"


def _count(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"
