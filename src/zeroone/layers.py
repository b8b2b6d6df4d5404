"""Layers: an operator, a pooling or none, and (in a network) the step after them.

A layer is written as users write it: ``500`` is a dense layer of 500 units, ``conv5x5:32`` a
convolution with 32 filters, and options follow colons: ``max2`` or ``average2`` pools windows of
2 x 2, ``stride2``, ``pad1``. A convolution's padding is 0 unless said.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from zeroone.checks import InputError, count
from zeroone.operators import Conv2d, Dense, Operator, Shape, gaussian_weight
from zeroone.pooling import NoPool, Pool, make_pool

MOST_UNITS = 10**6
OPTION = re.compile(r"(max|average|stride|pad)(\d+)")


@dataclass
class Layer:
    """What makes the pre-activations of a layer of the bits below it."""

    operator: Operator
    pool: Pool = field(default_factory=NoPool)

    @property
    def shape_out(self) -> Shape:
        """Of a sample's pooled pre-activations."""
        return self.pool.shape_out(self.operator.shape_out)

    def forward(self, V: Tensor) -> Tensor:
        """The pooled pre-activations."""
        return self.pool.forward(self.operator.apply(V))

    def describe(self) -> dict[str, Any]:
        """What a model file must say, besides the weights."""
        pool = {} if isinstance(self.pool, NoPool) else {"pool": self.pool.describe()}
        return self.operator.describe() | pool


@dataclass(frozen=True)
class LayerPlan:
    """A layer before it has weights; ``kernel`` 0 is dense."""

    units: int
    kernel: int = 0
    stride: int = 1
    padding: int = 0
    pool: str = "none"
    window: int = 1

    @classmethod
    def parse(cls, text: Any) -> "LayerPlan":
        """From a number of units, or from what a user wrote."""
        if not isinstance(text, str) or text.strip().isdigit():
            width = int(text) if isinstance(text, str) else text
            return cls(count("every hidden width", width, most=MOST_UNITS))
        name, *parts = text.strip().split(":")
        sides = re.fullmatch(r"conv(\d+)x(\d+)", name)
        if sides is None or sides[1] != sides[2] or not parts or not parts[0].isdigit():
            raise InputError(
                f"a layer is a number of units, such as 500, or a convolution, such as "
                f"conv5x5:32:max2; got {text!r}."
            )
        units = count("every hidden width", int(parts[0]), most=MOST_UNITS)
        options: dict[str, Any] = {}
        for part in parts[1:]:
            found = OPTION.fullmatch(part)
            if found is None:
                raise InputError(
                    f"unknown option {part!r} of the layer {text!r}: there are max2, average2, "
                    f"stride2 and pad1, with any number."
                )
            options |= _option(found[1], int(found[2]))
        return cls(units, count("a kernel's side", int(sides[1])), **options)

    def __str__(self) -> str:
        if not self.kernel:
            return str(self.units)
        text = f"conv{self.kernel}x{self.kernel}:{self.units}"
        text += f":stride{self.stride}" if self.stride > 1 else ""
        text += f":pad{self.padding}" if self.padding else ""
        return text + (f":{self.pool}{self.window}" if self.pool != "none" else "")

    def build(
        self,
        shape_in: Shape,
        *,
        std: float | None,
        bias: bool,
        generator: torch.Generator,
        dtype: torch.dtype,
    ) -> Layer:
        """A layer with Gaussian weights; without ``std`` their spread is 1 / sqrt(fan-in)."""
        columns = shape_in[0] * self.kernel**2 if self.kernel else math.prod(shape_in)
        spread = columns**-0.5 if std is None else std
        weight = gaussian_weight(
            self.units, columns, std=spread, bias=bias, generator=generator, dtype=dtype
        )
        if not self.kernel:
            return Layer(Dense(weight, shape_in, bias))
        if len(shape_in) != 3:
            raise InputError(f"a convolution takes images, not samples of shape {shape_in}.")
        operator = Conv2d(
            weight, shape_in, bias, kernel=self.kernel, stride=self.stride, padding=self.padding
        )
        layer = Layer(operator, make_pool(self.pool, self.window))
        _ = layer.shape_out  # refuses windows that do not fit
        return layer


def check_layers(plans: Sequence[LayerPlan], image: Shape | None) -> None:
    """Refuse convolutions that samples of this shape do not fit, before anything else is done."""
    convolutions = [plan for plan in plans if plan.kernel]
    if plans and plans[0].kernel:
        generator = torch.Generator().manual_seed(0)
        build_layers(convolutions, check_image(image), generator=generator, dtype=torch.float32)


def check_image(shape: Shape | None) -> Shape:
    """Convolutions need images."""
    if shape is None or len(shape) != 3:
        raise InputError(
            "a convolution needs images: an image data set, a folder of images by class, or the "
            "shape of a sample."
        )
    return shape


def _option(name: str, number: int) -> dict[str, Any]:
    count(f"the number after {name}", number, least=0 if name == "pad" else 1, most=10**4)
    if name in ("max", "average"):
        return {"pool": name, "window": number}
    return {"padding": number} if name == "pad" else {"stride": number}


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

    Without ``std`` a balanced start: bits average 1/2, so hidden biases above the first layer start
    at minus half the row sum, and the scores of the last layer are small.
    """
    layers: list[Layer] = []
    shape = shape_in
    for i, plan in enumerate(plans):
        try:
            layer = plan.build(shape, std=std, bias=bias, generator=generator, dtype=dtype)
        except InputError as error:
            raise InputError(f"layer {i + 1} ({plan}): {error}") from None
        op = layer.operator
        if std is None and layers and op.offset is not None:
            op.offset.copy_(-op.linear.sum(dim=1) / 2)
        layers.append(layer)
        shape = layer.shape_out
    if std is None:
        layers[-1].operator.weight *= 0.1
    return layers
