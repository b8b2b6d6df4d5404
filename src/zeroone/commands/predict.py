"""``zeroone predict``: the class of each sample, or its labels or numbers."""

from pathlib import Path

from zeroone.commands.checks import check_output, set_threads
from zeroone.data.load import find_images, load_images, load_inputs
from zeroone.deploy import load
from zeroone.utils.checks import InputError, printable
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
    columns are inputs, except that of --label. For images, each line has the name of the file, a
    tab and the class. Images become grey or RGB, as the model takes them; they must have its
    size, as nothing is resized. With --json, a file gets the probabilities of all classes, too.

    Example: zeroone predict runs/digits --data new.npz --json answers.json

    Example: zeroone predict runs/mnist --data scans/

    Args:
        data: a .npz file with an array X, a .csv file, an image, or a folder of images.
        quiet: print no classes: for --json.
    """
    set_threads(threads)
    check_output(json, data, model)
    network = load(model)
    files = find_images(data)
    if files and not network.takes_bytes:
        raise InputError(
            "the model was not trained on bytes, which pixels are: give its numbers as .npz."
        )
    if files:
        X = load_images(files, network.shape_in)
    else:
        X = load_inputs(data, label, network.feature_names)
    labels = network.predict(X)
    names = [f"{printable(file)}\t" for file in files] or [""] * len(labels)
    for name, predicted in () if quiet else zip(names, labels, strict=True):
        words = " ".join(map(str, predicted)) if labels.ndim > 1 else predicted
        print(f"{name}{printable(words)}")
    if json is not None:
        answers = {"classes": network.classes, "predicted": labels.tolist()}
        if not network.targets.are_numbers:
            answers["probabilities"] = network.predict_proba(X).tolist()
        write_record(json, answers | ({"files": [str(file) for file in files]} if files else {}))
