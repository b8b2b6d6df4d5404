"""Read the layers of a 0/1 network from a list of torch modules."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from zeroone.nn.chain import as_matrix
from zeroone.nn.layers import Layer, LayerPlan, check_image, naming
from zeroone.nn.operators import Shape
from zeroone.nn.pooling import AvgPool, MaxPool, NoPool, Pool
from zeroone.nn.step import Step
from zeroone.utils.checks import InputError


def read_layers(modules: list[nn.Module], image: Shape | None) -> list[Layer]:
    """Return the layers that a list of modules stands for.

    Raises:
        InputError: if it is no 0/1 network; it names the module that does not fit.

    """
    first = next((m for m in modules if isinstance(m, nn.Linear | nn.Conv2d)), None)
    if image is None and isinstance(first, nn.Linear):
        image = (first.in_features,)
    reader = _Reader(check_image(image) if image is None else image)
    for i, module in enumerate(modules):
        with naming(f"module {i} ({type(module).__name__})"):
            reader.take(module)
    if reader.closed or reader.layers[-1].operator.kernel:
        raise InputError("a 0/1 network ends with a linear layer, its scores.")
    return reader.layers


class _Reader:
    """Takes one module after the other."""

    def __init__(self, shape_in: Shape) -> None:
        self.layers: list[Layer] = []
        self.shape = shape_in  # of a sample after the last layer
        self.closed = True  # whether a step has ended the last layer
        self.window = 1  # the side of the windows of bits that are averaged after the last step

    def take(self, module: nn.Module) -> None:
        """Add a module."""
        if isinstance(module, nn.Linear | nn.Conv2d):
            self._take_linear(module)
        elif isinstance(module, nn.MaxPool2d) and self.layers and self.window == 1:
            self._pool(module)  # of bits, too: the step is monotone
        elif isinstance(module, nn.AvgPool2d) and not self.closed:
            self._pool(module)
        elif isinstance(module, nn.AvgPool2d | nn.AdaptiveAvgPool2d) and self.layers:
            self._average_bits(module)
        elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and not self.closed:
            self._normalise(module)
        elif isinstance(module, Step) and not self.closed:
            self._close(module)
        elif not isinstance(module, nn.Flatten | nn.Identity):
            raise InputError("it has no place in a 0/1 network.")

    def _take_linear(self, module: nn.Linear | nn.Conv2d) -> None:
        if not self.closed:
            raise InputError("it follows a layer without a Step between them.")
        weight, plan = as_matrix(module), _plan(module)
        if self.window > 1:
            if plan.kernel:
                raise InputError("after an average of bits, a network has linear layers only.")
            weight = _spread(weight, self.shape, self.window)
        with naming(f"layer {len(self.layers) + 1} ({plan})"):
            layer = plan.build(self.shape, None, lambda *_: weight, bias=True)
        self.layers.append(layer)
        self.shape, self.closed, self.window = layer.shape_out, False, 1

    def _pool(self, module: nn.MaxPool2d | nn.AvgPool2d) -> None:
        layer = self.layers[-1]
        if not isinstance(layer.pool, NoPool):
            raise InputError("it is a second pooling of the same layer.")
        layer.pool = _pooling(module)
        with naming(f"layer {len(self.layers)} ({LayerPlan.of(layer)})"):
            self.shape = layer.shape_out

    def _average_bits(self, module: nn.AvgPool2d | nn.AdaptiveAvgPool2d) -> None:
        """Remember windows of bits: the linear layer above shares its weights in each of them."""
        window = 0
        if isinstance(module, nn.AvgPool2d):
            window = _pooling(module).size
        elif self.shape[1:] and self.shape[1] == self.shape[-1]:
            wanted: Any = module.output_size
            windows, rest = divmod(self.shape[1], _side(wanted) or self.shape[1] + 1)
            window = 0 if rest else windows
        if not window or len(self.shape) != 3 or self.window > 1:
            raise InputError("averages of bits have square windows, side by side.")
        self.window = window

    def _normalise(self, norm: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        """Let weights and biases absorb a normalisation."""
        layer, mean, variance = self.layers[-1], norm.running_mean, norm.running_var
        if mean is None or variance is None:
            raise InputError("it keeps no running statistics.")
        weight = torch.ones_like(mean) if norm.weight is None else norm.weight
        if isinstance(layer.pool, MaxPool) and bool((weight < 0).any()):
            raise InputError("a negative weight makes the largest entry the smallest.")
        scale = weight.double() / (variance.double() + norm.eps).sqrt()
        W = _with_bias(layer)
        made = W.double() * scale[:, None]
        made[:, -1] -= mean.double() * scale
        if norm.bias is not None:
            made[:, -1] += norm.bias.double()
        layer.operator = layer.operator.with_weight(made.detach().to(W.dtype))

    def _close(self, step: Step) -> None:
        """End a layer; the biases absorb thresholds, one unit for each."""
        self.closed = True
        if step.thresholds != (0.0,):
            layer = self.layers[-1]
            W = _with_bias(layer)
            each = W.repeat(len(step.thresholds), 1)
            each[:, -1] -= torch.tensor(step.thresholds).to(W).repeat_interleave(len(W))
            layer.operator = layer.operator.with_weight(each)
            self.shape = layer.shape_out


def _with_bias(layer: Layer) -> Tensor:
    """Return a layer's weights with a bias in the last column: 0 if it has none."""
    op = layer.operator
    return op.weight if op.bias else functional.pad(op.weight, (0, 1))


