"""The kinds of layers whose weights are W blocks, each in one class.

A layer kind says what the W block needs of a module: its weights as one matrix a group, (groups,
units, columns), the inputs that meet these columns, and which axis of its output holds the units.
``register_layer`` adds a kind; docs/guides/researcher.md has an example.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from zeroone.optim.preconditioner import Diagonal, LowRank, Preconditioner

ROWS = 128  # of inputs and of residuals per layer in an observed batch
SCATTER = 2654435761  # Knuth's multiplier: consecutive numbers land far apart, modulo 2^32

LAYERS: dict[type[nn.Module], "type[LayerKind]"] = {}


def register_layer(
    *modules: type[nn.Module],
) -> Callable[["type[LayerKind]"], "type[LayerKind]"]:
    """Make a layer kind responsible for these module classes and their subclasses."""

    def register(kind: type[LayerKind]) -> type[LayerKind]:
        for module in modules:
            LAYERS[module] = kind
        return kind

    return register


def layer_kind(module: nn.Module) -> "LayerKind | None":
    """Return the layer kind of a module, or None if it has no W block."""
    for base in type(module).__mro__:
        if base in LAYERS:
            return LAYERS[base](module)
    return None


def some_vectors(T: Tensor, dim: int, numbers: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """Pick about ``ROWS`` of the vectors along an axis, scattered over all other axes.

    See ``LayerKind.rows`` for the rest.
    """
    vectors = T.movedim(dim, -1)
    each = math.prod(vectors.shape[1:-1])
    of_rows = (numbers[:, None] * each + torch.arange(each)).flatten()
    share = min(1.0, ROWS / max(1, total * each))
    picked = (of_rows * SCATTER % 2**32 < share * 2**32).nonzero().flatten()
    at = torch.unravel_index(picked, vectors.shape[:-1])
    return vectors[tuple(i.to(T.device) for i in at)][None], picked // max(1, each)


class LayerKind(ABC):
    """What a W block needs of a module."""

    unit_dim: ClassVar[int] = 1
    preconditioner: ClassVar[type[Preconditioner]] = LowRank

    def __init__(self, module: Any) -> None:
        self.module = module

    @property
    def weight(self) -> nn.Parameter:
        """The weights."""
        weight: nn.Parameter = self.module.weight
        return weight

    @property
    def bias(self) -> nn.Parameter | None:
        """The bias, if the module has one."""
        bias: nn.Parameter | None = getattr(self.module, "bias", None)
        return bias

    @property
    def groups(self) -> int:
        """The number of groups, whose units have inputs of their own."""
        return 1

    @property
    def axes(self) -> int:
        """The least number of axes of its output, with that of the batch."""
        return 2

    @property
    def n_units(self) -> int:
        """The number of units of all groups."""
        return self.matrix(self.weight.data).shape[:2].numel()

    @abstractmethod
    def matrix(self, weight: Tensor) -> Tensor:
        """Return the weights or their gradient as a view (groups, units, columns)."""

    def store(self, weight: Tensor, W: Tensor) -> None:
        """Copy a changed matrix back, where ``matrix`` could not return a view."""
        if W.data_ptr() != weight.data_ptr():
            weight.copy_(W.view(weight.shape))

    @abstractmethod
    def rows(self, x: Tensor, numbers: Tensor, total: int) -> tuple[Tensor, Tensor]:
        """Pick about ``ROWS`` of the inputs that meet the columns: (groups, rows, columns).

        Also return the index in x of each row's sample.

        Args:
            x: the samples of this process.
            numbers: their places in the whole batch. The choice depends on these only, so it does
                not depend on how the batch is divided among processes.
            total: the number of samples in the whole batch.

        """

    def residual_rows(self, residual: Tensor, numbers: Tensor, total: int) -> tuple[Tensor, Tensor]:
        """Pick about ``ROWS`` of the units' residuals: (1, rows, units); see ``rows``."""
        return some_vectors(residual, self.unit_dim, numbers, total)

    def selected(self, weight: Tensor, units: Tensor | None, columns: Tensor | None) -> Tensor:
        """Copy some units and columns of the weights, or of a tensor of their shape."""
        kept = weight if units is None else weight[units]
        if columns is not None:
            kept = kept.flatten(1)[:, columns].reshape(len(kept), -1, *kept.shape[2:])
        return kept.clone()

    @abstractmethod
    def tell_sizes(self) -> None:
        """Update the module's size attributes from its weights."""

    @abstractmethod
    def columns_of(self, values: Tensor) -> Tensor:
        """Return one number per column, from a probe with constant input channels."""


