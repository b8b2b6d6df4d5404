"""Layers: an operator, an optional shortcut, a pooling or none; a network adds the step.

Users write a layer as text: ``500`` is a dense layer of 500 units, ``conv5x5:32`` a convolution
with 32 filters, and options follow colons: ``max2`` or ``average2`` pools windows of 2 x 2,
``stride2``, ``pad1`` (0 by default). ``bits2`` normalises the pre-activations over each batch of
the training and gives every unit two thresholds, so two bits. ``skip2`` adds a shortcut around the
layer below, ``skip3`` around two of them, and so on. Dense layers take the last two options only.
"""

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from zeroone.nn.functional import compare
from zeroone.nn.operators import Operator, Shape, convolved, fan_in
from zeroone.nn.pooling import POOLS, NoPool, Pool
from zeroone.utils.checks import InputError, count

MOST_UNITS = 10**6
MOST_SIDE = 10**4  # of a kernel, a padding, a stride or a window
LAYER = re.compile(r"(?:conv(\d+)x\1:)?(\d+)((?::[^:]*)*)")  # side, units, options
OPTION = re.compile(r"([a-z]+)(\d+)")
NUMBERS = {"stride": "stride", "pad": "padding", "bits": "bits", "skip": "skip"}
LEAST = {"pad": 0, "skip": 2}  # number after an option; 1 for the others
MOST_BITS = 8  # of a unit
APART = 1.5  # thresholds of a normalised unit divide this many deviations on either side of 0
Draw = Callable[[int, int, bool, int], Tensor]  # of units, columns, bias, operators in the sum


def thresholds_of(bits: int) -> tuple[float, ...]:
    """Return the thresholds of a unit with so many bits: evenly spaced, around 0."""
    return tuple(APART * (2 * j + 1 - bits) / bits for j in range(bits)) or (0.0,)


@dataclass
class Layer:
    """A map from the activations below to the pre-activations of a layer.

    A ``shortcut`` is a second operator, without a bias, on earlier activations: with ``skip`` 2 on
    those that entered the layer below, with 3 on those that entered the layer below that. A unit
    has one bit, or as many as ``bits`` says (0 is one without normalisation while it trains).
    """

    operator: Operator
    pool: Pool = field(default_factory=NoPool)
    shortcut: Operator | None = None
    skip: int = 0
    bits: int = 0

    @property
    def shape_out(self) -> Shape:
        """The shape of a sample's activations."""
        units, *sides = self.pool.shape_out(self.operator.shape_out)
        return (units * max(1, self.bits), *sides)

    def apply(self, V: Sequence[Tensor]) -> Tensor:
        """Return the pre-activations; ``V`` holds the activations so far, the last ones last."""
        U = self.operator.apply(V[-1])
        return U if self.shortcut is None else U.add_(self.shortcut.apply(V[-self.skip]))

    def forward(self, V: Sequence[Tensor]) -> Tensor:
        """Return the pooled pre-activations."""
        return self.pool.forward(self.apply(V))

    def activate(self, V: Sequence[Tensor]) -> Tensor:
        """Return the 0/1 activations of a hidden layer."""
        return compare(self.forward(V), thresholds_of(self.bits))

    def expanded(self) -> "Layer":
        """Return an equal layer whose units have one bit: one unit a threshold, side by side."""
        thresholds = thresholds_of(self.bits)
        if thresholds == (0.0,):
            return replace(self, bits=0)
        op, n = self.operator, len(thresholds)
        rows = op.linear.repeat_interleave(n, dim=0)
        offset = rows.new_zeros(op.n_out) if op.offset is None else op.offset
        moved = offset[:, None] - torch.tensor(thresholds).to(offset)
        weight = torch.cat([rows, moved.view(-1, 1)], dim=1)
        made = Operator(weight, op.shape_in, op.kernel, op.stride, op.padding)
        shortcut = deepcopy(self.shortcut)
        if shortcut is not None:
            shortcut.weight = shortcut.weight.repeat_interleave(n, dim=0)
        return Layer(made, self.pool, shortcut, self.skip)


@dataclass(frozen=True)
class Link:
    """An operator in its place: from the activations V[source] to the sum of a layer.

    V[0] is the input and V[i] enters layer i, so a layer's own operator has ``source == layer``
    and a shortcut a smaller one. Activations with several links have several consumers.
    """

    operator: Operator
    source: int
    layer: int


def links_of(layers: Sequence[Layer]) -> list[Link]:
    """Return the operators of a chain in their places, the first one first, then its shortcuts."""
    own = [Link(layer.operator, i, i) for i, layer in enumerate(layers)]
    return own + [
        Link(layer.shortcut, i + 1 - layer.skip, i)
        for i, layer in enumerate(layers)
        if layer.shortcut is not None
    ]


