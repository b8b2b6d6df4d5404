"""``zeroone reproduce``: run what is missing, then write tables, figures and the page."""

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
    """Give the number of cells that failed.

    ``only`` and ``methods``: what to run, all if empty; the others' records are used as they are.
    Without ``run`` all are.
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
    # The page shows all there is: also what earlier commands have left here.
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
    """All data are looked at before the first cell runs. Bodies are those of the methods' cells."""
    plans = []
    for r in results:
        todo = r.matrix.failed if only_failed else r.matrix.missing
        wanted = {cell for cell in r.matrix.cells if cell.method in methods}
        wanted |= {cell.below for cell in wanted if cell.below is not None}
        plans.append((r, [cell for cell in todo if cell in wanted]))
    for r, todo in plans:
        check_data(r.matrix, todo)
    for r, todo in plans:
        if todo:
            say(f"{r.protocol.title}: {len(todo)} of {len(r.matrix.cells)} cells to run")
            effort.run(r.matrix, todo)
        for cell in r.matrix.failed:
            say(f"failed: {cell}: {r.matrix.records[cell]['reason']}")
