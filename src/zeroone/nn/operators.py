"""Linear operators between two layers of activations, dense or with shared weights.

The exact solver asks of them

- ``apply``:   U = W V + bias
- ``adjoint``: the transposed linear part, which carries a residual of U back to V
- ``gram``, ``cross``: the sums V^T V and E^T V, all that the W block needs of the data; those of a
  convolution sum over all patches
- ``is_matrix``: whether the V block may factorise ``linear``; otherwise it uses conjugate gradients
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional, grad

from zeroone.nn.functional import channels_last
from zeroone.utils.checks import InputError

Shape = tuple[int, ...]  # of a sample: (units,), or (channels, height, width)
FEW = 4  # positions of an image up to which torch's sum over patches is slower than a product


class Operator:
    """A linear map with an optional bias: dense, or a convolution with square kernels.

    The weights are one matrix of shape (units out, columns). With a bias the last column belongs to
    a constant input of 1, so the same W block trains the bias.

    Every number below a dense operator feeds every unit above; images are flattened, and a unit
    below is then a filter and has a column for each of its positions. The columns of a convolution
    are the entries of its kernels, one kernel for each channel below.
    """

    def __init__(
        self,
        weight: Tensor,
        shape_in: Shape | int,
        kernel: int = 0,
        stride: int = 1,
        padding: int = 0,
    ) -> None:
        """Take weights for samples of a shape; ``kernel`` 0 is dense."""
        self.weight = weight
        self.shape_in: Shape = (shape_in,) if isinstance(shape_in, int) else shape_in
        self.kernel, self.stride, self.padding = kernel, stride, padding
        self.bias = weight.shape[1] > fan_in(self.shape_in, kernel)

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
    def shape_out(self) -> Shape:
        """The shape of a sample's pre-activations."""
        if not self.kernel:
            return (self.n_out,)
        return convolved(self.shape_in, self.n_out, self.kernel, self.stride, self.padding)

    @property
    def is_matrix(self) -> bool:
        """Whether the linear part is ``linear`` itself: V -> V W^T."""
        return not self.kernel and len(self.shape_in) == 1

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

    @property
    def _kernels(self) -> Tensor:
        return channels_last(self.linear.reshape(self.n_out, self.n_in, self.kernel, self.kernel))

    def _image(self, V: Tensor) -> Tensor:
        return channels_last(V.reshape(len(V), *self.shape_in))

    def apply(self, V: Tensor) -> Tensor:
        """Return U = W V + bias, one sample a row."""
        if not self.kernel:
            return functional.linear(V.flatten(1), self.linear, self.offset)
        return functional.conv2d(
            self._image(V), self._kernels, self.offset, self.stride, self.padding
        )

    def adjoint(self, E: Tensor) -> Tensor:
        """Return W^T E without the bias, one sample a row."""
        shape = (len(E), *self.shape_in)
        if not self.kernel:
            return (E @ self.linear).reshape(shape)
        V: Tensor = grad.conv2d_input(  # type: ignore[no-untyped-call]
            shape, self._kernels, channels_last(E), self.stride, self.padding
        )
        return V

    def _patches(self, V: Tensor) -> Tensor:
        """Return the inputs of each position of each sample, one a row."""
        if not self.kernel:
            return V.flatten(1)
        rows = functional.unfold(
            self._image(V), self.kernel, padding=self.padding, stride=self.stride
        )
        return rows.transpose(1, 2).reshape(-1, rows.shape[1])

    def gram(self, V: Tensor) -> Tensor:
        """Return V^T V over all samples (and positions), with the constant input of a bias."""
        rows = self._patches(V)
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
        C = self._products(E, V)
        if not self.bias:
            return C
        totals = E.sum(dim=[d for d in range(E.ndim) if d != 1])
        return torch.cat([C, totals[:, None]], dim=1)

    def _products(self, E: Tensor, V: Tensor) -> Tensor:
        if not self.kernel:
            return E.T @ V.flatten(1)
        if self.kernel == 1 or self.positions <= FEW:
            # Torch's own is slow here or, for strided 1x1 kernels, wrong: see ``Convolution``.
            return E.permute(0, 2, 3, 1).reshape(-1, self.n_out).T @ self._patches(V)
        C: Tensor = grad.conv2d_weight(  # type: ignore[no-untyped-call]
            self._image(V), self._kernels.shape, channels_last(E), self.stride, self.padding
        )
        return C.flatten(1)

    def columns_of(self, below: Tensor) -> Tensor:
        """Return the columns that belong to these units below."""
        return (below[:, None] * self.group + torch.arange(self.group)).flatten()

    def select(self, below: Tensor, above: Tensor) -> None:
        """Keep only the units ``below`` and ``above``, two lists of indices."""
        n_columns = self.weight.shape[1]
        free = torch.arange(n_columns - self.n_free, n_columns)
        columns = torch.cat([self.columns_of(below), free])
        self.weight = self.weight[above][:, columns].contiguous()
        self.shape_in = (len(below), *self.shape_in[1:])

    def with_weight(self, weight: Tensor) -> "Operator":
        """Return an operator of the same geometry with other units."""
        return Operator(weight, self.shape_in, self.kernel, self.stride, self.padding)

    def as_module(self, convolution: type[nn.Conv2d] = nn.Conv2d) -> nn.Linear | nn.Conv2d:
        """Return a copy as torch's module; ``convolution`` is the class of one that convolves."""
        module: nn.Linear | nn.Conv2d
        with torch.device("meta"):
            if self.kernel:
                geometry = (self.kernel, self.stride, self.padding)
                module = convolution(self.n_in, self.n_out, *geometry, bias=self.bias)
            else:
                module = nn.Linear(self.n_inputs, self.n_out, bias=self.bias)
        module.weight = nn.Parameter(self.linear.detach().clone().reshape(module.weight.shape))
        if self.offset is not None:
            module.bias = nn.Parameter(self.offset.detach().clone())
        return module


