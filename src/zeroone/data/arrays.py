"""From a user's arrays to tensors: checked once, with one clear sentence for each fault."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.checks import InputError
from zeroone.network import ClassLabel


@dataclass(frozen=True)
class Split:
    """A training part and, perhaps, a test part; labels as they came."""

    name: str
    X: NDArray[Any]
    y: NDArray[Any]
    X_test: NDArray[Any] | None = None
    y_test: NDArray[Any] | None = None

    @property
    def test(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """The test part, if there is one."""
        return None if self.X_test is None or self.y_test is None else (self.X_test, self.y_test)


def check_inputs(X: ArrayLike | Tensor, dtype: torch.dtype) -> Tensor:
    """A matrix of finite numbers with at least one row and one column."""
    array = X.numpy(force=True) if isinstance(X, Tensor) else np.asarray(X)
    if array.ndim != 2:
        raise InputError(
            f"X must be a matrix with one sample a row, got an array of shape {array.shape}."
        )
    if array.shape[0] == 0:
        raise InputError("X has no samples (0 rows).")
    if array.shape[1] == 0:
        raise InputError("X has no features (0 columns).")
    if array.dtype.kind not in "biuf":
        raise InputError(f"X must hold numbers, got dtype {array.dtype}.")
    tensor = torch.tensor(array, dtype=dtype)
    if not bool(torch.isfinite(tensor).all()):
        raise InputError("X contains NaN or infinity (or a number too large for the dtype).")
    return tensor


def encode_labels(y: ArrayLike | Tensor, n_samples: int) -> tuple[Tensor, list[ClassLabel]]:
    """Class numbers from 0 and the sorted class labels they stand for."""
    labels = y.numpy(force=True) if isinstance(y, Tensor) else np.asarray(y)
    if labels.ndim != 1:
        raise InputError(f"y must be a vector of class labels, got shape {labels.shape}.")
    if len(labels) != n_samples:
        raise InputError(f"X has {n_samples} rows but y has {len(labels)} labels.")
    if labels.dtype.kind not in "biufU":
        raise InputError(f"labels must be numbers or strings, got dtype {labels.dtype}.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError("y contains NaN or infinity.")
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"y holds one class only ({classes[0]!s}); training needs at least two.")
    return torch.tensor(codes, dtype=torch.long), classes.tolist()


def encode_known_labels(y: ArrayLike | Tensor, classes: list[ClassLabel]) -> Tensor:
    """Class numbers of labels a network knows; -1, which no prediction equals, for others."""
    labels = y.numpy(force=True) if isinstance(y, Tensor) else np.asarray(y)
    number = {label: code for code, label in enumerate(classes)}
    return torch.tensor([number.get(label, -1) for label in labels.tolist()], dtype=torch.long)
