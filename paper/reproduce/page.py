"""The page of results: every table and figure that has records, and a verdict for every claim."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paper.matrix.methods import INITIAL
from paper.reproduce.claims import judge
from paper.reproduce.comparison import PAPERS_ROW
from paper.reproduce.results import RECORDS, Results
from paper.reproduce.targets import TARGETS, Made
from paper.reproduce.text_tables import unlinked
from zeroone.baselines.settings import BaselineSettings
from zeroone.training.epochs import DROPOUT
from zeroone.utils.storage import is_stream, make_folder, replacing

HEADER = """# Results

Made by `{command}`, from the records in
`{records}` only; edit nothing here. {done}
Numbers are means ± standard deviations over n seeds. Of a table that is complete and has several
seeds, the lowest error of a column is in bold, bodies (initial process) aside. Beside ours stands
what the paper prints. A letter refers to a note: why ours differs (errors by more than 2% of the
paper's, sizes at all), or how it came about. Units are those of the hidden layers; multiply-adds
(MACs), additions and 1-bit words are operations of one prediction, [counted so](measures.md).
"""


QUICK = """
**Quick**: embedded digits stand in for all data, tiny networks for all networks. These numbers show
that the way from data to tables works; the printed ones beside them are of the paper's data.
"""


RULE = """A verdict needs all planned cells (else it is **incomplete**) and three seeds. Methods are
compared seed by seed; a difference counts if its 95% confidence interval (Student's t) lies beyond
0, or beyond the margin that we have given the claim. **Confirmed**: every difference counts for it.
**Refuted**: one counts against it, by an interval corrected for how many are looked at.
**Undecided**: neither. A setting with which training diverges refutes at once. The settings of
stochastic BCD were chosen on validation parts of these data; those of the rivals, one rate for all,
are named with each protocol. All methods have the same number of epochs, which decides as well: see
[what longer training changes](measured.md). The processor counts, too (it rounds in its own way),
so that seeds of several are named with theirs; what is compared seed by seed is of one."""
ERRATA = "errata.md"
PAGE = "results.md"


def write_page(
    path: Path,
    made: dict[str, Made],
    results: dict[str, Results],
    out: Path,
    *,
    quick: bool,
    options: str = "",
) -> None:
    """Write the page to ``path``; its figures are in ``out``, and beside a page elsewhere.

    ``options``: those of the command that its reader would have to type as well.
    """
    figures = _beside(
        path, out, [figure for content in made.values() for figure in content.figures]
    )
    command = f"zeroone reproduce all --no-run{options}"
    if path.name != PAGE or path.parent != out:
        command += f" --page {path.as_posix()}"
    records, done = (out / RECORDS).as_posix(), _done(results)
    lines = [HEADER.format(command=command, records=records, done=done)]
    lines += [*([QUICK] if quick else []), *_verdicts(results, quick=quick)]
    for name, content in made.items():
        target = TARGETS[name]
        own = [results[protocol] for protocol in target.protocols]
        lines += [f"## {target.title}", "", target.shows, ""]
        lines += [f"    zeroone reproduce {name}{options}", "", *_provenance(own)]
        lines += [table.markdown() for table in content.tables]
        for figure in content.figures:
            lines += [f"![{target.title}: {figure}]({_from(path, figures / figure)}.png)", ""]
        lines += _lacking(own)
    text = "\n".join(lines).rstrip() + "\n"
    if not (path.absolute().parent / ERRATA).exists():
        text = unlinked(text)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _done(results: dict[str, Results]) -> str:
    """How much of what is planned there is."""
    planned = sum(r.planned for r in results.values())
    lacking = sum(len(r.lacking) for r in results.values())
    if not lacking:
        return f"All {planned} planned cells are recorded (bodies aside)."
    return (
        f"{planned - lacking} of {planned} planned cells are recorded (bodies aside); each section "
        "names what is missing."
    )


def _beside(page: Path, out: Path, figures: Sequence[str]) -> Path:
    """The folder of the page's figures: ``out``, or one with copies of them, named after the page.

    A site is made of one folder, and shows nothing from without.
    """
    site = page.parent.resolve()
    if not figures or is_stream(page) or out.resolve().is_relative_to(site):
        return out
    folder = make_folder(page.with_name(f"{page.stem}-figures"))
    for figure in figures:
        with replacing(folder / f"{figure}.png") as temporary:
            shutil.copyfile(out / f"{figure}.png", temporary)
    return folder


def _from(page: Path, target: Path) -> str:
    return Path(os.path.relpath(target.absolute(), page.absolute().parent)).as_posix()


def _verdicts(results: dict[str, Results], *, quick: bool) -> list[str]:
    lines = ["## What the paper claims, and what our records say", ""]
    if quick:
        return [*lines, "Digits say nothing about claims on other data.", ""]
    lines += ["| claim | verdict | numbers |", "|---|---|---|"]
    lines += [f"| {v.claim} | **{v.verdict}** | {v.evidence} |" for v in judge(results)]
    return [*lines, "", RULE, ""]


def _provenance(results: Sequence[Results]) -> list[str]:
    """What was trained how, and who made which records when."""
    lines = []
    for r in results:
        spec, dates = r.protocol.spec, r.dates
        made = ", made by " + ", ".join(r.commits) if r.commits else ""
        when = "" if dates is None else f" ({' to '.join(dict.fromkeys(dates))})"
        lines.append(
            f"- {r.protocol.title} (`{r.protocol.name}`): {', '.join(spec.architectures)}; "
            f"{_options(r)}. {r.recorded} of {len(r.matrix.cells)} cells, bodies included"
            f"{made}{when}{_where(r)}.{' ' * bool(r.protocol.caveat)}{r.protocol.caveat}"
        )
    return [*lines, ""] if results else lines


def _options(r: Results) -> str:
    """The settings that are not those of everyone, and those that decide what rivals do."""
    spec = r.protocol.spec
    rivals = any(spec.known_methods[method].rival for method in spec.methods)
    shared = {"smoothing": BaselineSettings().smoothing, "input_dropout": DROPOUT} if rivals else {}
    rate = {"learning_rate": BaselineSettings().learning_rate} if rivals else {}
    tables = {"all": spec.train | shared | spec.train, "Adam": rate | spec.rivals, "BCD": spec.bcd}
    if any(cell.method == INITIAL for cell in r.matrix.cells):
        tables["body"] = spec.initial
    if PAPERS_ROW in spec.methods:
        tables[spec.known_methods[PAPERS_ROW].label] = _own(spec.variants[PAPERS_ROW])
    return "; ".join(
        f"{who}: {', '.join(f'{name} = {value}' for name, value in table.items())}"
        for who, table in tables.items()
        if table
    )


def _where(r: Results) -> str:
    """On which processors, if on several; by seed."""
    if len(r.machines) < 2:
        return "".join(f", on {name}" for name in r.machines)
    named = (
        f"{', '.join(map(str, repetitions))} on {name}" for name, repetitions in r.machines.items()
    )
    return f", seeds {'; '.join(named)}"


def _own(variant: dict[str, Any]) -> dict[str, Any]:
    """The settings of a variant, without what names it."""
    return {name: value for name, value in variant.items() if name not in {"method", "label"}}


def _lacking(results: Sequence[Results]) -> list[str]:
    """Which cells have no result, method by method, and why they failed if they did."""
    lines = []
    for r in results:
        missing: dict[tuple[str, str], list[int]] = {}
        for cell in r.lacking:
            missing.setdefault((cell.architecture, cell.method), []).append(cell.repetition)
        if not missing:
            continue
        if r.rows_done:
            named = ", ".join(
                f"{method} on {architecture} ({len(repetitions)})"
                for (architecture, method), repetitions in missing.items()
            )
            lines.append(f"- Missing of {r.protocol.title}: {named}.")
        else:
            lines.append(f"- Missing: all cells of {r.protocol.title} (`{r.protocol.name}`).")
        lines += [
            f"- {cell} failed: {r.matrix.records[cell]['reason']}" for cell in r.matrix.failed
        ]
    return [*lines, ""] if lines else []
