"""The commands that make trained networks small and portable: compress, export."""

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from zeroone.cli.common import check_output, model_file
from zeroone.cli.group import app
from zeroone.cli.options import data_dir_option, json_option, label_option, model_argument, words
from zeroone.utils.checks import InputError


class ExporterName(click.types.StringParamType):
    """The name of a registered exporter; ``export_model`` refuses others."""

    def get_metavar(self, *_: Any, **__: Any) -> str:
        """Offer all names in the help."""
        from zeroone.deploy.exporters import exporters

        return f"[{'|'.join(exporters())}]"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer them to the shell."""
        from zeroone.deploy.exporters import exporters

        return words(*exporters())(ctx, param, incomplete)


sample_option = click.option(
    "--data",
    help="Data of the model's kind: to compare errors on, and for their range if it is not known.",
)


@app.command()
@model_argument
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The smaller model's file."
)
@click.option(
    "--to",
    "form",
    default="int8",
    show_default=True,
    shell_complete=words("int8", "float"),
    help="int8, or float: only smaller.",
)
@sample_option
@data_dir_option
@label_option
@json_option
def compress(
    model: Path,
    out: Path,
    form: str,
    data: str | None,
    data_dir: Path | None,
    label: str | None,
    json_path: Path | None,
) -> None:
    """Write a smaller model: no dead units, int8 weights, int32 thresholds.

    zeroone predict, zeroone evaluate and zeroone.load take it like any other; it runs in ONNX
    Runtime.

    Example: zeroone compress runs/digits --out digits-int8.safetensors --data digits
    """
    from zeroone.commands.ship import compress_model, print_compressed
    from zeroone.utils.records import write_record

    source = model_file(model)
    check_output(out, source, data, ending=".safetensors")
    check_output(json_path, source, data, out)
    record = compress_model(source, out, form, _split(data, data_dir, label))
    print_compressed(record, out)
    if json_path is not None:
        write_record(json_path, record)


@app.command()
@model_argument
@click.option("--to", type=ExporterName(), required=True, help="The format.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file to write.")
@click.option(
    "--image", help="html: channels, height, width of a sample, such as 1,28,28; or none."
)
@sample_option
@data_dir_option
@label_option
def export(
    model: Path,
    to: str,
    out: Path,
    image: str | None,
    data: str | None,
    data_dir: Path | None,
    label: str | None,
) -> None:
    """Write a model as ONNX, as C99 source with its header, or as a page to draw on.

    All of them compute the same integers, to the bit. --to takes the name of any exporter.

    Example: zeroone export runs/digits --to c --out digits.c

    Example: zeroone export runs/mnist --to html --out mnist.html
    """
    from zeroone.commands.ship import export_model

    source = model_file(model)
    check_output(out, source, data)
    for line in export_model(source, to, out, _split(data, data_dir, label), _shape(image)):
        print(line)


def _split(data: str | None, data_dir: Path | None, label: str | None) -> Any:
    if data is None:
        return None
    from zeroone.data.load import load_data

    return load_data(data, data_dir=data_dir, label=label)


def _shape(text: str | None) -> tuple[int, ...] | None:
    if text is None or text == "none":
        return None if text is None else ()
    try:
        channels, height, width = (int(side) for side in text.split(","))
    except ValueError:
        raise InputError(f"--image takes three numbers such as 1,28,28, got {text!r}.") from None
    return channels, height, width
