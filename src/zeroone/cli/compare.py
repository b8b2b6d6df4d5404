"""The commands that compare methods: matrix, reproduce, bench."""

import sys
from pathlib import Path
from typing import Any

import click

from zeroone.cli.common import (
    as_widths,
    check_output,
    output_folder,
    repository_needed,
    set_threads,
)
from zeroone.cli.group import Commands, app
from zeroone.cli.options import (
    data_dir_option,
    json_option,
    quiet_option,
    threads_option,
    words,
)
from zeroone.utils.checks import count

TARGETS = (
    "table1",
    "table2",
    "fig-initial",
    "fig-training",
    "fig-noise",
    "fig-activations",
    "fig-prox",
    "parameters",
    "all",
)


@app.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Folder of the records."
)
@click.option("--seeds", type=int, help="Repetitions of every run (default: the file's).")
@click.option("--only-failed", is_flag=True, help="Repeat the runs that failed, and no others.")
@click.option("--jobs", type=int, help="Runs at a time (default: as many as the cores carry).")
@click.option("--threads", default=1, show_default=True, help="CPU threads of a run.")
@data_dir_option
@json_option
@quiet_option
def matrix(spec: Path, out: Path, **options: Any) -> None:
    """Compare methods: train every run of the matrix in the TOML file SPEC, then print tables.

    SPEC names data sets, architectures (f3nn:1000-1000, lenet, convnet, resnet18, ...), methods
    (relu, sigmoid, swish, selu, tanh, ste, ste-sign, ste-bn, bi-real, ccnn, pcnn, bcd, bcd-hardmax,
    bcd-half) and seeds, the number of repetitions; docs/measures.md shows all of its entries.
    Finished runs are not repeated; a run that fails says why in its record and stops no other.
    Exit code 1 if a run failed.

    Example: zeroone matrix paper/matrices/rivals.toml --out runs/rivals
    """
    with repository_needed("matrix"):
        from paper.matrix.command import run_matrix
        from paper.matrix.spec import Spec

    with output_folder(out):
        failed = run_matrix(Spec.read(spec), out, **options)
    if failed:
        sys.exit(1)


@app.command()
@click.argument("target", shell_complete=words(*TARGETS))
@click.option("--seeds", type=int, help="Repetitions of every run (default: each protocol's).")
@click.option("--quick", is_flag=True, help="Use embedded digits in place of all data: minutes.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of records, tables and figures (default: zeroone-reproduce, or -quick).",
)
@click.option("--only", multiple=True, help="Run only this protocol of the target's; repeatable.")
@click.option(
    "--method", "methods", multiple=True, help="Run only this method, such as relu; repeatable."
)
@click.option("--only-failed", is_flag=True, help="Repeat the runs that failed, and no others.")
@click.option(
    "--no-run",
    "run",
    flag_value=False,
    default=True,
    help="Only make tables and figures from the records.",
)
@click.option(
    "--page",
    type=click.Path(path_type=Path),
    help="The page to write, with copies of its figures beside it (default: OUT/results.md).",
)
@click.option("--jobs", type=int, help="Runs at a time (default: as many as the cores carry).")
@click.option("--threads", default=1, show_default=True, help="CPU threads of a run.")
@data_dir_option
@quiet_option
def reproduce(
    target: str,
    out: Path | None,
    quick: bool,
    page: Path | None,
    jobs: int | None,
    threads: int,
    quiet: bool,
    **options: Any,
) -> None:
    """Reproduce a table or figure of the paper: TARGET, or all of them.

    TARGET: table1, table2, fig-initial, fig-training, fig-noise, fig-activations, fig-prox,
    parameters, all. Trains what has no record yet, then writes Markdown and LaTeX tables, PNG and
    SVG figures and a page with a verdict for each of the paper's claims. After an interruption the
    same command resumes. Exit code 1 if a run failed.

    Example: zeroone reproduce all --quick

    Example: zeroone reproduce table1 --only mnist-256 --seeds 3 --out results/reproduce
    """
    from zeroone.utils.storage import check_writable

    with repository_needed("reproduce"):
        from paper.matrix.command import Effort
        from paper.reproduce.command import reproduce as run_target

    if page is not None:
        check_writable(page)
    out = out or Path("zeroone-reproduce-quick" if quick else "zeroone-reproduce")
    with output_folder(out):
        effort = Effort(jobs, threads, quiet)
        failed = run_target(target, out, effort, quick=quick, page=page, **options)
    if failed:
        sys.exit(1)


@app.group(cls=Commands)
def bench() -> None:
    """Measure speed, as ratios in one run."""


@bench.command("train")
@click.option("--hidden", default="1000,1000", show_default=True, help="Widths, such as 300,300.")
@click.option("--samples", default=12_800, show_default=True, help="Random samples an epoch.")
@click.option("--repeats", default=3, show_default=True, help="Epochs that are timed of each.")
@threads_option
@json_option
@quiet_option
def bench_train(
    hidden: str,
    samples: int,
    repeats: int,
    threads: int | None,
    json_path: Path | None,
    quiet: bool,
) -> None:
    """Time an epoch of stochastic BCD, of STE + Adam and of ReLU + Adam, in turns.

    Example: zeroone bench train --hidden 500,500 --threads 1 --json cost.json
    """
    set_threads(threads)
    from zeroone.commands.bench_train import bench_training
    from zeroone.utils.records import write_record

    check_output(json_path)
    count("samples", samples, least=256)
    record = bench_training(as_widths(hidden), samples, count("repeats", repeats), quiet=quiet)
    if json_path is not None:
        write_record(json_path, record)


@bench.command("inference")
@click.option("--hidden", default="2000,2000", show_default=True, help="Widths, such as 300,300.")
@click.option("--repeats", default=7, show_default=True, help="Measurements of each.")
@click.option("--threads", type=int, help="CPU threads (default: one, then all cores).")
@json_option
@quiet_option
def bench_inference(
    hidden: str, repeats: int, threads: int | None, json_path: Path | None, quiet: bool
) -> None:
    """Time predictions of a 0/1 network of integers beside ReLU networks of the same shape.

    At batches of 1, 16, 256 and 4096: latency, throughput, and how many times faster ours is. Also
    the sizes of the model files.

    Example: zeroone bench inference --threads 1 --json speed.json
    """
    import torch

    from zeroone.commands.bench_inference import bench_inference as measure
    from zeroone.utils.records import write_record

    check_output(json_path)
    each = sorted({1, torch.get_num_threads()})
    if threads is not None:
        each = [count("threads", threads, most=1024)]
    record = measure(as_widths(hidden), count("repeats", repeats), each, quiet=quiet)
    if json_path is not None:
        write_record(json_path, record)
