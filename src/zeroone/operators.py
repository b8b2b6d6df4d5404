"""Linear operators between two layers of activations.

A solver sees an operator only through this interface, so it neither knows nor cares whether
the weights are free (``Dense``) or shared between positions (a convolution, whose ``gram`` and
``cross`` sum over all patches and whose columns come in groups of one kernel each):

- ``apply``:   U = W V + bias
- ``adjoint``: the transposed linear part, which carries a residual of U back to V
- ``gram``, ``cross``: the sums V^T V and E^T V, all that the W block needs of the data;
  ``centred_cross``: the second one of centred inputs in a given metric, in the cheaper order
- ``select``: the operator between fewer units
- ``is_matrix``: whether the V block may factorise ``linear``; without, it uses conjugate gradients

The weights are one matrix of shape (units out, columns). With a bias the last column belongs to
a constant-1 input: the bias is then trained by the same W block as everything else.
"""

from abc import ABC, abstractmethod
from copy import copy
from typing import Any, ClassVar

import torch
from torch import Tensor

from zeroone.checks import count


class Operator(ABC):
    """A linear map with an optional bias, given by its weight matrix ``weight``."""

    kind: ClassVar[str]
    is_matrix: ClassVar[bool] = False  # whether the linear part is ``linear`` itself: V -> V W^T

    def __init__(self, weight: Tensor, n_in: int, bias: bool) -> None:
        self.weight = weight
        self.n_in = n_in
        self.bias = bias

    @property
    def n_out(self) -> int:
        """How many units the operator feeds."""
        return self.weight.shape[0]

    @property
    def n_free(self) -> int:
        """Trailing columns that belong to no unit below: 1 with a bias, else 0."""
        return int(self.bias)

    @property
    def group(self) -> int:
        """How many columns of ``weight`` belong to one unit below (a kernel's size; 1 if dense)."""
        return (self.weight.shape[1] - self.n_free) // self.n_in

    @property
    def linear(self) -> Tensor:
        """The weights without the bias column (a view)."""
        return self.weight[:, : self.weight.shape[1] - self.n_free]

    @property
    def offset(self) -> Tensor | None:
        """The bias column (a view), or None."""
        return self.weight[:, -1] if self.bias else None

    @abstractmethod
    def apply(self, V: Tensor) -> Tensor:
        """U = W V + bias, one sample a row."""

    @abstractmethod
    def adjoint(self, E: Tensor) -> Tensor:
        """W^T E, one sample a row; the bias has no part in it."""

    @abstractmethod
    def gram(self, V: Tensor) -> Tensor:
        """V^T V over all samples (and positions), the constant-1 input included."""

    @abstractmethod
    def cross(self, E: Tensor, V: Tensor) -> Tensor:
        """E^T V over all samples (and positions), the constant-1 input included."""

    def centred_cross(self, E: Tensor, V: Tensor, mean: Tensor, R: Tensor) -> Tensor:
        """E^T (V - mean) R over all samples (and positions), without the constant-1 input."""
        C = self.cross(E, V)
        if self.bias:
            C = C[:, :-1] - torch.outer(C[:, -1], mean)
        return C @ R

    def total(self, E: Tensor) -> Tensor:
        """E^T 1: the residual of each unit, summed over all samples (and positions)."""
        return E.sum(dim=[d for d in range(E.ndim) if d != 1])

    def resized(self, weight: Tensor, n_in: int) -> "Operator":
        """An operator of the same kind from ``n_in`` units, with these weights."""
        other = copy(self)
        other.weight, other.n_in = weight, n_in
        return other

    @abstractmethod
    def select(self, below: Tensor, above: Tensor) -> "Operator":
        """The operator from the units ``below`` to the units ``above``, two lists of indices."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a model file must say to build this operator again, besides its weights."""


class Dense(Operator):
    """Every unit below feeds every unit above: ``apply(V) = V @ W.T + bias``."""

    kind = "dense"
    is_matrix = True

    @classmethod
    def gaussian(
        cls,
        n_in: int,
        n_out: int,
        *,
        std: float,
        bias: bool,
        generator: torch.Generator,
        dtype: torch.dtype,
    ) -> "Dense":
        """Random weights; biases start at zero."""
        count("the number of units below", n_in)
        count("the number of units above", n_out)
        weight = torch.zeros(n_out, n_in + bias, dtype=dtype)
        weight[:, :n_in].normal_(std=std, generator=generator)
        return cls(weight, n_in, bias)

    def apply(self, V: Tensor) -> Tensor:  # noqa: D102
        return torch.nn.functional.linear(V, self.linear, self.offset)

    def adjoint(self, E: Tensor) -> Tensor:  # noqa: D102
        return E @ self.linear

    def gram(self, V: Tensor) -> Tensor:  # noqa: D102
        A = V.T @ V
        if not self.bias:
            return A
        sums = V.sum(dim=0)
        bordered = A.new_empty(len(A) + 1, len(A) + 1)
        bordered[:-1, :-1] = A
        bordered[-1, :-1] = bordered[:-1, -1] = sums
        bordered[-1, -1] = len(V)
        return bordered

    def cross(self, E: Tensor, V: Tensor) -> Tensor:  # noqa: D102
        C = E.T @ V
        return torch.cat([C, E.sum(dim=0)[:, None]], dim=1) if self.bias else C

    def centred_cross(self, E: Tensor, V: Tensor, mean: Tensor, R: Tensor) -> Tensor:
        """E^T (V - mean) R: R meets whichever has fewer rows, the units above or the samples."""
        C = V - mean if self.bias else V
        return E.T @ C @ R if self.n_out <= len(V) else E.T @ (C @ R)

    def select(self, below: Tensor, above: Tensor) -> "Dense":  # noqa: D102
        columns = torch.cat([below, below.new_tensor([self.n_in] * self.n_free)])
        return Dense(self.weight[above][:, columns].contiguous(), len(below), self.bias)

    def describe(self) -> dict[str, Any]:  # noqa: D102
        return {"kind": self.kind, "in": self.n_in, "out": self.n_out, "bias": self.bias}
