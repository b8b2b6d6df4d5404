"""Convolutional backbones, in plain torch: from an image to the features of the dense layers.

Each takes the number of channels and what makes the activation of a layer of so many filters.
Settings, the command line and model files say ``body``.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zeroone.nn.convolution import Convolution
from zeroone.nn.functional import channels_last
from zeroone.nn.operators import Shape
from zeroone.nn.scaling import Scaling
from zeroone.utils.checks import InputError, one_of

MakeActivation = Callable[[int], nn.Module]
UNUSED = "num_batches_tracked"  # batch normalisation counts, and nobody asks


class TinyBackbone(nn.Sequential):
    """3x3 convolutions with 16 and 32 filters, both pooled: 128 features of 8x8."""

    def __init__(self, channels: int, activation: MakeActivation) -> None:
        super().__init__(
            Convolution(channels, 16, 3, padding=1),
            activation(16),
            nn.MaxPool2d(2),
            Convolution(16, 32, 3, padding=1),
            activation(32),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )


class SmallBackbone(nn.Sequential):
    """3x3 convolutions with 32, 64 and 64 filters, the first two pooled: 576 features of 28x28.

    The backbone that Table 1's parameter counts point to (erratum E8).
    """

    def __init__(self, channels: int, activation: MakeActivation) -> None:
        super().__init__(
            Convolution(channels, 32, 3),
            activation(32),
            nn.MaxPool2d(2),
            Convolution(32, 64, 3),
            activation(64),
            nn.MaxPool2d(2),
            Convolution(64, 64, 3),
            activation(64),
            nn.Flatten(),
        )


class Block(nn.Module):
    """Two 3x3 convolutions with batch normalisation, and a way around them."""

    def __init__(self, n_in: int, n_out: int, stride: int, activation: MakeActivation) -> None:
        super().__init__()
        self.conv1 = Convolution(n_in, n_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(n_out)
        self.activate1 = activation(n_out)
        self.conv2 = Convolution(n_out, n_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(n_out)
        self.activate2 = activation(n_out)
        same = stride == 1 and n_in == n_out
        self.shortcut = nn.Identity() if same else _projection(n_in, n_out, stride)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        inner = self.norm2(self.conv2(self.activate1(self.norm1(self.conv1(x)))))
        out: Tensor = self.activate2(inner + self.shortcut(x))
        return out


def _projection(n_in: int, n_out: int, stride: int) -> nn.Sequential:
    convolution = Convolution(n_in, n_out, 1, stride, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(n_out))


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


def _resnet_3x3(channels: int, activation: MakeActivation) -> ResNet18:
    return ResNet18(channels, activation, stem=3)


BACKBONES: dict[str, Callable[[int, MakeActivation], nn.Sequential]] = {
    "tiny": TinyBackbone,
    "small": SmallBackbone,
    "resnet18": ResNet18,
    "resnet18-3x3": _resnet_3x3,
}
LEAST = {"tiny": 4, "small": 18, "resnet18": 1, "resnet18-3x3": 1}  # pixels a side


def residual_blocks(widths: Sequence[int]) -> tuple[str, ...]:
    """The layers of stages of two residual blocks each; later stages begin with a stride.

    What comes after takes the bits of every position of the last stage: averaging them would not
    leave bits, and pooling before the step loses what the positions say.
    """
    layers = []
    for stage, width in enumerate(widths):
        for block in range(2):
            stride = ":stride2" if stage and not block else ""
            layers += [f"conv3x3:{width}{stride}:pad1", f"conv3x3:{width}:pad1:skip2"]
    return tuple(layers)


# The same layers with 0/1 activations: what trains a backbone without back-propagation. Of
# ResNet-18 without the averaging, which images of 32 x 32 do not need.
BITS = {
    "tiny": ("conv3x3:16:pad1:max2", "conv3x3:32:pad1:max2"),
    "small": ("conv3x3:32:max2", "conv3x3:64:max2", "conv3x3:64"),
    "resnet18": ("conv7x7:64:stride2:pad3:max2", *residual_blocks((64, 128, 256, 512))),
}


def check_image(name: str, image: Shape | None) -> Shape:
    """Require a shape (channels, height, width) that the backbone can take."""
    if image is None or len(image) != 3:
        raise InputError(
            f"the body {name!r} needs images: an image data set, or a folder of images by class."
        )
    if min(image[1:]) < LEAST[name]:
        size = " x ".join(map(str, image[1:]))
        raise InputError(
            f"the body {name!r} needs images of {LEAST[name]} x {LEAST[name]} pixels or more, "
            f"these have {size}."
        )
    return tuple(image)


def default_backbone(image: Shape | None) -> str:
    """What images of this shape usually get: a ResNet-18, or if they are grey less."""
    if image is None or len(image) != 3 or image[0] > 1:
        return "resnet18"
    side = min(image[1:])
    return next((name for name in ("small", "tiny") if side >= LEAST[name]), "resnet18")


def make_backbone(name: str, image: Shape | None, activation: MakeActivation) -> nn.Sequential:
    """A backbone for rows of flattened images of a shape (channels, height, width)."""
    shape = check_image(name, image)
    return nn.Sequential(nn.Unflatten(1, shape), *BACKBONES[name](shape[0], activation))


class Backbone(nn.Module):
    """A backbone with ReLU activations in a network: scaled inputs in, scaled features out."""

    centre: Tensor
    scale: Tensor

    def __init__(self, name: str, image: Shape, layers: nn.Sequential, scaling: Scaling) -> None:
        """``layers`` are those of ``make_backbone``, ``scaling`` is that of their features."""
        super().__init__()
        self.name, self.image = name, image
        self.layers = channels_last(layers)
        self.register_buffer("centre", scaling.centre)
        self.register_buffer("scale", scaling.scale)
        self.eval().requires_grad_(requires_grad=False)

    @property
    def n_inputs(self) -> int:
        """How many numbers an image has."""
        return math.prod(self.image)

    @property
    def n_features(self) -> int:
        """How many numbers it makes of an image."""
        return len(self.centre)

    def forward(self, V: Tensor) -> Tensor:
        """The scaled features of scaled inputs, one image a row."""
        return Scaling(self.centre, self.scale).apply(self.layers(V))

    def describe(self) -> dict[str, Any]:
        """What a model file must say, besides the tensors."""
        return {"kind": self.name, "image": list(self.image)}

    def tensors(self) -> dict[str, Tensor]:
        """All that a model file must hold."""
        return {k: T for k, T in self.state_dict().items() if not k.endswith(UNUSED)}

    @classmethod
    def rebuild(cls, described: dict[str, Any], tensors: dict[str, Tensor]) -> "Backbone":
        """From what ``describe`` and ``tensors`` gave; nothing is allocated for what is not so."""
        name, image = one_of("body", described["kind"], BACKBONES), tuple(described["image"])
        if len(image) != 3 or not all(type(side) is int and 0 < side <= 10**5 for side in image):
            raise InputError(f"a body takes images of three sides, not of shape {image}.")
        with torch.device("meta"):
            layers = make_backbone(name, image, lambda _units: nn.ReLU())
        scaling = Scaling(tensors["centre"], tensors["scale"])
        n_features = layers.eval()(torch.zeros(1, math.prod(image), device="meta")).shape[1]
        backbone = cls(name, image, layers, scaling)
        try:
            found = backbone.load_state_dict(tensors, strict=False, assign=True)
        except RuntimeError:
            found = None
        missing = [k for k in found.missing_keys if not k.endswith(UNUSED)] if found else [name]
        if found is None or missing or found.unexpected_keys:
            raise InputError(f"its weights are not those of a body {name!r}.")
        if not scaling.fits(n_features):
            raise InputError(f"what should scale the {n_features} features of a body does not.")
        for module in backbone.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.num_batches_tracked = torch.tensor(0)
        channels_last(backbone.layers)
        return backbone.requires_grad_(requires_grad=False)
