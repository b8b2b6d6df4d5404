"""From the data that a user names to arrays."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from zeroone.data.registry import REGISTRY
from zeroone.data.shards import is_sharded, load_shards
from zeroone.data.splits import Split
from zeroone.data.user_files import (
    find_columns,
    load_csv,
    load_csv_inputs,
    load_image_folder,
    load_npz,
    read_npz,
)
from zeroone.utils.checks import InputError, check_file, nearest
from zeroone.utils.storage import is_folder


def load_data(
    name: str,
    *,
    data_dir: Path | None = None,
    label: str | None = None,
    numbers: bool = False,
) -> Split:
    """Load a registered data set, a ``.npz`` or ``.csv`` file, or a folder of images or shards.

    Args:
        name: The data set's name, or a path.
        data_dir: Where registered data sets are kept; None for the default cache.
        label: The label column of a ``.csv`` file; None for the last one.
        numbers: Whether labels are the numbers of a regression, and not names of classes.
    """
    if name in REGISTRY:
        return REGISTRY[name].load(data_dir)
    path = Path(name)
    if is_folder(path):
        return load_shards(path) if is_sharded(path) else load_image_folder(path)
    if path.suffix not in (".npz", ".csv"):
        raise InputError(
            f"unknown data {name!r}; give {', '.join(REGISTRY)}, a .npz or .csv file, or a folder "
            f"of images.{nearest(name, REGISTRY)}"
        )
    check_file(path, "data file")
    return load_npz(path) if path.suffix == ".npz" else load_csv(path, label, numbers=numbers)


def in_order(split: Split, wanted: Sequence[str] | None) -> Split:
    """Pick the columns that a network takes, by their names if both sides have them."""
    if wanted is None or split.feature_names is None or tuple(wanted) == split.feature_names:
        return split
    columns = find_columns(split.name, split.feature_names, wanted)
    X_test = None if split.X_test is None else split.X_test[:, columns]
    return replace(split, X=split.X[:, columns], X_test=X_test, feature_names=tuple(wanted))


def load_inputs(
    path: Path, label: str | None = None, wanted: Sequence[str] | None = None
) -> NDArray[Any]:
    """Load X of a ``.npz`` file, or columns of a ``.csv`` file: see ``load_csv_inputs``."""
    if path.suffix not in (".npz", ".csv"):
        raise InputError(f"{path} is neither a .npz nor a .csv file.")
    check_file(path, "data file")
    if path.suffix == ".csv":
        return load_csv_inputs(path, label, wanted)
    X = read_npz(path, needed=("X",))["X"]
    return X if X.ndim <= 2 else X.reshape(len(X), math.prod(X.shape[1:]))
