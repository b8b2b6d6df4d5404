"""``zeroone reproduce``: execute missing runs, then write tables, figures and the page."""

from collections.abc import Sequence
from pathlib import Path

from paper.matrix.command import Effort, check_data
from paper.reproduce.page import PAGE, write_page
from paper.reproduce.protocols import Protocol
from paper.reproduce.results import Results, open_results
from paper.reproduce.targets import TARGETS, Made, make
from paper.reproduce.text_tables import unlinked
from zeroone.training.text_progress import say
from zeroone.utils.checks import InputError, one_of
from zeroone.utils.storage import make_folder

ALL = "all"


def reproduce(
    target: str,
    out: Path,
    effort: Effort,
    *,
    quick: bool = False,
    seeds: int | None = None,
    only: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    only_failed: bool = False,
    run: bool = True,
    page: Path | None = None,
    data_dir: Path | None = None,
) -> int:
    """Reproduce a target, or all of them, and return the number of runs that failed.

    ``only`` and ``methods`` choose what to run, everything if empty. Without ``run`` nothing is
    trained. All records in the folder ``out`` are used, whatever is run.
    """
    names = list(TARGETS) if one_of("target", target, [*TARGETS, ALL]) == ALL else [target]
    needed = list(dict.fromkeys(p for name in names for p in TARGETS[name].protocols))
    if only and not needed:
        raise InputError(f"{target} trains nothing: it has no protocols to choose from.")
    for name in only:
        one_of("protocol", name, needed)
    everything = dict.fromkeys(p for each in TARGETS.values() for p in each.protocols)
    results: dict[str, Results] = {}
    for name in everything:
        protocol = Protocol.read(name, quick=quick, seeds=seeds)
        results[name] = open_results(protocol, out, say, data_dir, strict=name in needed)
    chosen = [results[name] for name in (only or needed)]
    known = sorted({method for r in chosen for method in r.protocol.spec.methods})
    for name in methods:
        one_of("method", name, known)
    if run:
        _run(chosen, effort, methods or known, only_failed=only_failed)
    make_folder(out)
    # The page also shows what earlier commands have recorded here.
    recorded = {p for p, r in results.items() if r.rows_done}
    shown = [n for n, each in TARGETS.items() if n in names or recorded & set(each.protocols)]
    made = {n: make(n, [results[p] for p in TARGETS[n].protocols], out, data_dir) for n in shown}
    for name in names:
        _print(name, made[name], out)
    page = page or out / PAGE
    options = " --quick" * quick + (f" --seeds {seeds}" if seeds else "") + f" --out {out}"
    write_page(page, made, results, out, quick=quick, options=options)
    print(f"page: {page}")
    return sum(len(results[name].matrix.failed) for name in needed)


def _print(name: str, made: Made, out: Path) -> None:
    for table in made.tables:
        print(f"\n{unlinked(table.markdown())}", end="")
    for figure in made.figures:
        print(f"{name}: {out / figure}.png, .svg")


def _run(
    results: list[Results], effort: Effort, methods: Sequence[str], *, only_failed: bool
) -> None:
    """Execute the runs of these methods, and of their backbones, once all data are checked."""
    plans = []
    for r in results:
        todo = r.matrix.failed if only_failed else r.matrix.missing
        wanted = {run for run in r.matrix.runs if run.method in methods}
        wanted |= {run.backbone_run for run in wanted if run.backbone_run is not None}
        plans.append((r, [run for run in todo if run in wanted]))
    for r, todo in plans:
        check_data(r.matrix, todo)
    for r, todo in plans:
        if todo:
            say(f"{r.protocol.title}: {len(todo)} of {len(r.matrix.runs)} runs to do")
            effort.run(r.matrix, todo)
        for run in r.matrix.failed:
            say(f"failed: {run}: {r.matrix.records[run]['reason']}")
