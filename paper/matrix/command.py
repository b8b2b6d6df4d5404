"""``zeroone matrix``: execute the runs that are missing or failed, then print tables."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from paper.matrix.live_table import live_table
from paper.matrix.matrix import Matrix
from paper.matrix.run import Run, digest_of
from paper.matrix.spec import Spec
from paper.matrix.tables import failures, print_summary, summarise
from paper.matrix.workers import fitting_jobs, usable_cores
from zeroone.data.load import load_data
from zeroone.nn import layers
from zeroone.nn.backbones import check_image
from zeroone.nn.operators import Shape
from zeroone.training.text_progress import say
from zeroone.utils.checks import InputError, count
from zeroone.utils.records import new_record, write_record
from zeroone.utils.storage import check_writable


@dataclass(frozen=True)
class Effort:
    """How many runs are executed at a time, with how many threads each, and whether quietly."""

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
        """The number of runs at a time: as many as asked for, or as the cores carry."""
        return fitting_jobs(self.jobs, self.threads)

    def run(self, matrix: Matrix, todo: list[Run]) -> None:
        """Execute these runs of a matrix and show their progress."""
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
    """Run a matrix in the folder ``out`` and return the number of failed runs."""
    if seeds is not None:
        spec = replace(spec, seeds=seeds)
    if json_path is not None:
        check_writable(json_path)
    effort = Effort(jobs, threads, quiet)
    matrix = Matrix.open(spec.runs(data_dir), out, say)
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
        write_record(json_path, new_record("matrix", asdict(spec), seed=0) | {"table": rows})
    return len(matrix.failed)


def check_data(matrix: Matrix, todo: list[Run]) -> None:
    """Refuse data that are missing, have changed, or do not fit, before anything is trained.

    Data that no run in ``todo`` needs may be missing.
    """
    needed = {run.data for run in todo}
    for name, run in {run.data: run for run in matrix.runs}.items():
        try:
            split = load_data(name, data_dir=run.data_dir, label=run.label)
        except InputError:
            if name in needed:
                raise
            continue
        matrix.check_data(name, digest_of(split))
        n_samples = len((split.test or (split.X, split.y))[1])
        mine = [run for run in todo if run.data == name]
        for planned in {(r.architecture, r.baseline, r.images): r for r in mine}.values():
            if max(planned.images, default=-1) >= n_samples:
                raise InputError(
                    f"there is no test sample {max(planned.images)} to look at, {name} has "
                    f"{n_samples}."
                )
            if planned.plan.backbone:
                check_image(planned.plan.backbone, split.shape)
            _check_layers(planned.settings.plans, split.shape)


def _check_layers(plans: list[layers.LayerPlan], image: Shape | None) -> None:
    """Refuse convolutions that samples of this shape do not fit, before anything else is done."""
    if plans and plans[0].kernel:
        with torch.device("meta"):  # which holds no numbers
            shape = layers.check_image(image)
            layers.build_layers(plans, shape, lambda n, m, bias: torch.empty(n, m + bias))
