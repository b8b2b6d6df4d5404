"""Layers: an operator, perhaps a shortcut, a pooling or none, and (in a network) the step after.

A layer is written as users write it: ``500`` is a dense layer of 500 units, ``conv5x5:32`` a
convolution with 32 filters, and options follow colons: ``max2`` or ``average2`` pools windows of
2 x 2, ``stride2``, ``pad1``. A convolution's padding is 0 unless said. ``skip2`` adds a shortcut
around the layer below, ``skip3`` around two of them, and so on; a dense layer may have one as well.
"""

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from zeroone.nn.operators import Conv2d, Dense, Operator, Shape, convolved, gaussian_weight
from zeroone.nn.pooling import NoPool, Pool, make_pool
from zeroone.utils.checks import InputError, count

MOST_UNITS = 10**6
MOST_SIDE = 10**4  # of a kernel, a padding, a stride or a window
LAYER = re.compile(r"(?:conv(\d+)x\1:)?(\d+)((?::[^:]*)*)")  # side, units, options
OPTION = re.compile(r"(max|average|stride|pad|skip)(\d+)")
LEAST = {"pad": 0, "skip": 2}  # number after an option; 1 for the others


@dataclass
class Layer:
    """What makes the pre-activations of a layer of the bits below it.

    A ``shortcut`` is a second operator, without a bias, on earlier activations: with ``skip`` 2 on
    those that entered the layer below, with 3 on those of the layer below that.
    """

    operator: Operator
    pool: Pool = field(default_factory=NoPool)
    shortcut: Operator | None = None
    skip: int = 0

    @property
    def operators(self) -> list[Operator]:
        """Whose sum the pre-activations are."""
        return [self.operator] if self.shortcut is None else [self.operator, self.shortcut]

    @property
    def shape_out(self) -> Shape:
        """Of a sample's pooled pre-activations."""
        return self.pool.shape_out(self.operator.shape_out)

    def apply(self, V: Sequence[Tensor]) -> Tensor:
        """The pre-activations; ``V``: the activations so far, those right below last."""
        U = self.operator.apply(V[-1])
        return U if self.shortcut is None else U.add_(self.shortcut.apply(V[-self.skip]))

    def forward(self, V: Sequence[Tensor]) -> Tensor:
        """The pooled pre-activations."""
        return self.pool.forward(self.apply(V))

    def describe(self) -> dict[str, Any]:
        """What a model file must say, besides the weights."""
        content = self.operator.describe()
        if not isinstance(self.pool, NoPool):
            content["pool"] = self.pool.describe()
        if self.shortcut is not None:
            content["shortcut"] = {"skip": self.skip} | self.shortcut.describe()
        return content


@dataclass(frozen=True)
class Link:
    """An operator in its place: from the activations V[source] to the sum of a layer.

    V[0] is the input and V[i] enters layer i, so a layer's own operator has ``source == layer``
    and a shortcut a smaller one. Activations with several links have several consumers.
    """

    operator: Operator
    source: int
    layer: int


def make_links(operators: Iterable[Operator], shortcuts: Iterable[Link]) -> list[Link]:
    """The operators of a chain in their places, then its shortcuts."""
    return [*(Link(op, i, i) for i, op in enumerate(operators)), *shortcuts]


def recent(V0: Tensor, skips: Iterable[int]) -> deque[Tensor]:
    """A place for the activations so far: it forgets those that no later layer looks back to."""
    return deque([V0], maxlen=max([1, *skips]))


