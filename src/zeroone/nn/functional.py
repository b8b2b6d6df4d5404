"""The two activations of a 0/1 network, and their tie rules.

``step(u)`` is 1 where u > 0 and 0 elsewhere: 0 at 0, at -0.0 and at NaN.
``hardmax(u)`` gives 1 to *every* maximal entry of a row, so a tie between k classes
has k ones. A prediction needs one class: ``classify`` takes the first maximal entry.
"""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TypeVar

import torch
from torch import Tensor, nn


def step(U: Tensor) -> Tensor:
    """The 0/1 activation, in the dtype of its argument."""
    return (U > 0).to(U.dtype)


def hardmax(U: Tensor) -> Tensor:
    """1 for all maximal entries of each row, 0 for the others."""
    return (U.amax(dim=1, keepdim=True) == U).to(U.dtype)


def classify(U: Tensor) -> Tensor:
    """The class of each row: its first maximal entry."""
    return U.argmax(dim=1)


def one_hot(y: Tensor, n_classes: int, dtype: torch.dtype) -> Tensor:
    """The rows of Y: 1 in column y, 0 elsewhere."""
    Y = torch.zeros(len(y), n_classes, dtype=dtype, device=y.device)
    return Y.scatter_(1, y[:, None], 1.0)


def next_up(u: Tensor) -> Tensor:
    """The smallest number above u: how 'just above' survives every dtype.

    Around 0 it is the smallest normal number, as a subnormal one may be flushed to zero.
    """
    up = torch.nextafter(u, torch.full_like(u, torch.inf))
    tiny = torch.finfo(u.dtype).tiny
    return torch.where(up.abs() < tiny, tiny, up)


def add_up(parts: Sequence[Tensor]) -> Tensor:
    """Their sum; a single one is given back as it is."""
    return reduce(add, parts)


def sum_of_squares(T: Tensor) -> float:
    """The squared Frobenius norm of a matrix, as a Python float."""
    return float(torch.linalg.vector_norm(T)) ** 2


Laid = TypeVar("Laid", Tensor, nn.Module, nn.Sequential)


def channels_last(images: Laid) -> Laid:
    """With the channels of a pixel side by side in memory: convolutions and poolings run faster.

    Of a module, its kernels. ``contiguous`` would leave images of one channel alone, whose strides
    then mislead torch.
    """
    laid: Laid = images.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return laid
