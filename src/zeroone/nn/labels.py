"""Labels as class numbers: checked, encoded, and found again."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.nn.inputs import as_array
from zeroone.utils.checks import InputError

ClassLabel = int | float | str | bool


def encode_labels(y: ArrayLike | Tensor, n_samples: int) -> tuple[Tensor, list[ClassLabel]]:
    """Return class numbers from 0, and the sorted labels that they stand for."""
    labels = label_vector(y, n_samples)
    if labels.dtype.kind not in "biufU":
        raise InputError(f"labels must be numbers or strings, got dtype {labels.dtype}.")
    if labels.dtype.kind == "f":
        refuse_continuous(labels, "y")
        if np.abs(labels).max(initial=0) >= 1 / np.finfo(labels.dtype).eps:
            raise InputError(f"y holds numbers that {labels.dtype} rounds: give them as strings.")
        labels = labels.astype(np.float64)
    if not is_text(labels):
        raise InputError("a label is not text that a file can hold (UTF-8): rename it.")
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"y holds one class only ({classes[0]!s}); training needs at least two.")
    return torch.tensor(codes, dtype=torch.long), classes.tolist()


def refuse_continuous(labels: NDArray[Any], what: str) -> None:
    """Refuse numbers that are the target of a regression, not labels of classes."""
    if not np.isfinite(labels).all():
        raise InputError(f"{what} contains NaN or infinity.")
    broken = labels[labels != np.rint(labels)]
    if len(broken):
        raise InputError(
            f"{what} holds continuous numbers, such as {broken[0]!s}, but labels name classes: cut "
            f"the numbers into classes, give them as words, or learn numbers with head='linear'."
        )


def label_vector(y: ArrayLike | Tensor, n_samples: int) -> NDArray[Any]:
    """Require a vector of labels, one for each sample."""
    labels = as_array(y)
    listed = y if isinstance(y, list | tuple) else labels.tolist() if labels.dtype == "O" else ()
    if len({isinstance(label, str) for label in listed}) > 1:
        raise InputError("y mixes numbers and text: give one of them.")
    if any(isinstance(label, str) and label.endswith("\0") for label in listed):
        raise InputError("a label ends with NUL, which arrays of text drop: rename it.")
    if labels.ndim != 1:
        raise InputError(f"y must be a vector of class labels, got shape {labels.shape}.")
    if len(labels) != n_samples:
        raise InputError(f"X has {n_samples} rows but y has {len(labels)} labels.")
    if labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels):
        return labels.astype(str)
    return labels


def is_text(labels: Any) -> bool:
    """Tell whether text is made of characters that a file can hold (UTF-8); numbers pass."""
    array = np.asarray(labels)
    if array.dtype.kind != "U" or not array.dtype.itemsize:
        return True
    code = np.dtype(np.uint32).newbyteorder(array.dtype.byteorder)
    codes = np.ascontiguousarray(array).reshape(-1).view(code)
    return not ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any()
