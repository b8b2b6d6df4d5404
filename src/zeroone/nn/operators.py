"""Linear operators between two layers of activations.

A solver uses an operator only through this interface, so it does not know whether the weights are
free (``Dense``) or shared between positions (``Conv2d``, whose ``gram`` and ``cross`` sum over all
patches and whose columns come in groups of one kernel each):

- ``apply``:   U = W V + bias
- ``adjoint``: the transposed linear part, which carries a residual of U back to V
- ``gram``, ``cross``: the sums V^T V and E^T V, all that the W block needs of the data
- ``select``: the operator between fewer units
- ``is_matrix``: whether the V block may factorise ``linear``; otherwise it uses conjugate gradients

The weights are one matrix of shape (units out, columns). With a bias the last column belongs to a
constant input of 1, so the same W block trains the bias. Where activations are images, a unit is a
filter; ``shape_in`` and ``shape_out`` are the shapes of a sample.
"""

import math
from abc import ABC, abstractmethod
from copy import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional, grad

from zeroone.nn.convolution import FEW
from zeroone.nn.functional import channels_last
from zeroone.utils.checks import InputError, count

Shape = tuple[int, ...]  # of a sample: (units,), or (channels, height, width)


class Operator(ABC):
    """A linear map with an optional bias, given by its weight matrix ``weight``."""

    kind: ClassVar[str]
    geometry: ClassVar[tuple[str, ...]] = ()  # the numbers that it needs besides its shapes

    def __init__(self, weight: Tensor, shape_in: Shape | int, bias: bool) -> None:
        self.weight = weight
        self.shape_in: Shape = (shape_in,) if isinstance(shape_in, int) else shape_in
        self.bias = bias

    @staticmethod
    @abstractmethod
    def n_columns(shape_in: Shape, **geometry: int) -> int:
        """Return the number of columns, without that of the bias."""

    @property
    def n_in(self) -> int:
        """The number of units below."""
        return self.shape_in[0]

    @property
    def n_out(self) -> int:
        """The number of units above."""
        return self.weight.shape[0]

    @property
    def n_inputs(self) -> int:
        """How many numbers a sample has."""
        return math.prod(self.shape_in)

    @property
    @abstractmethod
    def shape_out(self) -> Shape:
        """The shape of a sample's pre-activations."""

    @property
    def is_matrix(self) -> bool:
        """Whether the linear part is ``linear`` itself: V -> V W^T."""
        return False

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
        """Return U = W V + bias, one sample a row."""

    @abstractmethod
    def adjoint(self, E: Tensor) -> Tensor:
        """Return W^T E without the bias, one sample a row."""

    @abstractmethod
    def patches(self, V: Tensor) -> Tensor:
        """Return the inputs of each position of each sample, one a row."""

    @abstractmethod
    def products(self, E: Tensor, V: Tensor) -> Tensor:
        """Return E^T V over all samples (and positions), without the constant input."""

    def gram(self, V: Tensor) -> Tensor:
        """Return V^T V over all samples (and positions), with the constant input of a bias."""
        rows = self.patches(V)
        A = rows.T @ rows
        if not self.bias:
            return A
        bordered = A.new_empty(len(A) + 1, len(A) + 1)
        bordered[:-1, :-1] = A
        bordered[-1, :-1] = bordered[:-1, -1] = rows.sum(dim=0)
        bordered[-1, -1] = len(rows)
        return bordered

    def cross(self, E: Tensor, V: Tensor) -> Tensor:
        """Return E^T V over all samples (and positions), with the constant input of a bias."""
        C = self.products(E, V)
        if not self.bias:
            return C
        totals = E.sum(dim=[d for d in range(E.ndim) if d != 1])
        return torch.cat([C, totals[:, None]], dim=1)

    def resized(self, weight: Tensor, n_in: int) -> "Operator":
        """Return an operator of the same kind from ``n_in`` units, with these weights."""
        other = copy(self)
        other.weight, other.shape_in = weight, (n_in, *self.shape_in[1:])
        return other

    def columns_of(self, below: Tensor) -> Tensor:
        """Return the columns that belong to these units below."""
        return (below[:, None] * self.group + torch.arange(self.group)).flatten()

    def select(self, below: Tensor, above: Tensor) -> "Operator":
        """Return the operator between the units ``below`` and ``above``, two lists of indices."""
        n_columns = self.weight.shape[1]
        free = torch.arange(n_columns - self.n_free, n_columns)
        columns = torch.cat([self.columns_of(below), free])
        return self.resized(self.weight[above][:, columns].contiguous(), len(below))

    @abstractmethod
    def new_module(self, convolution: type[nn.Conv2d]) -> nn.Linear | nn.Conv2d:
        """Return torch's module of this size; its weights do not count."""

    def as_module(self, convolution: type[nn.Conv2d] = nn.Conv2d) -> nn.Linear | nn.Conv2d:
        """Return a copy as torch's module; ``convolution`` is the class of one that convolves."""
        with torch.device("meta"):
            module = self.new_module(convolution)
        module.weight = nn.Parameter(self.linear.detach().clone().reshape(module.weight.shape))
        if self.offset is not None:
            module.bias = nn.Parameter(self.offset.detach().clone())
        return module

    def describe(self) -> dict[str, Any]:
        """Return what a model file says of the operator, besides its weights."""
        size = self.shape_in[0] if len(self.shape_in) == 1 else list(self.shape_in)
        content = {"kind": self.kind, "in": size, "out": self.n_out, "bias": self.bias}
        return content | {name: getattr(self, name) for name in self.geometry}


