"""``zeroone data list`` and ``show``: which data sets there are, and what is in one."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from zeroone.data.cache import cache_root
from zeroone.data.registry import REGISTRY
from zeroone.data.splits import Split
from zeroone.utils.checks import InputError


def list_data_sets(data_dir: Path | None = None) -> list[dict[str, Any]]:
    """List all data sets: what they hold, and whether they are there."""
    return [data_set.describe(data_dir) for data_set in REGISTRY.values()]


def print_data_sets(entries: list[dict[str, Any]], data_dir: Path | None = None) -> None:
    """All data sets, one a row."""
    title = escape(f"data sets in {cache_root(data_dir)}")
    table = Table(title=title, title_justify="left")
    for heading in ("name", "samples", "shape", "classes", "there"):
        table.add_column(heading)
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
    Console(width=None if Console().is_terminal else 100).print(table)


def print_counts(split: Split) -> None:
    """How many samples of each class each part has."""
    if len(split.y) == 0:
        raise InputError(f"{split.name} has no samples.")
    labels = np.unique(split.y)
    width = max(len(split.class_name(label)) for label in labels)
    print(f"{split.name}: {len(split.y):,} samples of {split.X.shape[1]:,} features")
    for label in labels:
        counts = [f"{np.count_nonzero(split.y == label):>7,}"]
        if split.y_test is not None:
            counts.append(f"{np.count_nonzero(split.y_test == label):>7,}")
        print(f"  {split.class_name(label):{width}} {' +'.join(counts)}")
