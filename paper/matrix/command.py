"""``zeroone matrix``: run what is missing of a matrix, or what failed, then print its tables."""

from dataclasses import dataclass, fields, replace
from pathlib import Path

from paper.matrix.live_table import live_table
from paper.matrix.matrix import Matrix
from paper.matrix.run import Cell
from paper.matrix.spec import Spec
from paper.matrix.tables import failures, print_summary, summarise
from paper.matrix.workers import fitting_jobs, usable_cores
from zeroone.data.load import load_data
from zeroone.nn.backbones import check_image
from zeroone.nn.layers import check_layers
from zeroone.training.text_progress import say
from zeroone.utils.checks import InputError, count
from zeroone.utils.records import new_record, write_record
from zeroone.utils.storage import check_writable


@dataclass(frozen=True)
class Effort:
    """How cells are run: so many at a time, of so many threads each; quiet or not."""

    jobs: int | None = None
    threads: int = 1
    quiet: bool = False

    def __post_init__(self) -> None:
        count("threads", self.threads, most=usable_cores())
        if self.jobs is not None:
            count("jobs", self.jobs)
            if self.at_once < self.jobs and not self.quiet:
                say(
                    f"{self.jobs} jobs of {self.threads} threads are more than the cores carry: "
                    f"{self.at_once} at a time."
                )

    @property
    def at_once(self) -> int:
        """As many as were asked for, or as the cores carry."""
        return fitting_jobs(self.jobs, self.threads)

    def run(self, matrix: Matrix, todo: list[Cell]) -> None:
        """Run these cells of a matrix and show how it goes."""
        with live_table(matrix, len(todo), quiet=self.quiet) as watch:
            matrix.run(todo, jobs=self.at_once, threads=self.threads, watch=watch)


def run_matrix(
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
    effort = Effort(jobs, threads, quiet)
    matrix = Matrix.open(spec.cells(data_dir), out, say)
    todo = matrix.failed if only_failed else matrix.missing
    check_data(matrix, todo)
    effort.run(matrix, todo)
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


def check_data(matrix: Matrix, todo: list[Cell]) -> None:
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
        _check_images(mine, len((split.test or (split.X, split.y))[1]))
        for planned in {(cell.architecture, cell.rival): cell for cell in mine}.values():
            if planned.plan.body:
                check_image(planned.plan.body, split.shape)
            check_layers(planned.settings.plans, split.shape)


def _check_images(cells: list[Cell], n_samples: int) -> None:
    for cell in cells:
        if cell.images and max(cell.images) >= n_samples:
            raise InputError(
                f"there is no test sample {max(cell.images)} to look at, {cell.data} has "
                f"{n_samples}."
            )
