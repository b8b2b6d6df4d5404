"""The commands ``zeroone matrix`` and ``zeroone reproduce``; see ``zeroone.cli.options``."""

import sys
from pathlib import Path

from paper.matrix.command import Effort, run_matrix
from paper.matrix.spec import Spec
from paper.reproduce.command import reproduce as reproduce_target
from zeroone.utils.checks import need_extra
from zeroone.utils.storage import check_writable


def matrix(
    spec: Path,
    *,
    out: Path,
    seeds: int | None = None,
    only_failed: bool = False,
    jobs: int | None = None,
    threads: int = 1,
    data_dir: Path | None = None,
    json: Path | None = None,
    quiet: bool = False,
) -> None:
    """Compare methods: train every run of the matrix in the TOML file SPEC, and print tables.

    SPEC names data sets, architectures (f3nn:1000-1000, lenet, convnet, resnet18, ...), methods
    (relu, sigmoid, swish, selu, tanh, ste, ste-sign, ste-bn, bi-real, ccnn, pcnn, bcd, bcd-hardmax,
    bcd-half) and the number of seeds; docs/measures.md shows all of its entries. Finished runs of
    the folder are not repeated; a run that fails says why in its record and stops no other. The
    exit code is 1 if a run failed.

    Example: zeroone matrix paper/matrices/rivals.toml --out runs/rivals

    Args:
        out: folder of the records.
        seeds: repetitions of every run (default: the file's).
        only_failed: repeat the runs that failed, and no others.
        jobs: runs at a time (default: as many as the cores carry).
        threads: CPU threads of a run.
    """
    failed = run_matrix(
        Spec.read(spec),
        out,
        seeds=seeds,
        only_failed=only_failed,
        jobs=jobs,
        threads=threads,
        data_dir=data_dir,
        json_path=json,
        quiet=quiet,
    )
    if failed:
        sys.exit(1)


def reproduce(
    target: str,
    *,
    seeds: int | None = None,
    quick: bool = False,
    out: Path | None = None,
    only: tuple[str, ...] = (),
    method: tuple[str, ...] = (),
    only_failed: bool = False,
    no_run: bool = False,
    page: Path | None = None,
    jobs: int | None = None,
    threads: int = 1,
    data_dir: Path | None = None,
    quiet: bool = False,
) -> None:
    """Reproduce a table or figure of the paper: TARGET, or all of them.

    TARGET: table1, table2, fig-initial, fig-training, fig-noise, fig-activations, fig-prox,
    parameters, all. The command trains what has no record yet, then writes Markdown and LaTeX
    tables, PNG and SVG figures and a page with a verdict for each of the paper's claims. After an
    interruption, the same command continues. The exit code is 1 if a run failed.

    Example: zeroone reproduce all --quick

    Example: zeroone reproduce table1 --only mnist-256 --seeds 3 --out results/reproduce

    Args:
        seeds: repetitions of every run (default: each protocol's).
        quick: use the embedded digits instead of all data, which takes minutes.
        out: folder of records, tables and figures (default: zeroone-reproduce, or -quick).
        only: run only this protocol of the target; repeatable.
        method: run only this method, such as relu; repeatable.
        only_failed: repeat the runs that failed, and no others.
        no_run: train nothing, only make tables and figures from the records.
        page: file of the page, with copies of its figures beside it (default: OUT/results.md).
        jobs: runs at a time (default: as many as the cores carry).
        threads: CPU threads of a run.
    """
    need_extra("plots", "matplotlib")  # before hours of training
    if page is not None:
        check_writable(page)
    out = out or Path("zeroone-reproduce-quick" if quick else "zeroone-reproduce")
    failed = reproduce_target(
        target,
        out,
        Effort(jobs, threads, quiet),
        quick=quick,
        seeds=seeds,
        only=only,
        methods=method,
        only_failed=only_failed,
        run=not no_run,
        page=page,
        data_dir=data_dir,
    )
    if failed:
        sys.exit(1)
