"""Convolutional backbones in plain torch: from an image to the features of the dense layers.

A backbone is a function or class that takes the number of channels and a maker of activations, and
returns an ``nn.Sequential``; ``register_backbone`` makes it known by name. Model
files and records call a backbone ``body``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from zeroone.nn.functional import channels_last
from zeroone.nn.operators import Convolution, Shape
from zeroone.nn.scaling import Scaling
from zeroone.utils.checks import InputError, one_of

MakeActivation = Callable[[int], nn.Module]  # of a number of filters
Build = Callable[[int, MakeActivation], nn.Sequential]


@dataclass(frozen=True)
class BackboneKind:
    """A backbone that is known by name."""

    build: Build
    least: int  # pixels a side of the smallest image
    augment: str  # how its images are usually changed in every epoch


BACKBONES: dict[str, BackboneKind] = {}
BITS: dict[str, tuple[str, ...]] = {}  # the same layers with 0/1 activations


def register_backbone(
    name: str, *, least: int = 1, augment: str = "none", bits: Sequence[str] = ()
) -> Callable[[Build], Build]:
    """Make a backbone known by name.

    Args:
        name: what settings, the command line and model files call it.
        least: pixels a side of the smallest image that it takes.
        augment: how its images are usually changed in every epoch; see ``TrainSettings``.
        bits: the same layers as hidden layers of a 0/1 network, for training without
            back-propagation.

    """

    def register(build: Build) -> Build:
        BACKBONES[name] = BackboneKind(build, least, augment)
        if bits:
            BITS[name] = tuple(bits)
        return build

    return register


def _convolutions(
    channels: int, activation: MakeActivation, *, filters: Sequence[int], padding: int
) -> nn.Sequential:
    """Stack 3x3 convolutions, of which the first two are followed by 2x2 pooling."""
    layers: list[nn.Module] = []
    for i, n in enumerate(filters):
        layers += [Convolution(channels, n, 3, padding=padding), activation(n)]
        if i < 2:
            layers.append(nn.MaxPool2d(2))
        channels = n
    return nn.Sequential(*layers, nn.Flatten())


# 128 features of 8x8.
register_backbone("tiny", least=4, bits=("conv3x3:16:pad1:max2", "conv3x3:32:pad1:max2"))(
    partial(_convolutions, filters=(16, 32), padding=1)
)
# 576 features of 28x28. The backbone that Table 1's parameter counts point to (erratum E8).
register_backbone("small", least=18, bits=("conv3x3:32:max2", "conv3x3:64:max2", "conv3x3:64"))(
    partial(_convolutions, filters=(32, 64, 64), padding=0)
)


class Block(nn.Module):
    """Two 3x3 convolutions with batch normalisation, and a shortcut around them."""

    def __init__(self, n_in: int, n_out: int, stride: int, activation: MakeActivation) -> None:
        super().__init__()
        self.conv1 = Convolution(n_in, n_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(n_out)
        self.activate1 = activation(n_out)
        self.conv2 = Convolution(n_out, n_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(n_out)
        self.activate2 = activation(n_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or n_in != n_out:
            convolution = Convolution(n_in, n_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        inner = self.norm2(self.conv2(self.activate1(self.norm1(self.conv1(x)))))
        out: Tensor = self.activate2(inner + self.shortcut(x))
        return out


def stream_stages(widths: Sequence[int], depth: int = 4) -> tuple[str, ...]:
    """Return 0/1 layers in stages of a stream; between stages, pooling halves the images."""
    layers: list[str] = []
    for stage, width in enumerate(widths):
        for i in range(depth):
            joined = ":stream" if layers else ""
            pooled = ":max2" if i == depth - 1 and stage < len(widths) - 1 else ""
            layers.append(f"conv3x3:{width}:pad1:bits2{joined}{pooled}")
    return tuple(layers)


# The averaging of ResNet-18 is left out: images of 32 x 32 do not need it.
@register_backbone(
    "resnet18",
    augment="crop-flip",
    bits=("conv7x7:64:stride2:pad3:max2", *stream_stages((64, 128, 256, 512))),
)
class ResNet18(nn.Sequential):
    """ResNet-18 up to its 512 averaged features. He et al. (2016).

    ``stem``: 7, the published 7x7 convolution with stride 2 and a pooling after it, which the 0/1
    paper uses even for images of 32x32; or 3, the usual 3x3 convolution for such images.
    """

    def __init__(self, channels: int, activation: MakeActivation, stem: int = 7) -> None:
        strided = stem > 3
        layers: list[nn.Module] = [
            Convolution(channels, 64, stem, 2 if strided else 1, padding=stem // 2, bias=False),
            nn.BatchNorm2d(64),
            activation(64),
        ]
        if strided:
            layers.append(nn.MaxPool2d(3, stride=2, padding=1))
        widths = (64, 64, 128, 256, 512)
        for i in range(4):
            layers.append(Block(widths[i], widths[i + 1], 2 if i else 1, activation))
            layers.append(Block(widths[i + 1], widths[i + 1], 1, activation))
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


register_backbone("resnet18-3x3", augment="crop-flip")(partial(ResNet18, stem=3))


def check_image(name: str, image: Shape | None) -> Shape:
    """Require a shape (channels, height, width) that the backbone can take."""
    if image is None or len(image) != 3:
        raise InputError(
            f"the backbone {name!r} needs images: an image data set, or a folder of images by "
            f"class."
        )
    least = BACKBONES[name].least
    if min(image[1:]) < least:
        size = " x ".join(map(str, image[1:]))
        raise InputError(
            f"the backbone {name!r} needs images of {least} x {least} pixels or more, these have "
            f"{size}."
        )
    return tuple(image)


def default_backbone(image: Shape | None) -> str:
    """Return the usual backbone for images: a ResNet-18, or a smaller one for grey images."""
    if image is None or len(image) != 3 or image[0] > 1:
        return "resnet18"
    side = min(image[1:])
    return next((name for name in ("small", "tiny") if side >= BACKBONES[name].least), "resnet18")


def make_backbone(name: str, image: Shape | None, activation: MakeActivation) -> nn.Sequential:
    """Build a backbone for rows of flattened images of a shape (channels, height, width)."""
    shape = check_image(name, image)
    return nn.Sequential(nn.Unflatten(1, shape), *BACKBONES[name].build(shape[0], activation))


class Backbone(nn.Module):
    """A trained backbone with ReLU activations: scaled inputs in, scaled features out."""

    centre: Tensor
    scale: Tensor

    def __init__(self, name: str, image: Shape, layers: nn.Sequential, scaling: Scaling) -> None:
        """Hold the layers of ``make_backbone`` and the scaling of their features."""
        super().__init__()
        self.name, self.image = name, image
        self.layers = channels_last(layers)
        self.register_buffer("centre", scaling.centre)
        self.register_buffer("scale", scaling.scale)
        self.eval().requires_grad_(requires_grad=False)

    def train(self, mode: bool = True) -> "Backbone":  # noqa: ARG002
        """Stay in evaluation mode: batches must not change a trained normalisation."""
        return super().train(False)

    @property
    def n_inputs(self) -> int:
        """How many numbers an image has."""
        return math.prod(self.image)

    @property
    def n_features(self) -> int:
        """How many features an image has."""
        return len(self.centre)

    def forward(self, V: Tensor) -> Tensor:
        """Return the scaled features of scaled inputs, one image a row."""
        return Scaling(self.centre, self.scale).apply(self.layers(V))

    def describe(self) -> dict[str, Any]:
        """Return what a model file says of the backbone, besides its tensors."""
        return {"kind": self.name, "image": list(self.image)}

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of a model file."""
        state = self.state_dict()  # batch normalisation counts batches, and nobody asks
        return {name: T for name, T in state.items() if not name.endswith("num_batches_tracked")}

    @classmethod
    def rebuild(cls, described: dict[str, Any], tensors: dict[str, Tensor]) -> "Backbone":
        """Build a backbone from a model file; wrong descriptions allocate no memory."""
        name, image = one_of("backbone", described["kind"], BACKBONES), tuple(described["image"])
        if len(image) != 3 or not all(type(side) is int and 0 < side <= 10**5 for side in image):
            raise InputError(f"a backbone takes images of three sides, not of shape {image}.")
        with torch.device("meta"):
            layers = make_backbone(name, image, lambda _units: nn.ReLU())
        scaling = Scaling(tensors["centre"], tensors["scale"])
        n_features = layers.eval()(torch.zeros(1, math.prod(image), device="meta")).shape[1]
        backbone = cls(name, image, layers, scaling)
        try:
            backbone.load_state_dict(tensors, assign=True)
        except RuntimeError:
            raise InputError(f"its weights are not those of a backbone {name!r}.") from None
        if not scaling.fits(n_features):
            raise InputError(f"what should scale the {n_features} features of a backbone does not.")
        channels_last(backbone.layers)
        return backbone.requires_grad_(requires_grad=False)
