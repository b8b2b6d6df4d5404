"""Pooling of pre-activations, before the step.

step is monotone, so pooling the largest pre-activation of a window and stepping afterwards is the
same as pooling bits.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional

from zeroone.nn.operators import Shape
from zeroone.utils.checks import InputError, count, one_of


class Pool(ABC):
    """Square windows of ``size``, side by side; what fills none at the far edge is left out."""

    kind: ClassVar[str]

    def __init__(self, size: int) -> None:
        self.size = size

    def shape_out(self, shape: Shape) -> Shape:
        """Of a sample, pooled."""
        if len(shape) != 3 or min(shape[1:]) < self.size:
            raise InputError(f"windows of {self.size} x {self.size} do not fit into {shape}.")
        return (shape[0], *(side // self.size for side in shape[1:]))

    @abstractmethod
    def forward(self, U: Tensor) -> Tensor:
        """The pooled values."""

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


class NoPool(Pool):
    """Every value for itself."""

    kind = "none"

    def __init__(self, size: int = 1) -> None:
        super().__init__(size)

    def shape_out(self, shape: Shape) -> Shape:  # noqa: D102
        return shape

    def forward(self, U: Tensor) -> Tensor:  # noqa: D102
        return U


class MaxPool(Pool):
    """The largest of each window."""

    kind = "max"

    def forward(self, U: Tensor) -> Tensor:  # noqa: D102
        return functional.max_pool2d(U, self.size)


class AvgPool(Pool):
    """The mean of each window."""

    kind = "average"

    def forward(self, U: Tensor) -> Tensor:  # noqa: D102
        return functional.avg_pool2d(U, self.size)


POOLS: dict[str, type[Pool]] = {pool.kind: pool for pool in (NoPool, MaxPool, AvgPool)}


def make_pool(kind: str, size: int) -> Pool:
    """The pooling of that name."""
    return POOLS[one_of("pooling", kind, POOLS)](count("a pooling window", size))
