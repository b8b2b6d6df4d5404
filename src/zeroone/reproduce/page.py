"""The page of results: every table and figure that has records, and a verdict for every claim."""

import os
from collections.abc import Sequence
from pathlib import Path

from zeroone.reproduce.claims import judge
from zeroone.reproduce.results import Results
from zeroone.reproduce.targets import TARGETS, Made
from zeroone.storage import replacing

HEADER = """# Results

Made by `zeroone reproduce`, from the records in `{records}` only; edit nothing here. Numbers are
means ± standard deviations over n seeds; the test sets were used for nothing but these numbers. The
lowest error of a column is in bold. Beside ours stands what the paper prints.
"""


QUICK = """
**Quick**: embedded digits stand in for all data, tiny networks for all networks. These numbers show
that the way from data to tables works; the printed ones beside them are of the paper's data.
"""


def write_page(
    path: Path, made: dict[str, Made], results: dict[str, Results], out: Path, *, quick: bool
) -> None:
    """Write the page to ``path``; its figures are in ``out``."""
    lines = [HEADER.format(records=_from(path, out / "records"))]
    lines += [*([QUICK] if quick else []), *_verdicts(results)]
    for name, content in made.items():
        target = TARGETS[name]
        own = [results[protocol] for protocol in target.protocols]
        lines += [f"## {target.title}", "", target.shows, "", *_provenance(name, own, quick=quick)]
        lines += [sheet.markdown() for sheet in content.sheets]
        for figure in content.figures:
            lines += [f"![{figure}]({_from(path, out / figure)}.png)", ""]
        lines += _lacking(own)
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def _from(page: Path, target: Path) -> str:
    return Path(os.path.relpath(target.absolute(), page.absolute().parent)).as_posix()


def _verdicts(results: dict[str, Results]) -> list[str]:
    lines = ["## What the paper claims, and what our records say", ""]
    lines += ["| claim | verdict | numbers |", "|---|---|---|"]
    lines += [f"| {v.claim} | **{v.verdict}** | {v.evidence} |" for v in judge(results)]
    return [*lines, ""]


def _provenance(name: str, results: Sequence[Results], *, quick: bool) -> list[str]:
    """The command, and who made which records when."""
    lines = [f"    zeroone reproduce {name}{' --quick' if quick else ''}", ""]
    for r in results:
        done = len(r.matrix.records)
        dates = r.dates
        when = "" if dates is None else f", {dates[0]} to {dates[1]}"
        commits = ", ".join(r.commits) or "no commit"
        cells = f"{done} of {len(r.matrix.cells)} cells"
        lines.append(f"- {r.protocol.title} (`{r.protocol.name}`): {cells}, {commits}{when}")
    return [*lines, ""] if results else lines


def _lacking(results: Sequence[Results]) -> list[str]:
    """Which cells have no result, method by method."""
    lines = []
    for r in results:
        missing: dict[tuple[str, str], list[int]] = {}
        for cell in r.lacking:
            missing.setdefault((cell.architecture, cell.method), []).append(cell.repetition)
        if not missing:
            continue
        if not any(row["n"] for row in r.rows):
            lines.append(f"Missing: all cells of {r.protocol.title}.")
            continue
        named = ", ".join(
            f"{method} on {architecture} ({len(repetitions)})"
            for (architecture, method), repetitions in missing.items()
        )
        lines.append(f"Missing of {r.protocol.title}: {named}.")
    return [*lines, ""] if lines else []
