"""Read the layers of a 0/1 network from a list of torch modules."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from zeroone.nn.chain import as_matrix, normalised, with_bias
from zeroone.nn.layers import Layer, LayerPlan, build_layers, check_image, naming
from zeroone.nn.operators import Operator, Shape
from zeroone.nn.pooling import POOLS, AvgPool, MaxPool, NoPool
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
    if not reader.plans or reader.closed or reader.plans[-1].kernel:
        raise InputError("a 0/1 network ends with a linear layer, its scores.")
    weights = iter(reader.weights)
    return build_layers(reader.plans, reader.shape_in, lambda *_: next(weights))


class _Reader:
    """Takes one module after the other."""

    def __init__(self, shape_in: Shape) -> None:
        self.shape_in = shape_in
        self.plans: list[LayerPlan] = []
        self.weights: list[Tensor] = []  # of each layer, as an operator holds them
        self.linear: nn.Linear | nn.Conv2d | None = None  # the last one
        self.closed = True  # whether a step has ended the last layer
        self.below: Shape = shape_in  # the shape of a sample that the last layer takes
        self.window = 1  # the side of the windows of bits that are averaged after the last step

    def take(self, module: nn.Module) -> None:
        """Add a module."""
        if isinstance(module, nn.Linear | nn.Conv2d):
            self._take_linear(module)
        elif isinstance(module, nn.MaxPool2d) and self.plans and self.window == 1:
            # Of bits, too: the step is monotone.
            self.plans[-1] = _pooled(self.plans[-1], module)
        elif isinstance(module, nn.AvgPool2d) and not self.closed:
            self.plans[-1] = _pooled(self.plans[-1], module)
        elif isinstance(module, nn.AvgPool2d | nn.AdaptiveAvgPool2d) and self.plans:
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
        if self.plans:
            self.below = self._shape
        weight = as_matrix(module)
        if self.window > 1:
            if not isinstance(module, nn.Linear):
                raise InputError("after an average of bits, a network has linear layers only.")
            weight = _spread(weight, self.below, self.window)
        self.plans.append(_plan(module))
        self.weights.append(weight)
        self.linear, self.closed, self.window = module, False, 1

    @property
    def _shape(self) -> Shape:
        """The shape of a sample's activations after the last layer."""
        plan = self.plans[-1]
        geometry = (plan.kernel, plan.stride, plan.padding)
        with torch.device("meta"):
            weight = torch.empty(plan.units, 0)
        with naming(f"layer {len(self.plans)} ({plan})"):
            shape = Operator(weight, self.below, *geometry).shape_out
            return POOLS[plan.pool](plan.window).shape_out(shape)

    def _average_bits(self, module: nn.AvgPool2d | nn.AdaptiveAvgPool2d) -> None:
        """Remember windows of bits: the linear layer above shares its weights in each of them."""
        shape, window = self._shape, 0
        if isinstance(module, nn.AvgPool2d):
            window = _pooled(LayerPlan(1), module).window
        elif shape[1:] and shape[1] == shape[-1]:
            wanted: Any = module.output_size
            windows, rest = divmod(shape[1], _side(wanted) or shape[1] + 1)
            window = 0 if rest else windows
        if not window or len(shape) != 3 or self.window > 1:
            raise InputError("averages of bits have square windows, side by side.")
        self.window = window

    def _normalise(self, norm: nn.BatchNorm1d | nn.BatchNorm2d) -> None:
        turns = norm.weight is not None and bool((norm.weight < 0).any())
        if turns and self.plans[-1].pool == MaxPool.kind:
            raise InputError("a negative weight makes the largest entry the smallest.")
        assert self.linear is not None
        self.weights[-1] = normalised(with_bias(self.weights[-1], self.linear), norm)

    def _close(self, step: Step) -> None:
        """End a layer; the biases absorb thresholds, one unit for each."""
        self.closed = True
        if step.thresholds == (0.0,):
            return
        assert self.linear is not None
        W = with_bias(self.weights[-1], self.linear)
        each = W.repeat(len(step.thresholds), 1)
        each[:, -1] -= torch.tensor(step.thresholds).to(W).repeat_interleave(len(W))
        self.weights[-1], self.plans[-1] = each, replace(self.plans[-1], units=len(each))


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


def _pooled(plan: LayerPlan, module: nn.MaxPool2d | nn.AvgPool2d) -> LayerPlan:
    """Add torch's pooling to a plan, or refuse windows that 0/1 networks do not have."""
    if plan.pool != NoPool.kind:
        raise InputError("it is a second pooling of the same layer.")
    size = _side(module.kernel_size)
    plain = _side(module.stride) == size and _side(module.padding) == 0 and not module.ceil_mode
    plain = plain and _side(getattr(module, "dilation", 1)) == 1
    if not plain or size is None or getattr(module, "divisor_override", None):
        raise InputError("poolings of 0/1 networks have square windows, side by side.")
    kind = MaxPool.kind if isinstance(module, nn.MaxPool2d) else AvgPool.kind
    return replace(plan, pool=kind, window=size)


def _side(size: int | tuple[int, ...]) -> int | None:
    """Return the side of a square, or None if it is none."""
    if isinstance(size, int):
        return size
    return int(size[0]) if len(set(size)) == 1 else None