@register_layer(nn.Linear)
class LinearKind(LayerKind):
    """A dense layer. If samples have several axes, the last one meets the weights."""

    unit_dim = -1

    def matrix(self, weight: Tensor) -> Tensor:  # noqa: D102
        return weight[None]

    def rows(self, x: Tensor, numbers: Tensor, total: int) -> tuple[Tensor, Tensor]:  # noqa: D102
        return some_vectors(x, -1, numbers, total)

    def tell_sizes(self) -> None:  # noqa: D102
        self.module.out_features, self.module.in_features = self.weight.shape

    def columns_of(self, values: Tensor) -> Tensor:  # noqa: D102
        return values.reshape(-1, values.shape[-1])[0]


@register_layer(nn.Conv1d, nn.Conv2d, nn.Conv3d)
class ConvKind(LayerKind):
    """A convolution in one to three dimensions, of any stride, padding, dilation and groups."""

    @property
    def groups(self) -> int:  # noqa: D102
        return int(self.module.groups)

    @property
    def axes(self) -> int:  # noqa: D102
        return 2 + len(self.module.kernel_size)

    def matrix(self, weight: Tensor) -> Tensor:  # noqa: D102
        # In memory, the channels may come last: such kernels cannot be viewed as they are.
        flat = weight if weight.is_contiguous() else weight.contiguous()
        return flat.view(self.groups, weight.shape[0] // self.groups, -1)

    def rows(self, x: Tensor, numbers: Tensor, total: int) -> tuple[Tensor, Tensor]:
        """Pick patches at one or a few scattered positions of each sample."""
        sides = x.shape[2:]
        windows = [self._windows(d, side) for d, side in enumerate(sides)]
        positions = math.prod(map(len, windows))
        each = max(1, min(positions, ROWS // max(1, total)))
        stride = max(1, total // ROWS)  # large batches: not every sample
        samples = (numbers % stride == 0).nonzero().flatten().repeat_interleave(each)
        of_rows = numbers[samples] // stride * each + torch.arange(len(samples)) % each
        at = torch.unravel_index(of_rows * SCATTER % 2**31 % positions, [*map(len, windows)])
        shape = (len(samples), *self.module.kernel_size)
        index: Any = [samples.view(-1, *[1] * len(sides)).to(x.device), slice(None)]
        outside = torch.zeros(shape, dtype=torch.bool)
        for d, side in enumerate(sides):
            axes = [n if axis == d else 1 for axis, n in enumerate(self.module.kernel_size)]
            places = windows[d][at[d]].view(len(samples), *axes)
            outside |= places == side
            index.append(places.clamp(max=side - 1).to(x.device))
        patches = x[tuple(index)].masked_fill(outside[..., None].to(x.device), 0).movedim(-1, 1)
        columns = math.prod(patches.shape[1:])
        rows = patches.reshape(len(samples), self.groups, columns // self.groups)
        return rows.transpose(0, 1), samples

    def _windows(self, d: int, side: int) -> Tensor:
        """Return which places along an axis each window sees; ``side`` stands for a padded 0."""
        module, mode = self.module, self.module.padding_mode
        ends = module._reversed_padding_repeated_twice[::-1][2 * d : 2 * d + 2][::-1]
        fill = {"mode": "constant", "value": side} if mode == "zeros" else {"mode": mode}
        places = torch.arange(side, dtype=torch.float64)  # torch pads no integers by reflection
        padded = functional.pad(places[None], ends, **fill)[0].long()
        reach = module.dilation[d] * (module.kernel_size[d] - 1) + 1
        return padded.unfold(0, reach, module.stride[d])[:, :: module.dilation[d]]

    def tell_sizes(self) -> None:  # noqa: D102
        module = self.module
        if module.groups == module.in_channels > 1:  # depthwise: a channel goes with its units
            module.groups = len(self.weight) * module.groups // module.out_channels
        module.out_channels = len(self.weight)
        module.in_channels = self.weight.shape[1] * module.groups

    def columns_of(self, values: Tensor) -> Tensor:  # noqa: D102
        channels = values[0].flatten(1).amax(dim=1)
        return channels.repeat_interleave(math.prod(self.module.kernel_size))


@register_layer(nn.Embedding)
class EmbeddingKind(LinearKind):
    """An embedding: a dense layer on one-hot tokens, whose columns are the rows of its weight."""

    preconditioner = Diagonal

    def matrix(self, weight: Tensor) -> Tensor:  # noqa: D102
        return weight.mT[None]

    def rows(self, x: Tensor, numbers: Tensor, total: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Count each token."""
        counts = torch.bincount(x.flatten(), minlength=len(self.weight))
        return counts.to(self.weight.dtype)[None, None], torch.zeros(1, dtype=torch.long)

    def selected(self, weight: Tensor, units: Tensor | None, columns: Tensor | None) -> Tensor:  # noqa: ARG002
        """Copy some units, which are columns of the weight; tokens always stay."""
        return weight.clone() if units is None else weight[:, units].clone()

    def tell_sizes(self) -> None:  # noqa: D102
        self.module.num_embeddings, self.module.embedding_dim = self.weight.shape