def fan_in(shape: Shape, kernel: int) -> int:
    """Return how many numbers of a sample feed one pre-activation; ``kernel`` 0 is dense."""
    return shape[0] * kernel**2 if kernel else math.prod(shape)


def convolved(shape: Shape, filters: int, kernel: int, stride: int, padding: int) -> Shape:
    """Return the shape that square kernels make of images.

    Raises:
        InputError: if the kernels do not fit the images or the strides skip pixels.

    """
    if len(shape) != 3:
        raise InputError(f"a convolution takes images, not samples of shape {shape}.")
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


class Convolution(nn.Conv2d):
    """``nn.Conv2d`` with square kernels, without two weaknesses that it has on a CPU.

    Where the output has one position, torch's gradient of the weights takes ten times as long as
    that of a matrix product with the entries of the kernels that see more than padding. For 1x1
    kernels with a stride above 1 and channels that are no multiple of 8, that gradient writes
    beyond its memory (torch 2.13), so ``forward`` picks the pixels first.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Convolve images as ``nn.Conv2d`` does."""
        kernel, stride, padding = self.kernel_size[0], self.stride[0], int(self.padding[0])
        if kernel == 1 and stride > 1:
            picked = functional.pad(input, [padding] * 4)[:, :, ::stride, ::stride]
            return functional.conv2d(picked, self.weight, self.bias)
        beyond = [side + 2 * padding - kernel for side in input.shape[2:]]
        if not all(0 <= room < stride for room in beyond):
            return super().forward(input)
        height, width = (max(0, min(kernel - padding, side)) for side in input.shape[2:])
        seen = self.weight[:, :, padding : padding + height, padding : padding + width]
        pixels = input[:, :, :height, :width]
        product = functional.linear(pixels.flatten(1), seen.flatten(1), self.bias)
        return product[:, :, None, None]
