"""``zeroone predict``: the class of each sample, or its labels or numbers."""

from pathlib import Path

from zeroone.commands.checks import check_output, model_file, set_threads
from zeroone.data.load import load_inputs
from zeroone.deploy import load
from zeroone.utils.checks import printable
from zeroone.utils.records import write_record


def predict(
    model: Path,
    *,
    data: Path,
    label: str | None = None,
    json: Path | None = None,
    threads: int | None = None,
    quiet: bool = False,
) -> None:
    """Print the class that a MODEL (a file or a run's folder) predicts for each sample.

    A network of several labels or numbers prints a line of them, with spaces between.

    A model that was trained on a .csv file finds its columns by their names. Otherwise all
    columns are inputs, except that of --label. With --json, a file gets the probabilities of all
    classes, too.

    Example: zeroone predict runs/digits --data new.npz --json answers.json

    Args:
        data: a .npz file with an array X, or a .csv file.
        quiet: print no classes: for --json.
    """
    set_threads(threads)
    check_output(json, data, model)
    network = load(model_file(model))
    X = load_inputs(data, label, network.feature_names)
    labels = network.predict(X)
    for predicted in () if quiet else labels:
        print(printable(" ".join(map(str, predicted)) if labels.ndim > 1 else predicted))
    if json is not None:
        answers = {"classes": network.classes, "predicted": labels.tolist()}
        if not network.targets.are_numbers:
            answers["probabilities"] = network.predict_proba(X).tolist()
        write_record(json, answers)