class Dense(Operator):
    """Every number below feeds every unit above: ``apply(V) = V @ W.T + bias``.

    Images below are flattened; a unit is then a filter and has a column for each of its positions.
    """

    kind = "dense"

    @staticmethod
    def n_columns(shape_in: Shape, **geometry: int) -> int:  # noqa: ARG004, D102
        return math.prod(shape_in)

    @property
    def is_matrix(self) -> bool:
        """Whether V is flat: the columns of images come in groups."""
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

    def products(self, E: Tensor, V: Tensor) -> Tensor:  # noqa: D102
        return E.T @ V.flatten(1)

    def new_module(self, convolution: type[nn.Conv2d]) -> nn.Linear:  # noqa: ARG002, D102
        return nn.Linear(self.n_inputs, self.n_out, bias=self.bias)


def convolved(shape: Shape, filters: int, kernel: int, stride: int, padding: int) -> Shape:
    """Return the shape that square kernels make of images.

    Raises:
        InputError: if the kernels do not fit the images or the strides skip pixels.

    """
    if len(shape) != 3:
        raise InputError(f"a convolution takes images, not samples of shape {shape}.")
    count("a kernel's side", kernel)
    count("a stride", stride)
    count("a padding", padding, least=0)
    made = (filters, *(1 + (n + 2 * padding - kernel) // stride for n in shape[1:]))
    if min(made) < 1:
        raise InputError(
            f"a kernel of {kernel} x {kernel} with padding {padding} is larger than its input "
            f"{shape}."
        )
    rest = max((n + 2 * padding - kernel) % stride for n in shape[1:])
    if kernel >= stride and rest > padding:  # smaller kernels pick pixels on purpose
        raise InputError(
            f"kernels of {kernel} x {kernel} at a stride of {stride} would make {made} of {shape} "
            f"and never see {rest - padding} of its rows or columns: pad it, or take another "
            f"stride."
        )
    return made


class Conv2d(Operator):
    """A convolution of images (channels, height, width) with square kernels.

    The columns of the weights are the entries of the kernels, one kernel for each channel below.
    """

    kind = "conv2d"
    geometry = ("kernel", "stride", "padding")

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
        self._sides = convolved(shape_in, self.n_out, kernel, stride, padding)[1:]
        channels = self.linear.shape[1] / kernel**2
        if channels != shape_in[0]:
            raise InputError(
                f"a convolution with kernels for {channels:g} channels cannot take {shape_in}."
            )

    @staticmethod
    def n_columns(shape_in: Shape, **geometry: int) -> int:  # noqa: D102
        return shape_in[0] * geometry["kernel"] ** 2

    @property
    def shape_out(self) -> Shape:  # noqa: D102
        return (self.n_out, *self._sides)

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

    def products(self, E: Tensor, V: Tensor) -> Tensor:  # noqa: D102
        if self.kernel == 1 or self.positions <= FEW:
            # Torch's own is slow here or, for strided 1x1 kernels, wrong: see ``Convolution``.
            return E.permute(0, 2, 3, 1).reshape(-1, self.n_out).T @ self.patches(V)
        shape = (self.n_out, self.n_in, self.kernel, self.kernel)
        C: Tensor = grad.conv2d_weight(  # type: ignore[no-untyped-call]
            self._image(V), shape, channels_last(E), self.stride, self.padding
        )
        return C.flatten(1)

    def new_module(self, convolution: type[nn.Conv2d]) -> nn.Conv2d:  # noqa: D102
        geometry = (self.kernel, self.stride, self.padding)
        return convolution(self.n_in, self.n_out, *geometry, bias=self.bias)


OPERATORS: dict[str, type[Operator]] = {operator.kind: operator for operator in (Dense, Conv2d)}
