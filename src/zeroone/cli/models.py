"""The commands that take trained networks: evaluate, predict, report."""

from pathlib import Path

import click

from zeroone.cli.common import as_numbers, check_output, load_model, set_threads
from zeroone.cli.group import app
from zeroone.cli.options import (
    data_dir_option,
    data_option,
    json_option,
    label_option,
    model_argument,
    quiet_option,
    threads_option,
)


@app.command()
@model_argument
@data_option
@data_dir_option
@label_option
@click.option("--noise", help="Standard deviations of Gaussian noise on the inputs: 0,0.1,0.2")
@json_option
@threads_option
@quiet_option
def evaluate(
    model: Path,
    data: str,
    data_dir: Path | None,
    label: str | None,
    noise: str | None,
    json_path: Path | None,
    threads: int | None,
    quiet: bool,
) -> None:
    """Print the errors and the size of a MODEL (a file or a run's folder) on data.

    On the data's test part, if they have one. Noise is a share of the range of bytes (pixels), and
    for other inputs of the spread by which the network scales them.

    Example: zeroone evaluate runs/digits --data digits --noise 0,0.5,1
    """
    set_threads(threads)
    from zeroone.commands.evaluate import evaluate_network, print_evaluation
    from zeroone.data.load import load_data
    from zeroone.utils.records import write_record

    check_output(json_path, data, model)
    levels = as_numbers("--noise", noise) if noise is not None else ()
    network = load_model(model)
    split = load_data(data, data_dir=data_dir, label=label)
    record = evaluate_network(network, split, levels, quiet=quiet)
    print_evaluation(record)
    if json_path is not None:
        write_record(json_path, record)


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
@threads_option
@click.option("--quiet", is_flag=True, help="Print no classes: for --json.")
def predict(
    model: Path,
    data: Path,
    label: str | None,
    json_path: Path | None,
    threads: int | None,
    quiet: bool,
) -> None:
    """Print the class that a MODEL (a file or a run's folder) predicts for each sample.

    Columns of a .csv file are found by their names if the model was trained on such a file; else
    all are inputs, but that of --label if it is there. With --json also the probabilities of all
    classes, in a file.

    Example: zeroone predict runs/digits --data new.npz --json answers.json
    """
    set_threads(threads)
    from zeroone.data.load import load_inputs
    from zeroone.utils.records import write_record

    check_output(json_path, data, model)
    network = load_model(model)
    X = load_inputs(data, label, network.feature_names)
    labels = network.predict(X)
    for predicted in () if quiet else labels:
        print(predicted)
    if json_path is not None:
        content = {"classes": network.classes, "predicted": labels.tolist()}
        content["probabilities"] = network.predict_proba(X).tolist()
        write_record(json_path, content)


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
@threads_option
@quiet_option
def report(
    runs: tuple[Path, ...],
    out: Path,
    data: tuple[str, ...],
    data_dir: Path | None,
    label: str | None,
    threads: int | None,
    quiet: bool,
) -> None:
    """Write one self-contained HTML page about one or several RUNS, side by side.

    A run is the folder of a training, or a record. Curves, active units, bits that flip,
    confusions, the worst mistakes, the first layer's weights, noise, settings, machine. The page
    opens from the file system and asks nobody for anything.

    Example: zeroone report runs/digits runs/other --out report.html
    """
    set_threads(threads)
    from zeroone.commands.report import write_report

    check_output(out, *runs, *data, ending=".html")
    write_report(runs, out, data=data, data_dir=data_dir, label=label, quiet=quiet)
    print(f"report: {out}")
