"""The command line: argument parsing only. Wrong input ends with one sentence and exit code 2."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from zeroone.allocator import keep_freed_memory
from zeroone.checks import InputError, count, one_of
from zeroone.options import (
    data_dir_option,
    data_option,
    initial_options,
    json_option,
    label_option,
    model_argument,
    run_options,
    solver_options,
)
from zeroone.version import __version__


class Commands(click.Group):
    """Names the nearest command if there is none of a name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, or a refusal that helps."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            one_of("command", args[0], self.list_commands(ctx))
            raise


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
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
    """Train on embedded handwritten digits, print a table, write a figure and a page.

    Example: zeroone demo --out zeroone-demo
    """
    _set_threads(1 if threads is None else threads)  # its matrices are too small for more
    from zeroone.experiments.demo import run_demo
    from zeroone.report import write_report

    with _folder(out):
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
@click.option("--solver", help="stochastic (default) or exact, Algorithm 3 of the paper.")
@click.option("--preset", help="paper: the printed settings; other options still count.")
@click.option("--head", help="softmax (default) or hardmax.")
@click.option("--scaling", help="Of the inputs: auto (default), common or feature.")
@click.option("--validation", type=float, help="Share of the training part to hold out.")
@click.option("--dtype", default="float32", show_default=True, help="float32 or float64.")
@click.option("--csv", "csv_path", type=click.Path(path_type=Path), help="A line an epoch, here.")
@click.option(
    "--tensorboard", type=click.Path(path_type=Path), help="Folder for TensorBoard, if installed."
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
    **options: Any,
) -> None:
    """Train a network and write it with the record of the run.

    Example: zeroone train --data digits --hidden 300,300 --out runs/digits

    Example: zeroone train --data mnist --initial-epochs 5 --hidden 2000,2000 --out runs/features

    After an interruption, the same command with --resume goes on where it stopped.
    """
    _set_threads(threads)
    from zeroone.experiments.single import train_one
    from zeroone.training import Callback, CSVLogger, TensorBoardLogger

    loggers: list[Callback] = []
    if csv_path is not None:
        if csv_path.parent != out:  # which will be made
            _check_output(csv_path, data)
        loggers.append(CSVLogger(csv_path))
    if tensorboard is not None:
        loggers.append(TensorBoardLogger(tensorboard))
    given = {name: value for name, value in options.items() if value is not None}
    if hidden is not None:
        given["hidden"] = tuple(hidden.split(","))
    with _folder(out):
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
        )


@app.command()
@model_argument
@data_option
@data_dir_option
@label_option
@click.option("--noise", help="Standard deviations of Gaussian noise on the inputs: 0,0.1,0.2")
@json_option
def evaluate(
    model: Path,
    data: str,
    data_dir: Path | None,
    label: str | None,
    noise: str | None,
    json_path: Path | None,
) -> None:
    """Print the errors and the size of a MODEL (a file or a run's folder) on data.

    On the data's test part, if they have one. Noise is a share of the range of bytes (pixels), and
    for other inputs of the spread by which the network scales them.

    Example: zeroone evaluate runs/digits --data digits --noise 0,0.5,1
    """
    from zeroone.data.files import load_data
    from zeroone.experiments.evaluate import evaluate_network, print_evaluation
    from zeroone.records import write_record

    _check_output(json_path, data, model)
    levels = _numbers("--noise", noise) if noise is not None else ()
    network = _load(model)
    split = load_data(data, data_dir=data_dir, label=label)
    record = evaluate_network(network, split, levels)
    print_evaluation(record)
    if json_path is not None:
        write_record(json_path, record)


