"""Layers: an operator, perhaps the sums of the layer below, a pooling; a network adds the step.

Users write a layer as text: ``500`` is a dense layer of 500 units, ``conv5x5:32`` a convolution
with 32 filters, and options follow colons: ``max2`` or ``average2`` pools windows of 2 x 2,
``stride2``, ``pad1`` (0 by default). ``bits2`` normalises the pre-activations over each batch of
the training and gives every unit two thresholds, so two bits. ``stream`` adds the pre-activations
of the layer below: u_i = pool(W_i v_{i-1} + u_{i-1}). Dense layers take the last two options only.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
NUMBERS = {"stride": "stride", "pad": "padding", "bits": "bits"}
STREAM = "stream"  # an option without a number
MOST_BITS = 8  # of a unit
STREAM_START = 0.3  # the size of first weights in a stream relative to others, at most
APART = 1.5  # thresholds of a normalised unit divide this many deviations on either side of 0
Draw = Callable[[int, int, bool], Tensor]  # of units, columns, bias


def thresholds_of(bits: int) -> tuple[float, ...]:
    """Return the thresholds of a unit with so many bits: evenly spaced, around 0."""
    return tuple(APART * (2 * j + 1 - bits) / bits for j in range(bits)) or (0.0,)


@dataclass
class Layer:
    """A map from the activations below to the pre-activations of a layer.

    A layer of a ``stream`` adds the pre-activations of the layer below to its own; if it has n
    times as many units, n copies of them side by side. A unit has one bit, or as many as ``bits``
    says (0 is one without normalisation while it trains), each with its own threshold.
    """

    operator: Operator
    pool: Pool = field(default_factory=NoPool)
    stream: bool = False
    bits: int = 0
    thresholds: Tensor | None = None  # (bits, units); None for ``thresholds_of(bits)``

    @property
    def shape_out(self) -> Shape:
        """The shape of a sample's activations."""
        units, *sides = self.sums_shape
        return (units * max(1, self.bits), *sides)

    @property
    def sums_shape(self) -> Shape:
        """The shape of a sample's pre-activations, pooled."""
        return self.pool.shape_out(self.operator.shape_out)

    def sums(self, V: Tensor, below: Tensor | None = None) -> Tensor:
        """Return the pooled pre-activations, given the activations and those of the layer below."""
        U = self.operator.apply(V)
        return self.pool.forward(add_stream(U, below) if self.stream else U)

    def activate(self, U: Tensor) -> Tensor:
        """Return the 0/1 activations of a hidden layer, given its pooled pre-activations."""
        thresholds = self.thresholds
        return compare(U, thresholds_of(self.bits) if thresholds is None else thresholds)

    def levels(self) -> Tensor:
        """Return the thresholds by bit and unit, whether they are given or those of ``bits``."""
        if self.thresholds is not None:
            return self.thresholds
        weight = self.operator.weight
        return weight.new_tensor(thresholds_of(self.bits))[:, None].expand(-1, len(weight))


def add_stream(U: Tensor, below: Tensor | None) -> Tensor:
    """Add the pre-activations of the layer below, as often as there are times more units."""
    if below is None:
        raise InputError("a stream begins at the second layer.")
    times = U.shape[1] // below.shape[1]
    return U + (below if times == 1 else torch.cat([below] * times, dim=1))


