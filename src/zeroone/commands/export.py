"""``zeroone export``: a model for other runtimes."""

from dataclasses import replace
from pathlib import Path

from zeroone.commands.checks import check_output, numbers
from zeroone.commands.compress import as_integers
from zeroone.data.load import load_data
from zeroone.deploy import load
from zeroone.deploy.files import model_file
from zeroone.utils.checks import InputError, printable


def export(
    model: Path,
    *,
    to: str,
    out: Path,
    image: str | None = None,
    data: str | None = None,
    data_dir: Path | None = None,
    label: str | None = None,
) -> None:
    """Write a MODEL as ONNX, as C99 source with its header, or as an HTML page to draw on.

    All of them compute the same integers, bit for bit.

    Example: zeroone export runs/digits --to c --out digits.c

    Example: zeroone export runs/mnist --to html --out mnist.html

    Args:
        to: the format: onnx, c, html or that of a registered exporter.
        out: the file: .onnx, .c or .html.
        image: for html, channels, height, width of a sample, such as 1,28,28; or none.
        data: data of the model's kind, to find the range of the inputs if the model does not know
            it, and for html the names of the classes.
    """
    source = model_file(model)
    check_output(out, source, data)
    shape = _shape(image)
    network = load(source)
    continuous, split = network.targets.are_numbers, None
    if data is not None:
        split = load_data(data, data_dir=data_dir, label=label, numbers=continuous)
    integers = as_integers(network, split)
    same = split is not None and set(split.y.ravel().tolist()) == set(integers.classes)
    if to == "html" and split is not None and split.class_names and same:  # people read the page
        integers = replace(integers, classes=[split.class_name(c) for c in integers.classes])
    for line in integers.export(to, out, shape):
        print(printable(line))


def _shape(text: str | None) -> tuple[int, ...] | None:
    if text is None or text == "none":
        return None if text is None else ()
    wanted = "three numbers such as 1,28,28"
    shape = numbers("--image", text, wanted, int)
    if len(shape) != 3:
        raise InputError(f"--image takes {wanted}, got {text!r}.")
    return shape
