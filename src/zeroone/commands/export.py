"""``zeroone export``: a model for other runtimes."""

from pathlib import Path

from zeroone.commands.checks import check_output, model_file, numbers
from zeroone.commands.compress import as_integers
from zeroone.data.load import load_data
from zeroone.deploy import IntegerNetwork, load
from zeroone.utils.checks import InputError, one_of

ENDINGS = {"onnx": ".onnx", "c": ".c", "html": ".html"}


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
        to: the format: onnx, c or html.
        out: the file: .onnx, .c or .html.
        image: for html, channels, height, width of a sample, such as 1,28,28; or none.
        data: data of the model's kind, to find the range of the inputs if the model does not know
            it.
    """
    source = model_file(model)
    check_output(out, source, data)
    shape = _shape(image)
    ending = ENDINGS[one_of("export", to, ENDINGS)]
    if out.suffix != ending:
        raise InputError(f"an export to {to} is a {ending} file, not {out.name}.")
    if shape is not None and to != "html":
        raise InputError("--image is for --to html.")
    split = None if data is None else load_data(data, data_dir=data_dir, label=label)
    network = as_integers(load(source), split)
    if to == "onnx":
        _export_onnx(network, out)
    elif to == "html":
        from zeroone.deploy.exporters.html import write_html

        write_html(network, out, shape)
        print(f"{out}: open it in a browser, {out.stat().st_size:,} bytes")
    else:
        from zeroone.deploy.exporters.c import write_c

        size = write_c(network, out)
        header = out.with_suffix(".h")
        print(f"{out} and {header}: C99, {out.stem}_scores and {out.stem}_classify")
        print(f"flash {size.flash:,} bytes of constants, RAM {size.ram:,} bytes")


def _shape(text: str | None) -> tuple[int, ...] | None:
    if text is None or text == "none":
        return None if text is None else ()
    wanted = "three numbers such as 1,28,28"
    shape = numbers("--image", text, wanted, int)
    if len(shape) != 3:
        raise InputError(f"--image takes {wanted}, got {text!r}.")
    return shape


def _export_onnx(network: IntegerNetwork, out: Path) -> None:
    from zeroone.deploy.exporters.onnx import OPSET, write_onnx

    write_onnx(network, out)
    kind = "uint8" if network.inputs.are_bytes else "float32"
    print(f"{out}: ONNX, opset {OPSET}, {out.stat().st_size:,} bytes")
    print(
        f"input: inputs, {kind}, (samples, {network.n_features}); outputs: scores, int32, "
        f"(samples, {len(network.classes)}), and class, int64, (samples)"
    )
