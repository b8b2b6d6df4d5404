"""Thresholds by position: around a padded image they differ by how much padding a kernel sees."""

import numpy as np
from numpy.typing import NDArray

from zeroone.deploy.integer_form import Sums

Places = NDArray[np.int32]


def distinct(thresholds: Sums) -> tuple[Sums, Places, Places]:
    """Keep one of all equal rows, and one of all equal columns.

    Returns:
        The thresholds that are left, and which of their rows and columns stand at each position:
        ``thresholds == left[:, rows][:, :, columns]``.

    """
    left, places = thresholds, []
    for axis in (1, 2):
        _, first, which = np.unique(left, axis=axis, return_index=True, return_inverse=True)
        left = left.take(first, axis)
        places.append(which.ravel().astype(np.int32))
    return left, places[0], places[1]
