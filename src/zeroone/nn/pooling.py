"""Pooling of pre-activations, before the step.

The step is monotone, so pooling the largest pre-activation of a window and then taking its step
equals pooling bits. A pooling is one class that ``register_pool`` makes known by its ``kind``:
``conv3x3:8:max2`` names the kind ``max`` with windows of 2 x 2.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from zeroone.nn.operators import Shape
from zeroone.utils.checks import InputError

POOLS: dict[str, "type[Pool]"] = {}


def register_pool(pool: "type[Pool]") -> "type[Pool]":
    """Make a pooling known by its ``kind``, a lower-case word, in layers and in model files."""
    POOLS[pool.kind] = pool
    return pool


class Pool(nn.Module, ABC):
    """Square windows of ``size``, side by side; rows and columns that fill none are dropped."""

    kind: ClassVar[str]

    def __init__(self, size: int = 1) -> None:
        super().__init__()
        self.size = size

    def shape_out(self, shape: Shape) -> Shape:
        """Return the shape of a pooled sample."""
        if len(shape) != 3 or min(shape[1:]) < self.size:
            raise InputError(f"windows of {self.size} x {self.size} do not fit into {shape}.")
        return (shape[0], *(side // self.size for side in shape[1:]))

    def extra_repr(self) -> str:
        """Show the side of a window."""
        return str(self.size)

    @abstractmethod
    def forward(self, U: Tensor) -> Tensor:
        """Pool the values."""

    @abstractmethod
    def flip(self, W: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nearest windows with the other bit, and their squared distances.

        Args:
            W: the entries of each window in the last axis, as ``windows`` gives them.

        """

    def windows(self, U: Tensor) -> Tensor:
        """Put the entries of each window into a last axis of their own."""
        k = self.size
        h, w = U.shape[2] // k, U.shape[3] // k
        tiles = U[:, :, : h * k, : w * k].reshape(*U.shape[:2], h, k, w, k)
        return tiles.transpose(3, 4).reshape(*U.shape[:2], h, w, k * k)

    def unwindow(self, T: Tensor, U: Tensor) -> Tensor:
        """Replace the entries of the windows of ``U``: the inverse of ``windows``."""
        k, (h, w) = self.size, T.shape[2:4]
        tiles = T.reshape(*T.shape[:4], k, k).transpose(3, 4)
        out = U.clone()
        out[:, :, : h * k, : w * k] = tiles.reshape(*T.shape[:2], h * k, w * k)
        return out


@register_pool
class NoPool(Pool):
    """No pooling."""

    kind = "none"

    def shape_out(self, shape: Shape) -> Shape:  # noqa: D102
        return shape

    def forward(self, U: Tensor) -> Tensor:  # noqa: D102
        return U

    def windows(self, U: Tensor) -> Tensor:  # noqa: D102
        return U[..., None]

    def unwindow(self, T: Tensor, U: Tensor) -> Tensor:  # noqa: ARG002, D102
        return T[..., 0]

    def flip(self, W: Tensor) -> tuple[Tensor, Tensor]:
        """Move every entry to its threshold."""
        return (W <= 0).to(W.dtype) * torch.finfo(W.dtype).tiny, W.square()[..., 0]


@register_pool
class MaxPool(Pool):
    """The largest entry of each window."""

    kind = "max"

    def forward(self, U: Tensor) -> Tensor:  # noqa: D102
        return functional.max_pool2d(U, self.size)

    def flip(self, W: Tensor) -> tuple[Tensor, Tensor]:
        """Lower all positive entries to 0, or lift the first largest one just above 0."""
        top, first = W.max(dim=-1, keepdim=True)
        off = W.clamp_max(0)
        on = W.scatter(-1, first, torch.finfo(W.dtype).tiny)
        is_on = top > 0
        cost = torch.where(is_on, W.clamp_min(0).square().sum(dim=-1, keepdim=True), top.square())
        return torch.where(is_on, off, on), cost[..., 0]


@register_pool
class AvgPool(Pool):
    """The mean of each window."""

    kind = "average"

    def forward(self, U: Tensor) -> Tensor:  # noqa: D102
        return functional.avg_pool2d(U, self.size)

    def flip(self, W: Tensor) -> tuple[Tensor, Tensor]:
        """Move all entries by the mean, and a hair beyond it."""
        mean = W.mean(dim=-1, keepdim=True)
        hair = 8 * torch.finfo(W.dtype).eps * W.abs().amax(dim=-1, keepdim=True)
        hair = hair + torch.finfo(W.dtype).tiny
        moved = W - mean + torch.where(mean > 0, -hair, hair)
        return moved, W.shape[-1] * mean[..., 0].square()