def _spread(W: Tensor, shape: Shape, window: int) -> Tensor:
    """Return the weights of single bits, given those of averages over windows of them."""
    units, *sides = shape
    rows, columns = (side // window for side in sides)
    n = units * rows * columns
    tiles = W[:, :n].reshape(len(W), units, rows, columns) / window**2
    each = W.new_zeros(len(W), *shape)
    spread = tiles.repeat_interleave(window, dim=2).repeat_interleave(window, dim=3)
    each[:, :, : rows * window, : columns * window] = spread
    return torch.cat([each.flatten(1), W[:, n:]], dim=1)


def _plan(module: nn.Linear | nn.Conv2d) -> LayerPlan:
    """Return the plan of a layer, without a pooling."""
    if isinstance(module, nn.Linear):
        return LayerPlan(module.out_features)
    kernel, stride = _side(module.kernel_size), _side(module.stride)
    padding = None if isinstance(module.padding, str) else _side(module.padding)
    if module.padding == "valid":
        padding = 0
    elif module.padding == "same" and kernel is not None and kernel % 2:
        padding = kernel // 2
    plain = module.groups == 1 and _side(module.dilation) == 1 and module.padding_mode == "zeros"
    if not plain or kernel is None or stride is None or padding is None:
        raise InputError(
            "convolutions of 0/1 networks are square, padded alike on all sides, with no groups or "
            "dilation."
        )
    return LayerPlan(module.out_channels, kernel, stride, padding)


def _pooling(module: nn.MaxPool2d | nn.AvgPool2d) -> Pool:
    """Read torch's pooling, or refuse windows that 0/1 networks do not have."""
    size = _side(module.kernel_size)
    plain = _side(module.stride) == size and _side(module.padding) == 0 and not module.ceil_mode
    plain = plain and _side(getattr(module, "dilation", 1)) == 1
    if not plain or size is None or getattr(module, "divisor_override", None):
        raise InputError("poolings of 0/1 networks have square windows, side by side.")
    return MaxPool(size) if isinstance(module, nn.MaxPool2d) else AvgPool(size)


def _side(size: int | tuple[int, ...]) -> int | None:
    """Return the side of a square, or None if it is none."""
    if isinstance(size, int):
        return size
    return int(size[0]) if len(set(size)) == 1 else None