@app.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Folder of the records."
)
@click.option("--seeds", type=int, help="Repetitions of every cell (default: the file's).")
@click.option("--only-failed", is_flag=True, help="Run the cells again that failed, no others.")
@click.option("--jobs", type=int, help="Cells at a time (default: as many as the cores carry).")
@click.option("--threads", default=1, show_default=True, help="CPU threads of a cell.")
@data_dir_option
@json_option
@click.option("--quiet", is_flag=True, help="No progress.")
def matrix(
    spec: Path,
    out: Path,
    seeds: int | None,
    only_failed: bool,
    jobs: int | None,
    threads: int,
    data_dir: Path | None,
    json_path: Path | None,
    quiet: bool,
) -> None:
    """Compare methods: train every cell of the run matrix in the TOML file SPEC, print tables.

    SPEC names data sets, architectures (f3nn:1000-1000, lenet, convnet, resnet18, ...), methods
    (relu, sigmoid, swish, selu, tanh, ste, ste-sign, ste-bn, bi-real, ccnn, pcnn, bcd, bcd-hardmax,
    bcd-half) and seeds, the number of repetitions; docs/measures.md shows all of its entries.
    Finished cells of the folder are not run again; a cell that fails says why in its record and
    stops no other. Exit code 1 if a cell failed.

    Example: zeroone matrix experiments/rivals.toml --out runs/rivals
    """
    from zeroone.experiments.compare import compare
    from zeroone.experiments.spec import Spec

    with _folder(out):
        failed = compare(
            Spec.read(spec),
            out,
            seeds=seeds,
            only_failed=only_failed,
            jobs=jobs,
            threads=threads,
            data_dir=data_dir,
            json_path=json_path,
            quiet=quiet,
        )
    if failed:
        sys.exit(1)


@app.command()
@click.argument("target")
@click.option("--seeds", type=int, help="Repetitions of every cell (default: each protocol's).")
@click.option("--quick", is_flag=True, help="Embedded digits in place of all data: minutes.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of records, tables and figures (default: zeroone-reproduce, or -quick).",
)
@click.option("--only", multiple=True, help="Run only this protocol of the target's; repeatable.")
@click.option("--only-failed", is_flag=True, help="Run the cells again that failed, no others.")
@click.option("--no-run", is_flag=True, help="Only make tables and figures of the records.")
@click.option(
    "--page", type=click.Path(path_type=Path), help="Where the page goes (default: OUT/results.md)."
)
@click.option("--jobs", type=int, help="Cells at a time (default: as many as the cores carry).")
@click.option("--threads", default=1, show_default=True, help="CPU threads of a cell.")
@data_dir_option
@click.option("--quiet", is_flag=True, help="No progress.")
def reproduce(
    target: str,
    seeds: int | None,
    quick: bool,
    out: Path | None,
    only: tuple[str, ...],
    only_failed: bool,
    no_run: bool,
    page: Path | None,
    jobs: int | None,
    threads: int,
    data_dir: Path | None,
    quiet: bool,
) -> None:
    """Reproduce a table or figure of the paper: TARGET, or all of them.

    TARGET: table1, table2, fig-initial, fig-training, fig-noise, fig-activations, fig-prox,
    parameters, all. Trains what has no record yet, then writes Markdown and LaTeX tables, PNG and
    SVG figures and a page with a verdict for each of the paper's claims. After an interruption the
    same command goes on. Exit code 1 if a cell failed.

    Example: zeroone reproduce all --quick

    Example: zeroone reproduce table1 --only mnist-256 --seeds 3 --out results/reproduce
    """
    from zeroone.experiments.compare import Effort
    from zeroone.reproduce.run import reproduce as run_target
    from zeroone.storage import check_writable

    if page is not None:
        check_writable(page)
    out = out or Path("zeroone-reproduce-quick" if quick else "zeroone-reproduce")
    with _folder(out):
        failed = run_target(
            target,
            out,
            Effort(jobs, threads, quiet),
            quick=quick,
            seeds=seeds,
            only=only,
            only_failed=only_failed,
            run=not no_run,
            page=page,
            data_dir=data_dir,
        )
    if failed:
        sys.exit(1)


@app.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="The page.",
)
@click.option(
    "--data",
    multiple=True,
    help="What the runs were trained on, if it is not where it was: once, or once for each run.",
)
@data_dir_option
@label_option
def report(
    runs: tuple[Path, ...],
    out: Path,
    data: tuple[str, ...],
    data_dir: Path | None,
    label: str | None,
) -> None:
    """Write one self-contained HTML page about one or several RUNS, side by side.

    A run is the folder of a training, or a record. Curves, active units, bits that flip,
    confusions, the worst mistakes, the first layer's weights, noise, settings, machine. The page
    opens from the file system and asks nobody for anything.

    Example: zeroone report runs/digits runs/other --out report.html
    """
    from zeroone.report import write_report

    _check_output(out, *runs, *data)
    write_report(runs, out, data=data, data_dir=data_dir, label=label)
    print(f"report: {out}")


