"""Functions that a 0/1 network consists of, and their tie rules.

``step(u)`` is 1 where u > 0 and 0 elsewhere: 0 at 0, at -0.0 and at NaN.
``hardmax(u)`` gives 1 to *every* maximal entry of a row, so a tie between k classes
has k ones. ``classify`` returns one class, the first maximal entry.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn


def step(U: Tensor) -> Tensor:
    """Return the 0/1 activation, in the dtype of its argument."""
    return (U > 0).to(U.dtype)


def compare(U: Tensor, thresholds: Sequence[float] | Tensor, dim: int = 1) -> Tensor:
    """Return the bits of all units for the first threshold, then for the second, and so on.

    ``thresholds`` holds numbers, or rows of one number per unit. The bits are written as numbers at
    once, because casting from bools takes longer.
    """
    if isinstance(thresholds, Tensor):
        shape = [1] * U.ndim
        shape[dim] = -1
        rows: Any = [row.view(shape) for row in thresholds]
    else:
        rows = thresholds
    bits = [torch.gt(U, row, out=torch.empty_like(U)) for row in rows]
    return bits[0] if len(bits) == 1 else torch.cat(bits, dim)


def hardmax(U: Tensor) -> Tensor:
    """Return 1 for all maximal entries of each row, 0 for the others."""
    return (U.amax(dim=1, keepdim=True) == U).to(U.dtype)


def classify(U: Tensor) -> Tensor:
    """Return the class of each row: its first maximal entry."""
    return U.argmax(dim=1)


def classes_ahead(scores: Tensor, y: Tensor) -> Tensor:
    """Count the classes that come before the right one; all of them if y is negative.

    Of classes that tie, the first one leads, as in ``classify``. A NaN beats every number, and
    loses as the score of the right class.
    """
    own = scores.gather(1, y.clamp(min=0)[:, None])
    later = torch.arange(scores.shape[1]) >= y[:, None]
    behind = (scores < own) | ((scores == own) & later)
    behind.scatter_(1, y.clamp(min=0)[:, None], value=True)  # itself, even if it is NaN
    return torch.where(y >= 0, (~behind).sum(dim=1), scores.shape[1])


def one_hot(y: Tensor, n_classes: int, dtype: torch.dtype) -> Tensor:
    """Return the rows of Y: 1 in column y, 0 elsewhere."""
    Y = torch.zeros(len(y), n_classes, dtype=dtype, device=y.device)
    return Y.scatter_(1, y[:, None], 1.0)


def next_up(u: Tensor) -> Tensor:
    """Return the smallest number above u: 'just above' in every dtype.

    Around 0 it is the smallest normal number, as a subnormal one may be flushed to zero.
    """
    up = torch.nextafter(u, torch.full_like(u, torch.inf))
    tiny = torch.finfo(u.dtype).tiny
    return torch.where(up.abs() < tiny, tiny, up)


def sum_of_squares(T: Tensor) -> float:
    """Return the squared Frobenius norm of a matrix as a Python float."""
    return float(torch.linalg.vector_norm(T)) ** 2


Laid = TypeVar("Laid", Tensor, nn.Module, nn.Sequential)


def channels_last(images: Laid) -> Laid:
    """Put the channels of a pixel, or of a module's kernels, side by side in memory.

    Convolutions and poolings then run faster. ``contiguous`` would keep images of one channel as
    they are, and their strides mislead torch.
    """
    laid: Laid = images.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return laid
