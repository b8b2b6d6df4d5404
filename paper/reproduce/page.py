"""The page of results: every table and figure that has records, and a verdict for every claim."""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from paper.matrix.methods import PRETRAINING
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
seeds, the lowest error of a column is in bold, backbones aside. Beside ours stands
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
    """Write the page.

    Args:
        path: The file to write.
        made: Tables and figures by target.
        results: All protocols with their records.
        out: The folder of the figures; a page elsewhere gets copies beside it.
        quick: Whether digits stand in for all data.
        options: The options that make this page, for the commands that it shows.

    """
    figures = _figure_folder(path, out, [name for each in made.values() for name in each.figures])
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
        lines += [f"    zeroone reproduce {name}{options}", ""]
        lines += _block(_provenance(r) for r in own)
        lines += [table.markdown() for table in content.tables]
        for figure in content.figures:
            link = os.path.relpath((figures / figure).absolute(), path.absolute().parent)
            lines += [f"![{target.title}: {figure}]({Path(link).as_posix()}.png)", ""]
        lines += _block(line for r in own for line in _lacking(r))
    text = "\n".join(lines).rstrip() + "\n"
    if not (path.absolute().parent / ERRATA).exists():
        text = unlinked(text)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _block(lines: Iterable[str]) -> list[str]:
    """End lines, if there are any, with an empty one."""
    found = list(lines)
    return [*found, ""] if found else []


def _done(results: dict[str, Results]) -> str:
    """Say how many of the planned runs are recorded."""
    planned = sum(r.planned for r in results.values())
    lacking = sum(len(r.lacking) for r in results.values())
    if not lacking:
        return f"All {planned} planned cells are recorded (backbones aside)."
    return (
        f"{planned - lacking} of {planned} planned cells are recorded (backbones aside); each "
        "section names what is missing."
    )


def _figure_folder(page: Path, out: Path, figures: Sequence[str]) -> Path:
    """Return the folder that the page shows figures from, with copies if ``out`` is elsewhere.

    A site is made from one folder and shows nothing from outside it.
    """
    site = page.parent.resolve()
    if not figures or is_stream(page) or out.resolve().is_relative_to(site):
        return out
    folder = make_folder(page.with_name(f"{page.stem}-figures"))
    for figure in figures:
        with replacing(folder / f"{figure}.png") as temporary:
            shutil.copyfile(out / f"{figure}.png", temporary)
    return folder


def _verdicts(results: dict[str, Results], *, quick: bool) -> list[str]:
    lines = ["## What the paper claims, and what our records say", ""]
    if quick:
        return [*lines, "Digits say nothing about claims on other data.", ""]
    lines += ["| claim | verdict | numbers |", "|---|---|---|"]
    lines += [f"| {v.claim} | **{v.verdict}** | {v.evidence} |" for v in judge(results)]
    return [*lines, "", RULE, ""]


def _provenance(r: Results) -> str:
    """Say what was trained with which settings, by which code, when and where."""
    made = ", made by " + ", ".join(r.commits) if r.commits else ""
    when = "" if r.dates is None else f" ({' to '.join(dict.fromkeys(r.dates))})"
    return (
        f"- {r.protocol.title} (`{r.protocol.name}`): {', '.join(r.protocol.spec.architectures)}; "
        f"{_options(r)}. {r.recorded} of {len(r.matrix.runs)} cells, backbones included"
        f"{made}{when}{_where(r)}.{' ' * bool(r.protocol.caveat)}{r.protocol.caveat}"
    )


def _options(r: Results) -> str:
    """List the settings that are not the defaults, and the defaults that decide for baselines."""
    spec = r.protocol.spec
    default, shared, rate = BaselineSettings(), {}, {}
    if any(spec.known_methods[method].baseline for method in spec.methods):
        shared = {"smoothing": default.smoothing, "input_dropout": DROPOUT}
        rate = {"learning_rate": default.learning_rate}
    tables = {"all": spec.train | shared | spec.train}
    tables |= {"Adam": rate | spec.baselines, "BCD": spec.bcd}
    if any(run.method == PRETRAINING for run in r.matrix.runs):
        tables["backbone"] = spec.pretraining
    if PAPERS_ROW in spec.methods:
        own = spec.variants[PAPERS_ROW].items()
        label = spec.known_methods[PAPERS_ROW].label
        tables[label] = {name: value for name, value in own if name not in {"method", "label"}}
    return "; ".join(
        f"{who}: {', '.join(f'{name} = {value}' for name, value in table.items())}"
        for who, table in tables.items()
        if table
    )


def _where(r: Results) -> str:
    """Name the processor, or which seeds ran on which one."""
    if len(r.machines) < 2:
        return "".join(f", on {name}" for name in r.machines)
    seeds = (f"{', '.join(map(str, seeds))} on {name}" for name, seeds in r.machines.items())
    return f", seeds {'; '.join(seeds)}"


def _lacking(r: Results) -> list[str]:
    """Name the runs without a result, method by method, and why they failed if they did."""
    missing = Counter((run.architecture, run.method) for run in r.lacking)
    if not missing:
        return []
    named = ", ".join(f"{method} on {where} ({n})" for (where, method), n in missing.items())
    line = f"- Missing of {r.protocol.title}: {named}."
    if not r.rows_done:
        line = f"- Missing: all cells of {r.protocol.title} (`{r.protocol.name}`)."
    reasons = ((run, r.matrix.records[run]["reason"]) for run in r.matrix.failed)
    return [line, *(f"- {run} failed: {reason}" for run, reason in reasons)]
