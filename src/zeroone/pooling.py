"""Pooling of pre-activations, before the step.

step is monotone, so pooling the largest pre-activation of a window and stepping afterwards is the
same as pooling bits. ``apply`` gives the pooled values and what ``spread`` needs to send a residual
of theirs back to where they came from.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from zeroone.checks import InputError, count, one_of
from zeroone.operators import Shape


class Pool(ABC):
    """Square windows of ``size``, side by side; what fills none at the far edge is left out."""

    kind: ClassVar[str]

    def __init__(self, size: int) -> None:
        self.size = size

    @property
    def receivers(self) -> int:
        """How many entries of a window a residual of its pooled value goes to."""
        return 1

    def shape_out(self, shape: Shape) -> Shape:
        """Of a sample, pooled."""
        if len(shape) != 3 or min(shape[1:]) < self.size:
            raise InputError(f"windows of {self.size} x {self.size} do not fit into {shape}.")
        return (shape[0], *(side // self.size for side in shape[1:]))

    @abstractmethod
    def forward(self, U: Tensor) -> Tensor:
        """The pooled values."""

    @abstractmethod
    def apply(self, U: Tensor) -> "Pooled":
        """The pooled values, and where they came from."""

    def windows(self, U: Tensor) -> Tensor:
        """The entries of each window, in a last axis of their own."""
        k = self.size
        h, w = U.shape[2] // k, U.shape[3] // k
        tiles = U[:, :, : h * k, : w * k].reshape(*U.shape[:2], h, k, w, k)
        return tiles.transpose(3, 4).reshape(*U.shape[:2], h, w, k * k)

    def unwindow(self, T: Tensor, U: Tensor) -> Tensor:
        """``U`` with the entries of its windows replaced: the inverse of ``windows``."""
        k, (h, w) = self.size, T.shape[2:4]
        tiles = T.reshape(*T.shape[:4], k, k).transpose(3, 4)
        out = U.clone()
        out[:, :, : h * k, : w * k] = tiles.reshape(*T.shape[:2], h * k, w * k)
        return out

    def describe(self) -> dict[str, Any]:
        """What a model file must say."""
        return {"kind": self.kind, "size": self.size}


@dataclass(frozen=True)
class Pooled:
    """Pooled values; ``spread`` turns a residual of theirs into one of what was pooled."""

    values: Tensor
    spread: Callable[[Tensor], Tensor]


class NoPool(Pool):
    """Every value for itself."""

    kind = "none"

    def __init__(self, size: int = 1) -> None:
        super().__init__(size)

    def shape_out(self, shape: Shape) -> Shape:  # noqa: D102
        return shape

    def forward(self, U: Tensor) -> Tensor:  # noqa: D102
        return U

    def apply(self, U: Tensor) -> Pooled:  # noqa: D102
        return Pooled(U, lambda E: E)


class MaxPool(Pool):
    """The largest of each window; a residual goes to the entry that won."""

    kind = "max"

    def forward(self, U: Tensor) -> Tensor:  # noqa: D102
        return functional.max_pool2d(U, self.size)

    def apply(self, U: Tensor) -> Pooled:  # noqa: D102
        values, winners = functional.max_pool2d(U, self.size, return_indices=True)

        def spread(E: Tensor) -> Tensor:
            return functional.max_unpool2d(
                E, winners, (self.size, self.size), output_size=U.shape[2:]
            )

        return Pooled(values, spread)


class AvgPool(Pool):
    """The mean of each window; every entry gets its share of a residual."""

    kind = "average"

    @property
    def receivers(self) -> int:  # noqa: D102
        return self.size**2

    def forward(self, U: Tensor) -> Tensor:  # noqa: D102
        return functional.avg_pool2d(U, self.size)

    def apply(self, U: Tensor) -> Pooled:
        """The residual of a mean is met by moving every entry by as much."""

        def spread(E: Tensor) -> Tensor:
            full = torch.zeros_like(U)
            wide = E.repeat_interleave(self.size, 2).repeat_interleave(self.size, 3)
            full[:, :, : wide.shape[2], : wide.shape[3]] = wide
            return full

        return Pooled(self.forward(U), spread)


POOLS: dict[str, type[Pool]] = {pool.kind: pool for pool in (NoPool, MaxPool, AvgPool)}


def make_pool(kind: str, size: int) -> Pool:
    """The pooling of that name."""
    return POOLS[one_of("pooling", kind, POOLS)](count("a pooling window", size))