class Skipped(NamedTuple):
    """What a shortcut takes: activations of a shape.

    And the stride at which a convolution picks their pixels: that of the way through the layers.
    """

    shape: Shape
    stride: int


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

    @classmethod
    def parse(cls, text: Any) -> "LayerPlan":
        """From a number of units, or from what a user wrote."""
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
        if not plan.kernel and plan != cls(plan.units, skip=plan.skip):
            raise InputError(f"of all options a dense layer has skip2 only, got {text!r}.")
        return plan

    def __str__(self) -> str:
        text = f"conv{self.kernel}x{self.kernel}:{self.units}" if self.kernel else str(self.units)
        text += f":stride{self.stride}" if self.stride > 1 else ""
        text += f":pad{self.padding}" if self.padding else ""
        text += f":skip{self.skip}" if self.skip else ""
        return text + (f":{self.pool}{self.window}" if self.pool != "none" else "")

    @property
    def written(self) -> int | str:
        """As short as a user would write it."""
        return str(self) if self.kernel or self.skip else self.units

    def skipped(self, shapes: Sequence[Shape], below: "Sequence[LayerPlan]") -> Skipped | None:
        """What the shortcut takes, if there is one.

        ``shapes``: of all activations so far; ``below``: the plans of all layers so far.
        """
        if not self.skip:
            return None
        around = below[len(below) + 1 - self.skip :]
        stride = self.stride * math.prod(plan.stride * plan.window for plan in around)
        return Skipped(shapes[-self.skip], stride)

    def shortcut(self, skipped: Skipped, shape_out: Shape) -> "LayerPlan":
        """The linear map from the skipped activations to pre-activations of a shape.

        Of images a 1x1 convolution whose stride is that of the layers it goes around and of this
        one, multiplied: it then picks pixels that they look at, too.
        """
        if not self.kernel:
            return LayerPlan(self.units)
        shape, stride = skipped
        sides = tuple(-(-side // stride) for side in shape[1:])
        if sides != shape_out[1:]:
            raise InputError(
                f"a shortcut from samples of shape {shape} at a stride of {stride}, as the layers "
                f"have it, would make {(self.units, *sides)}, but they make {shape_out}: their "
                f"paddings or pooling windows do not keep to that stride."
            )
        return LayerPlan(self.units, kernel=1, stride=stride)

    def build(
        self,
        shape_in: Shape,
        skipped: Skipped | None = None,
        *,
        std: float | None,
        bias: bool,
        generator: torch.Generator,
        dtype: torch.dtype,
    ) -> Layer:
        """A layer with Gaussian weights, and a shortcut from the activations ``skipped``.

        Without ``std`` the spread of the weights is 1 / sqrt(fan-in); of two operators each has
        half of the variance.
        """

        def draw(columns: int, bias: bool) -> Tensor:
            fan_in = columns if skipped is None else 2 * columns
            spread = fan_in**-0.5 if std is None else std
            return gaussian_weight(
                self.units, columns, std=spread, bias=bias, generator=generator, dtype=dtype
            )

        operator = self._operator(shape_in, bias, draw)
        layer = Layer(operator, make_pool(self.pool, self.window))
        _ = layer.shape_out  # refuses windows that do not fit
        if skipped is not None:
            plan = self.shortcut(skipped, operator.shape_out)
            layer.shortcut, layer.skip = plan._operator(skipped.shape, False, draw), self.skip
        return layer

    def check(self, shape_in: Shape) -> Shape:
        """The shape that the convolution makes, before pooling; refuses what it cannot take.

        It needs no weights: those of a kernel much too large would not fit into memory.
        """
        return convolved(shape_in, self.units, self.kernel, self.stride, self.padding)

    def _operator(
        self, shape_in: Shape, bias: bool, draw: Callable[[int, bool], Tensor]
    ) -> Operator:
        """With weights that ``draw`` gives for a number of columns."""
        if not self.kernel:
            return Dense(draw(math.prod(shape_in), bias), shape_in, bias)
        self.check(shape_in)
        return Conv2d(
            draw(shape_in[0] * self.kernel**2, bias),
            shape_in,
            bias,
            kernel=self.kernel,
            stride=self.stride,
            padding=self.padding,
        )


def check_skips(plans: Sequence[LayerPlan]) -> None:
    """Refuse shortcuts from below the inputs: the first layer has nothing to skip."""
    for i, plan in enumerate(plans):
        if plan.skip > i + 1:
            raise InputError(
                f"layer {i + 1} ({plan}): skip{plan.skip} reaches below the inputs of the network."
            )


def check_layers(plans: Sequence[LayerPlan], image: Shape | None) -> None:
    """Refuse convolutions that samples of this shape do not fit, before anything else is done."""
    if not plans or not plans[0].kernel:
        return
    convolutions = [plan for plan in plans if plan.kernel]
    check_skips(convolutions)
    shapes = [check_image(image)]
    for i, plan in enumerate(convolutions):
        with naming(f"layer {i + 1} ({plan})"):
            made = plan.check(shapes[-1])
            if skipped := plan.skipped(shapes, convolutions[:i]):
                plan.shortcut(skipped, made)
            shapes.append(make_pool(plan.pool, plan.window).shape_out(made))


def check_image(shape: Shape | None) -> Shape:
    """Convolutions need images."""
    if shape is None or len(shape) != 3:
        raise InputError(
            "a convolution needs images: an image data set, a folder of images by class, or the "
            "shape of a sample."
        )
    return shape


def _options(parts: Sequence[str], text: str) -> dict[str, Any]:
    """What the options of a layer set."""
    options: dict[str, Any] = {}
    for part in parts:
        found = OPTION.fullmatch(part)
        if found is None:
            raise InputError(
                f"unknown option {part!r} of the layer {text!r}: there are max2, average2, "
                f"stride2, pad1 and skip2, with any number."
            )
        name = found[1]
        number = count(
            f"the number after {name}", int(found[2]), least=LEAST.get(name, 1), most=MOST_SIDE
        )
        given: dict[str, Any] = {"padding" if name == "pad" else name: number}
        if name in ("max", "average"):
            given = {"pool": name, "window": number}
        if options.keys() & given.keys():
            twice = "a second pooling" if "pool" in given else f"{name} twice"
            raise InputError(f"the layer {text!r} has {twice}.")
        options |= given
    return options


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Say which layer a refusal is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


def build_layers(
    plans: Sequence[LayerPlan],
    shape_in: Shape,
    *,
    std: float | None = None,
    bias: bool = True,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> list[Layer]:
    """Layers on top of each other; a misfit is named with the number of its layer and both shapes.

    Without ``std`` a balanced start, see ``_balanced_offset``, and small scores of the last layer.
    """
    check_skips(plans)
    layers: list[Layer] = []
    shapes = [shape_in]  # of V[0], V[1] and so on
    for i, plan in enumerate(plans):
        with naming(f"layer {i + 1} ({plan})"):
            layer = plan.build(
                shapes[-1],
                plan.skipped(shapes, plans[:i]),
                std=std,
                bias=bias,
                generator=generator,
                dtype=dtype,
            )
        offset = layer.operator.offset
        if std is None and layers and offset is not None:
            offset.copy_(_balanced_offset(layer, shortcut_takes_bits=layer.skip <= i))
        layers.append(layer)
        shapes.append(layer.shape_out)
    if std is None:
        layers[-1].operator.weight *= 0.1
    return layers


def _balanced_offset(layer: Layer, *, shortcut_takes_bits: bool) -> Tensor:
    """Minus the mean of what the weights make of their inputs.

    Bits average 1/2: half the row sums. Scaled inputs average 0: nothing.
    """
    operators = layer.operators if shortcut_takes_bits else [layer.operator]
    sums = [op.linear.sum(dim=1) for op in operators]
    return -torch.stack(sums).sum(dim=0) / 2
