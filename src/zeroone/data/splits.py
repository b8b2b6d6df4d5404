"""Samples and labels in a training and a test part; labels as class numbers; stratified cuts."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.nn.inputs import as_array
from zeroone.nn.network import ClassLabel
from zeroone.utils.checks import InputError


@dataclass(frozen=True)
class Split:
    """A training part and perhaps a test part, with the labels that the user has."""

    name: str
    X: NDArray[Any]
    y: NDArray[Any]
    X_test: NDArray[Any] | None = None
    y_test: NDArray[Any] | None = None
    shape: tuple[int, ...] | None = None  # channels, height, width, if samples are images
    class_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None

    @property
    def test(self) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """The test part, if there is one."""
        return None if self.X_test is None or self.y_test is None else (self.X_test, self.y_test)

    def class_name(self, label: Any) -> str:
        """Return the name that people know a label by."""
        return str(label) if self.class_names is None else self.class_names[int(label)]

    def digest(self) -> str:
        """Return a SHA-256 digest of all samples and labels."""
        digest = hashlib.sha256()
        for array in (self.X, self.y, *(self.test or ())):
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    @property
    def everything(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Both parts together, for cross-validation."""
        if self.test is None:
            return self.X, self.y
        X_test, y_test = self.test
        return np.concatenate([self.X, X_test]), np.concatenate([self.y, y_test])


def encode_labels(y: ArrayLike | Tensor, n_samples: int) -> tuple[Tensor, list[ClassLabel]]:
    """Return class numbers from 0, and the sorted labels that they stand for."""
    labels = _label_vector(y, n_samples)
    if labels.dtype.kind not in "biufU":
        raise InputError(f"labels must be numbers or strings, got dtype {labels.dtype}.")
    if labels.dtype.kind == "f":
        refuse_continuous(labels, "y")
        if np.abs(labels).max(initial=0) >= 1 / np.finfo(labels.dtype).eps:
            raise InputError(f"y holds numbers that {labels.dtype} rounds: give them as strings.")
        labels = labels.astype(np.float64)
    if not is_real_text(labels):
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
            f"the numbers into classes, or give them as words."
        )


def _label_vector(y: ArrayLike | Tensor, n_samples: int) -> NDArray[Any]:
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


def encode_known_labels(y: ArrayLike | Tensor, classes: list[ClassLabel], n_samples: int) -> Tensor:
    """Turn labels into the class numbers of a network; unknown labels become -1.

    Labels that are written alike are one class: 3 in a file of numbers, "3" in a file of text.
    """
    labels = _label_vector(y, n_samples)
    number = {str(label): code for code, label in enumerate(classes)}
    found = [number.get(str(label), -1) for label in labels.tolist()]
    if found and max(found) < 0:
        raise InputError(
            f"no label is one of the network's classes ({labels[0]!s} is none of "
            f"{', '.join(map(str, classes[:5]))}{', ...' if len(classes) > 5 else ''})."
        )
    return torch.tensor(found, dtype=torch.long)


def is_real_text(array: NDArray[Any]) -> bool:
    """Tell whether text of a file is made of characters; other arrays pass."""
    if array.dtype.kind != "U" or not array.dtype.itemsize:
        return True
    code = np.dtype(np.uint32).newbyteorder(array.dtype.byteorder)
    codes = np.ascontiguousarray(array).reshape(-1).view(code)
    return not ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any()


def stratified_cut(
    y: NDArray[Any], share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut off a share of every class at random; return the rows of the rest and of the cut.

    The cut has ceil(share * N) samples: those that rounding leaves over come from the classes with
    the largest remainders. It has fewer only where a class would be left without a sample.
    """
    if not 0 < share < 1:
        raise InputError(f"the share to cut off must lie strictly between 0 and 1, got {share!r}.")
    _, codes, sizes = np.unique(y, return_inverse=True, return_counts=True)
    wanted = share * sizes
    takes = np.floor(wanted).astype(np.int64)
    short = math.ceil(share * len(y)) - takes.sum()
    takes[np.argsort(takes - wanted, kind="stable")[:short]] += 1
    takes = np.minimum(takes, sizes - 1)
    if takes.sum() == 0:
        raise InputError(f"a share of {share:g} of {len(y)} samples leaves nothing to cut off.")
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.flatnonzero(codes == c))[: takes[c]] for c in range(len(sizes))]
    cut = np.sort(np.concatenate(rows))
    return np.setdiff1d(np.arange(len(y)), cut), cut