@dataclass(frozen=True)
class LayerPlan:
    """A layer before it has weights; ``kernel`` 0 is dense."""

    units: int
    kernel: int = 0
    stride: int = 1
    padding: int = 0
    pool: str = "none"
    window: int = 1
    bits: int = 0
    stream: bool = False

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
        if not plan.kernel and plan != cls(plan.units, bits=plan.bits, stream=plan.stream):
            raise InputError(f"a dense layer has the options bits2 and stream only, got {text!r}.")
        return plan

    @classmethod
    def of(cls, layer: Layer) -> "LayerPlan":
        """Plan a layer like one that has weights."""
        op, pool = layer.operator, layer.pool
        geometry = (op.kernel, op.stride, op.padding)
        return cls(op.n_out, *geometry, pool.kind, pool.size, layer.bits, layer.stream)

    def __str__(self) -> str:
        text = f"conv{self.kernel}x{self.kernel}:{self.units}" if self.kernel else str(self.units)
        text += f":stride{self.stride}" if self.stride > 1 else ""
        text += f":pad{self.padding}" if self.padding else ""
        text += f":bits{self.bits}" if self.bits else ""
        text += f":{STREAM}" if self.stream else ""
        return text + (f":{self.pool}{self.window}" if self.pool != "none" else "")

    @property
    def written(self) -> int | str:
        """The shortest way to write the layer."""
        return str(self) if self.kernel or self.stream or self.bits else self.units

    def outline(self, shape_in: Shape, shape_out: Shape) -> str:
        """Return a line about a layer with these shapes, such as ``dense, 784 -> 256``."""
        kind = str(self) if self.kernel else str(self).replace(str(self.units), "dense", 1)
        sizes = ("x".join(map(str, shape)) for shape in (shape_in, shape_out))
        return f"{kind}, {' -> '.join(sizes)}"

    def build(self, shape_in: Shape, below: Layer | None, draw: Draw, bias: bool) -> Layer:
        """Build the layer on samples of a shape, which the layer below gives."""
        if self.kernel:  # before there are weights: those of a huge kernel would fill the memory
            convolved(shape_in, self.units, self.kernel, self.stride, self.padding)
        columns = fan_in(shape_in, self.kernel)
        weight = draw(self.units, columns, bias)
        if weight.shape not in {(self.units, columns), (self.units, columns + bias)}:
            raise InputError(
                f"weights of shape {tuple(weight.shape)} do not take samples of shape {shape_in}."
            )
        operator = Operator(weight, shape_in, self.kernel, self.stride, self.padding)
        layer = Layer(operator, POOLS[self.pool](self.window), self.stream, self.bits)
        _ = layer.shape_out  # refuses windows that do not fit
        if self.stream:
            self._check_stream(below, operator.shape_out)
        return layer

    def _check_stream(self, below: Layer | None, shape: Shape) -> None:
        """Refuse a stream from a layer whose pre-activations do not fit those of this one."""
        if below is None:
            raise InputError("a stream begins at the second layer.")
        units, *sides = below.sums_shape
        if sides != list(shape[1:]) or shape[0] % units:
            raise InputError(
                f"a stream cannot add samples of shape {below.sums_shape}, those of the layer "
                f"below, to {shape}: it needs the same sides and a multiple of the units."
            )
        if below.bits != self.bits:
            bits = f"{below.bits} and {self.bits}"
            raise InputError(f"the layers of a stream have the same number of bits, not {bits}.")


def outline(name: str, layers: Sequence[str], about: dict[str, Any], backbone: str = "") -> str:
    """Return a summary of a network, a line a layer."""
    lines = [f"({i}): {layer}, Step" for i, layer in enumerate(layers[:-1])]
    lines.append(f"({len(lines)}): {layers[-1]}")
    lines = [f"(backbone): {backbone}"] * bool(backbone) + lines
    lines.append(", ".join(f"{key}={value}" for key, value in about.items()))
    return "\n".join([f"{name}(", *(f"  {line}" for line in lines), ")"])


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
        if part == STREAM and STREAM not in options:
            options[STREAM] = True
            continue
        found = OPTION.fullmatch(part)
        if found is None or found[1] not in (*NUMBERS, *pools):
            known = ", ".join(f"{kind}2" for kind in pools)
            raise InputError(
                f"unknown option {part!r} of the layer {text!r}: there are {known}, stride2, pad1 "
                f"and bits2, with any number, and stream."
            )
        name = found[1]
        most = MOST_BITS if name == "bits" else MOST_SIDE
        least = 0 if name == "pad" else 1
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
        draw: returns the weights of an operator.
        bias: whether the layers have biases, or may have them if ``draw`` decides.

    Raises:
        InputError: if a layer does not fit the one below; it names the layer and both shapes.

    """
    layers: list[Layer] = []
    for i, plan in enumerate(plans):
        below = layers[-1] if layers else None
        with naming(f"layer {i + 1} ({plan})"):
            shape = shape_in if below is None else below.shape_out
            layers.append(plan.build(shape, below, draw, bias))
    return layers


def gaussian(std: float | None, generator: torch.Generator, dtype: torch.dtype) -> Draw:
    """Draw Gaussian weights, and biases of 0; the default ``std`` is 1 / sqrt(fan-in)."""

    def draw(units: int, columns: int, bias: bool) -> Tensor:
        weight = torch.zeros(units, columns + bias, dtype=dtype)
        scale = columns**-0.5 if std is None else std
        weight[:, :columns].normal_(std=scale, generator=generator)
        return weight

    return draw


def balance(layers: Sequence[Layer]) -> None:
    """Set the biases so that hidden units are on for about half of the samples; shrink the scores.

    A bias is minus the mean of what the weights make of their inputs. Bits average 1/2: half the
    row sums. Scaled inputs average 0: nothing. What layers add to a stream starts small, all of it
    together no larger than what they add it to, so that deep streams start as shallow ones.
    """
    joined = sum(layer.stream for layer in layers)
    for layer in layers[1:]:
        if layer.stream:
            layer.operator.linear.mul_(min(STREAM_START, joined**-0.5))
        if layer.operator.offset is not None:
            layer.operator.offset.copy_(-layer.operator.linear.sum(dim=1) / 2)
    layers[-1].operator.weight *= 0.1
