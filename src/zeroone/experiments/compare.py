"""``zeroone matrix``: run what is missing of a matrix, or what failed, then print its tables."""

from dataclasses import fields, replace
from pathlib import Path

from zeroone.bodies import check_image
from zeroone.checks import InputError, count
from zeroone.data.files import load_data
from zeroone.experiments.board import board
from zeroone.experiments.cell import Cell
from zeroone.experiments.console import say
from zeroone.experiments.matrix import Matrix
from zeroone.experiments.spec import Spec
from zeroone.experiments.tables import failures, print_summary, summarise
from zeroone.experiments.workers import fitting_jobs, usable_cores
from zeroone.layers import check_layers
from zeroone.records import new_record, write_record
from zeroone.storage import check_writable


def compare(
    spec: Spec,
    out: Path,
    *,
    seeds: int | None = None,
    only_failed: bool = False,
    jobs: int | None = None,
    threads: int = 1,
    data_dir: Path | None = None,
    json_path: Path | None = None,
    quiet: bool = False,
) -> int:
    """Run a matrix in the folder ``out``; gives the number of cells that have failed."""
    if seeds is not None:
        spec = replace(spec, seeds=seeds)
    if json_path is not None:
        check_writable(json_path)
    count("threads", threads, most=usable_cores())
    at_once = fitting_jobs(None if jobs is None else count("jobs", jobs), threads)
    if jobs is not None and at_once < jobs and not quiet:
        say(f"{jobs} jobs of {threads} threads are more than the cores carry: {at_once} at a time.")
    matrix = Matrix.open(spec.cells(data_dir), out, say)
    todo = matrix.failed if only_failed else matrix.missing
    _check_data(matrix, todo)
    with board(matrix, len(todo), quiet=quiet) as watch:
        matrix.run(todo, jobs=at_once, threads=threads, watch=watch)
    rows = summarise(matrix, spec.known_methods)
    print_summary(rows)
    for sentence in failures(rows):
        say(f"failed: {sentence}")
    if matrix.failed:
        say("The same command with --only-failed runs them again.")
    if json_path is not None:
        settings = {f.name: getattr(spec, f.name) for f in fields(spec)}
        write_record(json_path, new_record("matrix", settings, seed=0) | {"table": rows})
    return len(matrix.failed)


def _check_data(matrix: Matrix, todo: list[Cell]) -> None:
    """Data that are missing, other data than before, images too small: said before anything runs.

    Data that nothing is left to do with may be gone.
    """
    needed = {cell.data for cell in todo}
    for name, cell in {cell.data: cell for cell in matrix.cells}.items():
        try:
            split = load_data(name, data_dir=cell.data_dir, label=cell.label)
        except InputError:
            if name in needed:
                raise
            continue
        matrix.check_data(name, split.digest())
        mine = [cell for cell in todo if cell.data == name]
        for planned in {(cell.architecture, cell.rival): cell for cell in mine}.values():
            if planned.plan.body:
                check_image(planned.plan.body, split.shape)
            check_layers(planned.settings.plans, split.shape)
