"""``zeroone reproduce``: run what is missing, then write tables, figures and the page."""

from pathlib import Path

from zeroone.checks import one_of
from zeroone.experiments.compare import Effort, check_data
from zeroone.experiments.console import say
from zeroone.reproduce.page import write_page
from zeroone.reproduce.protocols import Protocol
from zeroone.reproduce.results import Results, open_results
from zeroone.reproduce.targets import TARGETS, make
from zeroone.storage import make_folder

ALL = "all"
PAGE = "results.md"


def reproduce(
    target: str,
    out: Path,
    effort: Effort,
    *,
    quick: bool = False,
    seeds: int | None = None,
    only: tuple[str, ...] = (),
    only_failed: bool = False,
    run: bool = True,
    page: Path | None = None,
    data_dir: Path | None = None,
) -> int:
    """Give the number of cells that failed.

    ``only``: protocols to run; the others' records are used as they are. Without ``run`` all are.
    """
    names = list(TARGETS) if one_of("target", target, [*TARGETS, ALL]) == ALL else [target]
    needed = list(dict.fromkeys(p for name in names for p in TARGETS[name].protocols))
    for name in only:
        one_of("protocol", name, needed)
    results: dict[str, Results] = {}
    for name in needed:
        protocol = Protocol.read(name, quick=quick, seeds=seeds)
        results[name] = open_results(protocol, out / "records" / name, say, data_dir)
    if run:
        _run([results[name] for name in (only or needed)], effort, only_failed=only_failed)
    make_folder(out)
    made = {
        name: make(name, [results[p] for p in TARGETS[name].protocols], out, data_dir)
        for name in names
    }
    for name, content in made.items():
        for sheet in content.sheets:
            print(f"\n{sheet.markdown()}", end="")
        for figure in content.figures:
            print(f"{name}: {out / figure}.png, .svg")
    page = page or out / PAGE
    write_page(page, made, results, out, quick=quick)
    print(f"page: {page}")
    return sum(len(r.matrix.failed) for r in results.values())


def _run(results: list[Results], effort: Effort, *, only_failed: bool) -> None:
    """All data are looked at before the first cell runs."""
    plans = [(r, r.matrix.failed if only_failed else r.matrix.missing) for r in results]
    for r, todo in plans:
        check_data(r.matrix, todo)
    for r, todo in plans:
        if todo:
            say(f"{r.protocol.title}: {len(todo)} of {len(r.matrix.cells)} cells to run")
            effort.run(r.matrix, todo)
        for cell in r.matrix.failed:
            say(f"failed: {cell}: {r.matrix.records[cell]['reason']}")
