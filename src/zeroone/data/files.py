"""A user's own data: ``.npz`` files with the arrays X and y."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.checks import InputError
from zeroone.data.arrays import Split
from zeroone.data.embedded import EMBEDDED, load_embedded


def load_data(name: str) -> Split:
    """An embedded data set by name, or a ``.npz`` file: X, y, perhaps also X_test, y_test."""
    if name in EMBEDDED:
        return load_embedded(name)
    if Path(name).suffix != ".npz":
        raise InputError(
            f"unknown data {name!r}; give a .npz file or one of {', '.join(EMBEDDED)}."
        )
    arrays = _read(Path(name), needed=("X", "y"))
    if ("X_test" in arrays) != ("y_test" in arrays):
        raise InputError(f"{name} has only one of X_test and y_test.")
    return Split(
        Path(name).stem, arrays["X"], arrays["y"], arrays.get("X_test"), arrays.get("y_test")
    )


def load_inputs(path: Path) -> NDArray[Any]:
    """The array X of a ``.npz`` file; labels are not needed."""
    return _read(path, needed=("X",))["X"]


def _read(path: Path, needed: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise InputError(f"there is no data file {path}.")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile):
        raise InputError(
            f"{path} cannot be read as .npz: it is something else, damaged, or holds Python "
            f"objects in place of plain arrays."
        ) from None
    for key in needed:
        if key not in arrays:
            raise InputError(f"{path} has no array {key!r} (found: {', '.join(arrays) or 'none'}).")
    return arrays
