"""The commands about data sets."""

from pathlib import Path

import click

from zeroone.cli.common import check_output
from zeroone.cli.group import Commands, app
from zeroone.cli.options import (
    DATA_SETS,
    data_dir_option,
    json_option,
    label_option,
    quiet_option,
    words,
)
from zeroone.utils.checks import InputError, one_of


@app.group(cls=Commands)
def data() -> None:
    """Fetch, list and look at data sets."""


@data.command("get")
@click.argument("name", shell_complete=words(*DATA_SETS))
@data_dir_option
@click.option(
    "--from",
    "origin",
    default="auto",
    show_default=True,
    help="auto, url (its own site), npm, debian, or a file or folder that you have.",
)
@quiet_option
def data_get(name: str, data_dir: Path | None, origin: str, quiet: bool) -> None:
    """Bring a data set into the cache: mnist, fashion-mnist, cifar10 or cifar100.

    Example: zeroone data get mnist

    Example: zeroone data get cifar100 --from cifar-100-binary.tar.gz
    """
    from zeroone.commands.console import transfers
    from zeroone.data.registry import REGISTRY
    from zeroone.training.text_progress import say

    data_set = REGISTRY[one_of("data set", name, REGISTRY)]
    with transfers(quiet=quiet) as report:
        found = data_set.get(origin, data_dir, report=report, say=None if quiet else say)
    test = len(found.y_test) if found.y_test is not None else 0
    print(f"{name}: {len(found.y):,} + {test:,} samples in {data_set.place(data_dir)}")


@data.command("shard")
@click.argument("name")
@data_dir_option
@label_option
@click.option("--shards", type=int, default=8, show_default=True, help="How many files.")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="A folder that is new or empty."
)
def data_shard(name: str, data_dir: Path | None, label: str | None, shards: int, out: Path) -> None:
    """Write a data set as files of which each rank of a training opens only its own.

    Example: zeroone data shard mnist --shards 16 --out mnist-shards
    """
    from zeroone.data.load import load_data
    from zeroone.data.shards import shard

    split = load_data(name, data_dir=data_dir, label=label)
    shard(split, out, shards)
    print(f"{len(split.y):,} samples in {shards} shards: zeroone train --data {out} ...")


@data.command("list")
@data_dir_option
@json_option
def data_list(data_dir: Path | None, json_path: Path | None) -> None:
    """List the data sets, and which of them are there.

    Example: zeroone data list
    """
    from zeroone.commands.data import list_data_sets, print_data_sets
    from zeroone.utils.records import write_record

    check_output(json_path)
    entries = list_data_sets(data_dir)
    print_data_sets(entries, data_dir)
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
    from zeroone.commands.data import print_counts
    from zeroone.commands.figures import plot_contact_sheet
    from zeroone.data.load import load_data

    check_output(out, name, ending=".png")
    split = load_data(name, data_dir=data_dir, label=label)
    if out is not None and split.shape is None:
        raise InputError(f"{name} does not hold images: there is no contact sheet to write.")
    print_counts(split)
    if split.shape is not None:
        print(f"contact sheet: {plot_contact_sheet(split, out or Path(f'{split.name}.png'))}")
