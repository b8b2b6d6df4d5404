"""Samples and labels in a training and a test part; stratified cuts."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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

    @property
    def everything(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Both parts together, for cross-validation."""
        if self.test is None:
            return self.X, self.y
        X_test, y_test = self.test
        return np.concatenate([self.X, X_test]), np.concatenate([self.y, y_test])


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