@app.command()
@model_argument
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="A .npz file with an array X, or a .csv file.",
)
@label_option
@json_option
def predict(model: Path, data: Path, label: str | None, json_path: Path | None) -> None:
    """Print the class that a MODEL (a file or a run's folder) predicts for each sample.

    Of a .csv file all columns are inputs, but that of --label if it is there. With --json also the
    probabilities of all classes, in a file.

    Example: zeroone predict runs/digits --data new.npz --json answers.json
    """
    from zeroone.data.files import load_inputs
    from zeroone.records import write_record

    _check_output(json_path, data, model)
    network, X = _load(model), load_inputs(data, label)
    labels = network.predict(X)
    for predicted in labels:
        print(predicted)
    if json_path is not None:
        content = {"classes": network.classes, "predicted": labels.tolist()}
        content["probabilities"] = network.predict_proba(X).tolist()
        write_record(json_path, content)


@app.group(cls=Commands)
def bench() -> None:
    """Measure speed, as ratios in one run."""


@bench.command("train")
@click.option("--hidden", default="1000,1000", show_default=True, help="Widths, such as 300,300.")
@click.option("--samples", default=12_800, show_default=True, help="Random samples an epoch.")
@click.option("--repeats", default=3, show_default=True, help="Epochs that are timed of each.")
@click.option("--threads", type=int, help="CPU threads (default: torch's own).")
@json_option
def bench_train(
    hidden: str, samples: int, repeats: int, threads: int | None, json_path: Path | None
) -> None:
    """Time an epoch of stochastic BCD, of STE + Adam and of ReLU + Adam, in turns.

    Example: zeroone bench train --hidden 500,500 --threads 1 --json cost.json
    """
    _set_threads(threads)
    from zeroone.experiments.bench import bench_training
    from zeroone.records import write_record

    _check_output(json_path)
    try:
        widths = [count("every width", int(width), most=10**6) for width in hidden.split(",")]
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"--hidden takes widths such as 300,300, got {hidden!r}.") from None
    count("samples", samples, least=256)
    record = bench_training(widths, samples, count("repeats", repeats))
    if json_path is not None:
        write_record(json_path, record)