def recent(V0: Tensor, skips: Iterable[int]) -> deque[Tensor]:
    """Return a queue of activations that forgets those no later layer looks back to."""
    return deque([V0], maxlen=max([1, *skips]))


@dataclass(frozen=True)
class LayerPlan:
    """A layer before it has weights; ``kernel`` 0 is dense, ``skip`` 0 has no shortcut."""

    units: int
    kernel: int = 0
    stride: int = 1
    padding: int = 0
    pool: str = "none"
    window: int = 1
    skip: int = 0
    bits: int = 0

    @classmethod
    def parse(cls, text: Any) -> "LayerPlan":
        """Read a number of units, or a layer as users write it; a plan stays as it is."""
        if isinstance(text, cls):
            return text
        if not isinstance(text, str):
            return cls(count("every hidden width", text, most=MOST_UNITS))
        found = LAYER.fullmatch(text.strip())
        if found is None:
            raise InputError(
                f"a layer is a number of units, such as 500, or a convolution, such as "
                f"conv5x5:32:max2; got {text!r}."
            )
        side, units, options = found.groups()
        plan = cls(
            count("every hidden width", int(units), most=MOST_UNITS),
            0 if side is None else count("a kernel's side", int(side), most=MOST_SIDE),
            **_options(options.split(":")[1:], text),
        )
        if not plan.kernel and plan != cls(plan.units, skip=plan.skip, bits=plan.bits):
            raise InputError(f"a dense layer has the options bits2 and skip2 only, got {text!r}.")
        return plan

    @classmethod
    def of(cls, layer: Layer) -> "LayerPlan":
        """Plan a layer like one that has weights."""
        op, pool = layer.operator, layer.pool
        geometry = (op.kernel, op.stride, op.padding)
        return cls(op.n_out, *geometry, pool.kind, pool.size, layer.skip, layer.bits)

    def __str__(self) -> str:
        text = f"conv{self.kernel}x{self.kernel}:{self.units}" if self.kernel else str(self.units)
        text += f":stride{self.stride}" if self.stride > 1 else ""
        text += f":pad{self.padding}" if self.padding else ""
        text += f":bits{self.bits}" if self.bits else ""
        text += f":skip{self.skip}" if self.skip else ""
        return text + (f":{self.pool}{self.window}" if self.pool != "none" else "")

    @property
    def written(self) -> int | str:
        """The shortest way to write the layer."""
        return str(self) if self.kernel or self.skip or self.bits else self.units

    def outline(self, shape_in: Shape, shape_out: Shape) -> str:
        """Return a line about a layer with these shapes, such as ``dense, 784 -> 256``."""
        kind = str(self) if self.kernel else str(self).replace(str(self.units), "dense", 1)
        sizes = ("x".join(map(str, shape)) for shape in (shape_in, shape_out))
        return f"{kind}, {' -> '.join(sizes)}"

    def build(
        self, shapes: Sequence[Shape], below: "Sequence[LayerPlan]", draw: Draw, bias: bool
    ) -> Layer:
        """Build the layer, given the shapes of all activations and all plans so far."""
        parts = 2 if self.skip else 1
        operator = self._operator(shapes[-1], draw, parts, bias)
        pool = POOLS[self.pool](self.window)
        layer = Layer(operator, pool, skip=self.skip, bits=self.bits)
        _ = layer.shape_out  # refuses windows that do not fit
        if self.skip:
            around = below[len(below) + 1 - self.skip :]
            stride = self.stride * math.prod(plan.stride * plan.window for plan in around)
            source = shapes[-self.skip]
            plan = self._shortcut(source, stride, operator.shape_out)
            layer.shortcut = plan._operator(source, draw, parts, bias=False)
        return layer

    def _shortcut(self, source: Shape, stride: int, shape_out: Shape) -> "LayerPlan":
        """Plan the linear map from earlier activations to pre-activations of a shape.

        For images it is a 1x1 convolution. Its stride is the product of the strides of this layer
        and of those it goes around, so that it picks pixels that they see, too.
        """
        if not self.kernel:
            return LayerPlan(self.units)
        sides = tuple(-(-side // stride) for side in source[1:])
        if sides != shape_out[1:]:
            raise InputError(
                f"a shortcut from samples of shape {source} at a stride of {stride}, as the layers "
                f"have it, would make {(self.units, *sides)}, but they make {shape_out}: their "
                f"paddings or pooling windows do not keep to that stride."
            )
        return LayerPlan(self.units, kernel=1, stride=stride)

    def _operator(self, shape_in: Shape, draw: Draw, parts: int, bias: bool) -> Operator:
        if self.kernel:  # before there are weights: those of a huge kernel would fill the memory
            convolved(shape_in, self.units, self.kernel, self.stride, self.padding)
        columns = fan_in(shape_in, self.kernel)
        weight = draw(self.units, columns, bias, parts)
        if weight.shape not in {(self.units, columns), (self.units, columns + bias)}:
            raise InputError(
                f"weights of shape {tuple(weight.shape)} do not take samples of shape {shape_in}."
            )
        return Operator(weight, shape_in, self.kernel, self.stride, self.padding)


def outline(name: str, layers: Sequence[str], about: dict[str, Any], backbone: str = "") -> str:
    """Return a summary of a network, a line a layer."""
    lines = [f"({i}): {layer}, Step" for i, layer in enumerate(layers[:-1])]
    lines.append(f"({len(lines)}): {layers[-1]}")
    lines = [f"(backbone): {backbone}"] * bool(backbone) + lines
    lines.append(", ".join(f"{key}={value}" for key, value in about.items()))
    return "\n".join([f"{name}(", *(f"  {line}" for line in lines), ")"])


def check_skips(plans: Sequence[LayerPlan]) -> None:
    """Refuse shortcuts from below the inputs: the first layer has nothing to skip."""
    for i, plan in enumerate(plans):
        if plan.skip > i + 1:
            raise InputError(
                f"layer {i + 1} ({plan}): skip{plan.skip} reaches below the inputs of the network."
            )


def check_image(shape: Shape | None) -> Shape:
    """Require the shape of images, which convolutions need."""
    if shape is None or len(shape) != 3:
        raise InputError(
            "a convolution needs images: an image data set, a folder of images by class, or the "
            "shape of a sample."
        )
    return shape


def _options(parts: Sequence[str], text: str) -> dict[str, Any]:
    """Read the options of a layer."""
    pools = [kind for kind in POOLS if kind != NoPool.kind]
    options: dict[str, Any] = {}
    for part in parts:
        found = OPTION.fullmatch(part)
        if found is None or found[1] not in (*NUMBERS, *pools):
            known = ", ".join(f"{kind}2" for kind in pools)
            raise InputError(
                f"unknown option {part!r} of the layer {text!r}: there are {known}, stride2, pad1, "
                f"bits2 and skip2, with any number."
            )
        name = found[1]
        most = MOST_BITS if name == "bits" else MOST_SIDE
        least = LEAST.get(name, 1)
        number = count(f"the number after {name}", int(found[2]), least=least, most=most)
        option = NUMBERS.get(name, "window")
        if option in options:
            twice = "a second pooling" if name in pools else f"{name} twice"
            raise InputError(f"the layer {text!r} has {twice}.")
        options[option] = number
        if name in pools:
            options["pool"] = name
    return options


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Put the name of a layer in front of a refusal."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


def build_layers(
    plans: Sequence[LayerPlan], shape_in: Shape, draw: Draw, *, bias: bool = True
) -> list[Layer]:
    """Build layers on top of each other.

    Args:
        plans: the layers, the first one first.
        shape_in: the shape of a sample.
        draw: returns the weights of an operator; a layer's own come before those of its shortcut.
        bias: whether the layers have biases, or may have them if ``draw`` decides.

    Raises:
        InputError: if a layer does not fit the one below; it names the layer and both shapes.

    """
    check_skips(plans)
    layers: list[Layer] = []
    shapes = [shape_in]  # of V[0], V[1] and so on
    for i, plan in enumerate(plans):
        with naming(f"layer {i + 1} ({plan})"):
            layers.append(plan.build(shapes, plans[:i], draw, bias))
        shapes.append(layers[-1].shape_out)
    return layers


def gaussian(std: float | None, generator: torch.Generator, dtype: torch.dtype) -> Draw:
    """Draw Gaussian weights, and biases of 0.

    Without ``std`` the standard deviation is 1 / sqrt(fan-in); each of two operators that are added
    has half of that variance.
    """

    def draw(units: int, columns: int, bias: bool, parts: int) -> Tensor:
        weight = torch.zeros(units, columns + bias, dtype=dtype)
        scale = (parts * columns) ** -0.5 if std is None else std
        weight[:, :columns].normal_(std=scale, generator=generator)
        return weight

    return draw


def balance(layers: Sequence[Layer]) -> None:
    """Set the biases so that hidden units are on for about half of the samples; shrink the scores.

    A bias is minus the mean of what the weights make of their inputs. Bits average 1/2: half the
    row sums. Scaled inputs average 0: nothing.
    """
    of_bits = [link for link in links_of(layers) if link.source > 0]
    for i, layer in enumerate(layers[1:], start=1):
        if layer.operator.offset is not None:
            sums = [link.operator.linear.sum(dim=1) for link in of_bits if link.layer == i]
            layer.operator.offset.copy_(-torch.stack(sums).sum(dim=0) / 2)
    layers[-1].operator.weight *= 0.1
