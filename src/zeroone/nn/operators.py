"""Linear operators between two layers of activations.

A solver sees an operator only through this interface, so it neither knows nor cares whether
the weights are free (``Dense``) or shared between positions (``Conv2d``, whose ``gram`` and
``cross`` sum over all patches and whose columns come in groups of one kernel each):

- ``apply``:   U = W V + bias
- ``adjoint``: the transposed linear part, which carries a residual of U back to V
- ``gram``, ``cross``: the sums V^T V and E^T V, all that the W block needs of the data
- ``select``: the operator between fewer units
- ``is_matrix``: whether the V block may factorise ``linear``; without, it uses conjugate gradients

The weights are one matrix of shape (units out, columns). With a bias the last column belongs to
a constant-1 input: the bias is then trained by the same W block as everything else. A unit is a
filter where activations are images; ``shape_in`` and ``shape_out`` are those of a sample.
"""

import math
from abc import ABC, abstractmethod
from copy import copy
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional, grad

from zeroone.nn.convolution import FEW
from zeroone.nn.functional import channels_last
from zeroone.utils.checks import InputError, count

Shape = tuple[int, ...]  # of a sample: (units,), or (channels, height, width)


class Operator(ABC):
    """A linear map with an optional bias, given by its weight matrix ``weight``."""

    kind: ClassVar[str]
    is_matrix: ClassVar[bool] = False  # whether the linear part is ``linear`` itself: V -> V W^T

    def __init__(self, weight: Tensor, shape_in: Shape | int, bias: bool) -> None:
        self.weight = weight
        self.shape_in: Shape = (shape_in,) if isinstance(shape_in, int) else shape_in
        self.bias = bias

    @property
    def n_in(self) -> int:
        """How many units feed the operator."""
        return self.shape_in[0]

    @property
    def n_out(self) -> int:
        """How many units the operator feeds."""
        return self.weight.shape[0]

    @property
    def n_inputs(self) -> int:
        """How many numbers a sample has."""
        return math.prod(self.shape_in)

    @property
    @abstractmethod
    def shape_out(self) -> Shape:
        """Of a sample's pre-activations."""

    @property
    def positions(self) -> int:
        """How many positions of a sample's pre-activations share the weights."""
        return math.prod(self.shape_out[1:])

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

    def gram(self, V: Tensor) -> Tensor:
        """V^T V over all samples (and positions), with the constant-1 input if there is a bias."""
        rows = self.patches(V)
        A = rows.T @ rows
        if not self.bias:
            return A
        bordered = A.new_empty(len(A) + 1, len(A) + 1)
        bordered[:-1, :-1] = A
        bordered[-1, :-1] = bordered[:-1, -1] = rows.sum(dim=0)
        bordered[-1, -1] = len(rows)
        return bordered

    @abstractmethod
    def patches(self, V: Tensor) -> Tensor:
        """The inputs of each position of each sample, one a row."""

    @abstractmethod
    def cross(self, E: Tensor, V: Tensor) -> Tensor:
        """E^T V over all samples (and positions), the constant-1 input included."""

    def total(self, E: Tensor) -> Tensor:
        """E^T 1: the residual of each unit, summed over all samples (and positions)."""
        return E.sum(dim=[d for d in range(E.ndim) if d != 1])

    def resized(self, weight: Tensor, n_in: int) -> "Operator":
        """An operator of the same kind from ``n_in`` units, with these weights."""
        other = copy(self)
        other.weight, other.shape_in = weight, (n_in, *self.shape_in[1:])
        return other

    def columns_of(self, below: Tensor) -> Tensor:
        """The columns that belong to these units below."""
        return (below[:, None] * self.group + torch.arange(self.group)).flatten()

    def select(self, below: Tensor, above: Tensor) -> "Operator":
        """The operator from the units ``below`` to the units ``above``, two lists of indices."""
        n_columns = self.weight.shape[1]
        free = torch.arange(n_columns - self.n_free, n_columns)
        columns = torch.cat([self.columns_of(below), free])
        return self.resized(self.weight[above][:, columns].contiguous(), len(below))

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a model file must say to build this operator again, besides its weights."""


def gaussian_weight(
    n_out: int,
    columns: int,
    *,
    std: float,
    bias: bool,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> Tensor:
    """Random weights; biases start at zero."""
    count("the number of units below", columns)
    count("the number of units above", n_out)
    weight = torch.zeros(n_out, columns + bias, dtype=dtype)
    weight[:, :columns].normal_(std=std, generator=generator)
    return weight


class Dense(Operator):
    """Every number below feeds every unit above: ``apply(V) = V @ W.T + bias``.

    Images below are flattened; a unit is then a filter and has a column for each of its positions.
    """

    kind = "dense"

    @property
    def is_matrix(self) -> bool:  # type: ignore[override]
        """Of images the columns come in groups, but V -> V W^T all the same, once flattened."""
        return len(self.shape_in) == 1

    @property
    def shape_out(self) -> Shape:  # noqa: D102
        return (self.n_out,)

    def apply(self, V: Tensor) -> Tensor:  # noqa: D102
        return functional.linear(V.flatten(1), self.linear, self.offset)

    def adjoint(self, E: Tensor) -> Tensor:  # noqa: D102
        return (E @ self.linear).reshape(len(E), *self.shape_in)

    def patches(self, V: Tensor) -> Tensor:  # noqa: D102
        return V.flatten(1)

    def cross(self, E: Tensor, V: Tensor) -> Tensor:  # noqa: D102
        C = E.T @ V.flatten(1)
        return torch.cat([C, E.sum(dim=0)[:, None]], dim=1) if self.bias else C

    def describe(self) -> dict[str, Any]:  # noqa: D102
        size = self.shape_in[0] if len(self.shape_in) == 1 else list(self.shape_in)
        return {"kind": self.kind, "in": size, "out": self.n_out, "bias": self.bias}


def convolved(shape: Shape, filters: int, kernel: int, stride: int, padding: int) -> Shape:
    """The shape that square kernels make of images; refuses kernels and strides that do not fit."""
    if len(shape) != 3:
        raise InputError(f"a convolution takes images, not samples of shape {shape}.")
    count("a kernel's side", kernel)
    count("a stride", stride)
    count("a padding", padding, least=0)
    made = _shape_out(shape, filters, kernel, stride, padding)
    if min(made) < 1:
        raise InputError(
            f"a kernel of {kernel} x {kernel} with padding {padding} is larger than its input "
            f"{shape}."
        )
    rest = max((n + 2 * padding - kernel) % stride for n in shape[1:])
    if kernel >= stride and rest > padding:  # smaller kernels pick pixels, and mean to
        raise InputError(
            f"kernels of {kernel} x {kernel} at a stride of {stride} would make {made} of {shape} "
            f"and never see {rest - padding} of its rows or columns: pad it, or take another "
            f"stride."
        )
    return made


def _shape_out(shape: Shape, filters: int, kernel: int, stride: int, padding: int) -> Shape:
    return (filters, *(1 + (n + 2 * padding - kernel) // stride for n in shape[1:]))


class Conv2d(Operator):
    """A convolution of images (channels, height, width) with square kernels.

    The columns of the weights are the entries of the kernels, one kernel a channel below.
    """

    kind = "conv2d"

    def __init__(
        self,
        weight: Tensor,
        shape_in: Shape,
        bias: bool,
        *,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
    ) -> None:
        super().__init__(weight, shape_in, bias)
        self.kernel, self.stride, self.padding = kernel, stride, padding
        convolved(shape_in, self.n_out, kernel, stride, padding)
        channels = self.linear.shape[1] / kernel**2
        if channels != shape_in[0]:
            raise InputError(
                f"a convolution with kernels for {channels:g} channels cannot take {shape_in}."
            )

    @property
    def shape_out(self) -> Shape:  # noqa: D102
        return _shape_out(self.shape_in, self.n_out, self.kernel, self.stride, self.padding)

    @property
    def _kernels(self) -> Tensor:
        return channels_last(self.linear.reshape(self.n_out, self.n_in, self.kernel, self.kernel))

    def _image(self, V: Tensor) -> Tensor:
        return channels_last(V.reshape(len(V), *self.shape_in))

    def apply(self, V: Tensor) -> Tensor:  # noqa: D102
        return functional.conv2d(
            self._image(V), self._kernels, self.offset, self.stride, self.padding
        )

    def adjoint(self, E: Tensor) -> Tensor:  # noqa: D102
        shape = (len(E), *self.shape_in)
        V: Tensor = grad.conv2d_input(  # type: ignore[no-untyped-call]
            shape, self._kernels, channels_last(E), self.stride, self.padding
        )
        return V

    def patches(self, V: Tensor) -> Tensor:  # noqa: D102
        rows = functional.unfold(
            self._image(V), self.kernel, padding=self.padding, stride=self.stride
        )
        return rows.transpose(1, 2).reshape(-1, rows.shape[1])

    def cross(self, E: Tensor, V: Tensor) -> Tensor:  # noqa: D102
        by_patches = self.kernel == 1 or self.positions <= FEW
        C = self._cross_by_patches(E, V) if by_patches else self._cross_by_torch(E, V)
        return torch.cat([C, self.total(E)[:, None]], dim=1) if self.bias else C

    def _cross_by_torch(self, E: Tensor, V: Tensor) -> Tensor:
        shape = (self.n_out, self.n_in, self.kernel, self.kernel)
        C: Tensor = grad.conv2d_weight(  # type: ignore[no-untyped-call]
            self._image(V), shape, channels_last(E), self.stride, self.padding
        )
        return C.flatten(1)

    def _cross_by_patches(self, E: Tensor, V: Tensor) -> Tensor:
        """Where torch's own is slow or, for strided 1x1 kernels, wrong: see ``Convolution``."""
        return E.permute(0, 2, 3, 1).reshape(-1, self.n_out).T @ self.patches(V)

    def describe(self) -> dict[str, Any]:  # noqa: D102
        return {
            "kind": self.kind,
            "in": list(self.shape_in),
            "out": self.n_out,
            "bias": self.bias,
            "kernel": self.kernel,
            "stride": self.stride,
            "padding": self.padding,
        }
