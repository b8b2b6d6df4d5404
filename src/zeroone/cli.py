"""The command line: argument parsing only. Wrong input ends with one sentence and exit code 2."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from zeroone.checks import InputError, count
from zeroone.version import __version__

Command = Callable[..., None]

data_option = click.option(
    "--data", required=True, help="digits, breast-cancer, or a .npz file with arrays X and y."
)
model_argument = click.argument("model", type=click.Path(path_type=Path))


def run_options(command: Command) -> Command:
    """The options of every command that trains."""
    for option in (
        click.option("--quiet", is_flag=True, help="No progress."),
        click.option("--threads", type=int, help="CPU threads (default: all cores)."),
        click.option("--seed", default=0, show_default=True, help="Seed of the random start."),
    ):
        command = option(command)
    return command


def solver_options(command: Command) -> Command:
    """The solver's numbers; None leaves the preset's or the default value."""
    for name, kind, text in (
        ("max-iter", int, "Sweeps over all blocks (the paper's K)."),
        ("pgm-steps", int, "Steps of each W block (the paper's L)."),
        ("beta", float, "Size of a W step (default: from the Lipschitz constant)."),
        ("pi", float, "Weight of V = step(U)."),
        ("tau", float, "Weight of U = W V."),
        ("gamma", float, "Weight of the ridge term."),
        ("lam", float, "Price of a unit; 0 prunes nothing."),
        ("margin", float, "Lead by which a class must win to count as right."),
    ):
        command = click.option(f"--{name}", type=kind, help=text)(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def app() -> None:
    """Neural networks with 0/1 activations, trained by block coordinate descent."""


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
    """Train on embedded handwritten digits, print a table, write a figure.

    Example: zeroone demo --out zeroone-demo
    """
    _set_threads(threads)
    from zeroone.experiments.demo import run_demo

    with _folder(out):
        run_demo(out, seed=seed, quiet=quiet)


@app.command()
@data_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder for model.safetensors and record.json.",
)
@click.option("--hidden", default="300,300", show_default=True, help="Hidden layers' widths.")
@click.option("--solver", default="exact", show_default=True, help="exact: Algorithm 3.")
@click.option("--preset", help="paper: the printed settings; other options still count.")
@click.option("--head", default="hardmax", show_default=True, help="hardmax or softmax.")
@click.option("--dtype", default="float32", show_default=True, help="float32 or float64.")
@solver_options
@run_options
def train(
    data: str,
    out: Path,
    hidden: str,
    preset: str | None,
    threads: int | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Train a network and write it with the record of the run.

    Example: zeroone train --data digits --hidden 300,300 --out runs/digits
    """
    _set_threads(threads)
    from zeroone.data.files import load_data
    from zeroone.experiments.console import print_results, progress
    from zeroone.training import TrainSettings
    from zeroone.training import train as run_training

    given = {name: value for name, value in options.items() if value is not None}
    settings = TrainSettings.from_options(preset, hidden=_widths(hidden), **given)
    split = load_data(data)
    with _folder(out):
        with progress("training", settings.exact.max_iter, quiet=quiet) as report:
            run = run_training(split.X, split.y, settings, test=split.test, on_iteration=report)
        run.save(out)
    print_results(f"{split.name}: {run.status}, {run.reason}", {str(out): run.record})


@app.command()
@model_argument
@data_option
def evaluate(model: Path, data: str) -> None:
    """Print the error of a MODEL (a file or a run's folder) on data.

    On the data's test part, if they have one.

    Example: zeroone evaluate runs/digits --data digits
    """
    from zeroone.data.files import load_data
    from zeroone.metrics import error_rate
    from zeroone.training import prepare

    network, split = _load(model), load_data(data)
    part = prepare(network, *(split.test or (split.X, split.y)))
    error = error_rate(network, part.V0, part.y)
    print(f"{'test' if split.test else 'data'} error {100 * error:.2f}% of {len(part.y)} samples")


@app.command()
@model_argument
@click.option(
    "--data", type=click.Path(path_type=Path), required=True, help="A .npz file with an array X."
)
def predict(model: Path, data: Path) -> None:
    """Print the class that a MODEL (a file or a run's folder) predicts for each sample.

    Example: zeroone predict runs/digits --data new.npz
    """
    from zeroone.data.files import load_inputs

    for label in _load(model).predict(load_inputs(data)):
        print(label)


def _load(model: Path) -> Any:
    from zeroone.network import load

    return load(model / "model.safetensors" if model.is_dir() else model)


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(width) for width in text.split(",") if width.strip())
    except ValueError:
        raise InputError(f"--hidden takes widths such as 300,300, got {text!r}.") from None


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(count("threads", threads))


@contextmanager
def _folder(folder: Path) -> Iterator[None]:
    """Make the folder before hours of work depend on it; leave no empty one behind a failure."""
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}.") from None
    try:
        yield
    except BaseException:
        if made and not any(folder.iterdir()):
            folder.rmdir()
        raise


def main() -> None:
    """Run a command: exit 0 on success, 2 on wrong input, 130 when interrupted."""
    try:
        app(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help() if error.ctx else error.format_message(), file=sys.stderr)
        sys.exit(2)
    except click.ClickException as error:
        sys.exit(_complain(error.format_message()))
    except InputError as error:
        sys.exit(_complain(str(error)))
    except (KeyboardInterrupt, click.Abort):
        print("zeroone: interrupted; an unfinished run leaves no file.", file=sys.stderr)
        sys.exit(130)
    sys.exit(0)


def _complain(sentence: str) -> int:
    """One line on stderr; click lists choices over several."""
    print(f"zeroone: {' '.join(sentence.split())}", file=sys.stderr)
    return 2
