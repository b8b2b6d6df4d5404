"""The commands that train one network, or the few of the demo."""

from pathlib import Path
from typing import Any

import click

from zeroone.cli.common import check_output, output_folder, set_threads
from zeroone.cli.group import app
from zeroone.cli.options import (
    data_dir_option,
    data_option,
    initial_options,
    label_option,
    run_options,
    solver_options,
    words,
)


@app.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("zeroone-demo"),
    show_default=True,
    help="Folder for the figure, records and models.",
)
@run_options
def demo(out: Path, seed: int, threads: int | None, quiet: bool) -> None:
    """Train on embedded handwritten digits, print a table, write a figure and a page.

    Example: zeroone demo --out zeroone-demo
    """
    set_threads(1 if threads is None else threads)  # its matrices are too small for more
    from zeroone.commands.demo import run_demo
    from zeroone.commands.report import write_report

    with output_folder(out):
        folders = run_demo(out, seed=seed, quiet=quiet)
        page = write_report(list(folders.values()), out / "report.html")
    print(f"all of it on one page:   {page}")
    print("Next, try your own data, or more of them:")
    print("  zeroone train --data mine.csv --label kind --validation 0.1 --out runs/mine")
    print(
        "  zeroone data get mnist && zeroone train --data mnist --hidden 1000,1000 --out runs/mnist"
    )
    print("  zeroone reproduce all --quick")


@app.command()
@data_option
@data_dir_option
@label_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder for model.safetensors and record.json.",
)
@click.option("--resume", is_flag=True, help="Go on with the unfinished run in --out.")
@click.option(
    "--hidden",
    help="Hidden layers: widths, or conv5x5:32:max2 and the like; skip2 adds a shortcut around the "
    "layer below (default: 256,256).",
)
@click.option(
    "--solver",
    shell_complete=words("stochastic", "exact"),
    help="stochastic (default) or exact, Algorithm 3 of the paper.",
)
@click.option(
    "--preset",
    shell_complete=words("paper"),
    help="paper: the printed settings; other options still count.",
)
@click.option(
    "--head", shell_complete=words("softmax", "hardmax"), help="softmax (default) or hardmax."
)
@click.option(
    "--scaling",
    shell_complete=words("auto", "common", "feature"),
    help="Of the inputs: auto (default), common or feature.",
)
@click.option("--validation", type=float, help="Share of the training part to hold out.")
@click.option("--dtype", default="float32", show_default=True, help="float32 or float64.")
@click.option("--device", help="Where batches are computed: cpu (default), cuda, cuda:1, ...")
@click.option("--csv", "csv_path", type=click.Path(path_type=Path), help="A line an epoch, here.")
@click.option(
    "--tensorboard", type=click.Path(path_type=Path), help="Folder for TensorBoard, if installed."
)
@click.option(
    "--half-sums", is_flag=True, help="Under torchrun: send sums as bfloat16, half the traffic."
)
@initial_options
@solver_options
@run_options
def train(
    data: str,
    data_dir: Path | None,
    label: str | None,
    out: Path,
    resume: bool,
    hidden: str | None,
    preset: str | None,
    csv_path: Path | None,
    tensorboard: Path | None,
    threads: int | None,
    quiet: bool,
    half_sums: bool,
    **options: Any,
) -> None:
    """Train a network and write it with the record of the run.

    Example: zeroone train --data digits --hidden 300,300 --out runs/digits

    Example: zeroone train --data mnist --initial-epochs 5 --hidden 2000,2000 --out runs/features

    Example: torchrun --nproc-per-node 4 -m zeroone train --data big --threads 1 --out runs/big

    After an interruption, the same command with --resume goes on where it stopped.
    """
    set_threads(threads)
    from zeroone.commands.train import train_one
    from zeroone.training import Callback, CSVLogger, TensorBoardLogger

    loggers: list[Callback] = []
    if csv_path is not None:
        if csv_path.parent != out:  # which will be made
            check_output(csv_path, data)
        loggers.append(CSVLogger(csv_path))
    if tensorboard is not None:
        loggers.append(TensorBoardLogger(tensorboard))
    given = {name: value for name, value in options.items() if value is not None}
    if hidden is not None:
        given["hidden"] = tuple(hidden.split(","))
    with output_folder(out):
        train_one(
            data,
            out,
            given,
            preset=preset,
            data_dir=data_dir,
            label=label,
            resume=resume,
            quiet=quiet,
            loggers=loggers,
            half_sums=half_sums,
        )