@app.command()
@click.argument("shell")
def completion(shell: str) -> None:
    """Print what makes a SHELL (bash, zsh or fish) complete commands and options.

    Example: zeroone completion bash > ~/.zeroone-complete.bash, and source that file in ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(one_of("shell", shell, ["bash", "zsh", "fish"]))
    assert kind is not None
    print(kind(app, {}, "zeroone", "_ZEROONE_COMPLETE").source())


@app.group(cls=Commands)
def data() -> None:
    """Fetch, list and look at data sets."""


@data.command("get")
@click.argument("name")
@data_dir_option
@click.option(
    "--from",
    "origin",
    default="auto",
    show_default=True,
    help="auto, url (its own site), npm, debian, or a file or folder that you have.",
)
@click.option("--quiet", is_flag=True, help="No progress.")
def data_get(name: str, data_dir: Path | None, origin: str, quiet: bool) -> None:
    """Bring a data set into the cache: mnist, fashion-mnist, cifar10 or cifar100.

    Example: zeroone data get mnist

    Example: zeroone data get cifar100 --from cifar-100-binary.tar.gz
    """
    from zeroone.data.cache import cache_root, home
    from zeroone.data.registry import REGISTRY
    from zeroone.data.sources import obtain
    from zeroone.experiments.console import say, transfers

    spec = REGISTRY[one_of("data set", name, REGISTRY)]
    with transfers(quiet=quiet) as report:
        talk = {} if quiet else {"say": say}
        found = obtain(spec, origin, data_dir, report=report, **talk)
    test = len(found.y_test) if found.y_test is not None else 0
    print(f"{name}: {len(found.y):,} + {test:,} samples in {home(spec, cache_root(data_dir))}")


@data.command("list")
@data_dir_option
@json_option
def data_list(data_dir: Path | None, json_path: Path | None) -> None:
    """List the data sets, and which of them are there.

    Example: zeroone data list
    """
    from zeroone.experiments.catalogue import catalogue, print_catalogue
    from zeroone.records import write_record

    _check_output(json_path)
    entries = catalogue(data_dir)
    print_catalogue(entries, data_dir)
    if json_path is not None:
        write_record(json_path, {"data": entries})


@data.command("show")
@click.argument("name")
@data_dir_option
@label_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Where the contact sheet goes (default: NAME.png here).",
)
def data_show(name: str, data_dir: Path | None, label: str | None, out: Path | None) -> None:
    """Count the samples of each class and draw a contact sheet.

    Example: zeroone data show mnist --out mnist.png
    """
    from zeroone.data.files import load_data
    from zeroone.experiments.catalogue import print_counts
    from zeroone.experiments.figures import plot_contact_sheet

    split = load_data(name, data_dir=data_dir, label=label)
    if out is not None and split.shape is None:
        raise InputError(f"{name} does not hold images: there is no contact sheet to write.")
    print_counts(split)
    if split.shape is not None:
        print(f"contact sheet: {plot_contact_sheet(split, out or Path(f'{split.name}.png'))}")


def _check_output(path: Path | None, *inputs: Path | str) -> None:
    """Refuse what cannot be written, or would overwrite what is read."""
    from zeroone.storage import check_writable

    if path is None:
        return
    if path.exists() and any(Path(i).exists() and path.samefile(i) for i in inputs):
        raise InputError(f"{path} is read by this command: write to another file.")
    check_writable(path)


def _load(model: Path) -> Any:
    from zeroone.network import load

    return load(model / "model.safetensors" if model.is_dir() else model)


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise InputError(f"{option} takes numbers such as 0,0.1,0.2, got {text!r}.") from None


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(count("threads", threads, most=1024))


@contextmanager
def _folder(folder: Path) -> Iterator[None]:
    """Make the folder before hours of work depend on it; leave no empty one behind a failure."""
    from zeroone.storage import make_folder

    made = [path for path in (folder, *folder.parents) if not path.exists()]
    make_folder(folder)
    try:
        yield
    except BaseException:
        for path in made:
            if path.exists() and not any(path.iterdir()):
                path.rmdir()
        raise


def main() -> None:
    """Run a command: exit 0 on success, 2 on wrong input, 130 when interrupted."""
    # A waiting thread spins a little, then sleeps: spinning for long costs minutes on a busy
    # machine, sleeping at once a factor of three on an idle one.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    keep_freed_memory()
    try:
        app(standalone_mode=False, prog_name="zeroone")
    except (KeyboardInterrupt, click.Abort):  # Abort is a RuntimeError, too
        print(f"zeroone: interrupted{_hint(sys.argv[1:])}.", file=sys.stderr)
        sys.exit(130)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help() if error.ctx else error.format_message(), file=sys.stderr)
        sys.exit(2)
    except click.ClickException as error:
        sys.exit(_complain(error.format_message()))
    except InputError as error:
        sys.exit(_complain(str(error)))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        sys.exit(_complain("there is not enough memory for a network of this size."))
    sys.exit(0)


def _hint(words: list[str]) -> str:
    """How an interrupted command is taken up again."""
    if words[:1] == ["train"] and "--out" in words[:-1]:
        out = Path(words[words.index("--out") + 1])
        kept = any(out.rglob("state.safetensors"))
        return f"; the same command {'with --resume goes on' if kept else 'begins again'}"
    if words[:1] in (["matrix"], ["reproduce"]):
        return "; the same command goes on, without the cells that are finished"
    return "; the same command begins again"


def _complain(sentence: str) -> int:
    """One line on stderr; click lists choices over several."""
    print(f"zeroone: {' '.join(sentence.split())}", file=sys.stderr)
    return 2
