"""``zeroone matrix``: run what is missing of a matrix, or what failed, then print its tables."""

from dataclasses import replace
from pathlib import Path

from zeroone.checks import count
from zeroone.data.files import load_data
from zeroone.experiments.board import board
from zeroone.experiments.console import say
from zeroone.experiments.matrix import Matrix
from zeroone.experiments.spec import Spec
from zeroone.experiments.tables import failures, print_summary, summarise
from zeroone.experiments.workers import fitting_jobs
from zeroone.records import new_record, write_record


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
    at_once = fitting_jobs(None if jobs is None else count("jobs", jobs), count("threads", threads))
    if jobs is not None and at_once < jobs and not quiet:
        say(f"{jobs} jobs of {threads} threads are more than the cores carry: {at_once} at a time.")
    for name in spec.data:
        load_data(name, data_dir=data_dir)  # a missing data set is not the fault of its cells
    matrix = Matrix.open(spec.cells(data_dir), out, say)
    todo = matrix.failed if only_failed else matrix.missing
    with board(matrix, len(todo), quiet=quiet) as watch:
        matrix.run(todo, jobs=at_once, threads=threads, watch=watch)
    rows = summarise(matrix, spec.known_methods)
    print_summary(rows)
    for sentence in failures(rows):
        say(f"failed: {sentence}")
    if matrix.failed:
        say("The same command with --only-failed runs them again.")
    if json_path is not None:
        settings = {name: getattr(spec, name) for name in spec.__dataclass_fields__}
        write_record(json_path, new_record("matrix", settings, seed=0) | {"table": rows})
    return len(matrix.failed)
