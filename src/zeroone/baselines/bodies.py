"""Convolutional bodies, in plain torch: from an image to the features that the dense layers take.

Each takes the number of channels and what makes the activation of a layer of so many filters.
"""

from collections.abc import Callable

from torch import Tensor, nn

from zeroone.checks import InputError

MakeActivation = Callable[[int], nn.Module]


class SmallBody(nn.Sequential):
    """3x3 convolutions with 32, 64 and 64 filters, the first two pooled: 576 features of 28x28.

    The body that Table 1's parameter counts point to (erratum E8).
    """

    def __init__(self, channels: int, activation: MakeActivation) -> None:
        super().__init__(
            nn.Conv2d(channels, 32, 3),
            activation(32),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3),
            activation(64),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3),
            activation(64),
            nn.Flatten(),
        )


class Block(nn.Module):
    """Two 3x3 convolutions with batch normalisation, and a way around them."""

    def __init__(self, n_in: int, n_out: int, stride: int, activation: MakeActivation) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(n_out)
        self.activate1 = activation(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(n_out)
        self.activate2 = activation(n_out)
        same = stride == 1 and n_in == n_out
        self.shortcut = nn.Identity() if same else _projection(n_in, n_out, stride)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        inner = self.norm2(self.conv2(self.activate1(self.norm1(self.conv1(x)))))
        out: Tensor = self.activate2(inner + self.shortcut(x))
        return out


def _projection(n_in: int, n_out: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(n_in, n_out, 1, stride, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(n_out))


class ResNet18(nn.Sequential):
    """ResNet-18 up to its 512 averaged features. He et al. (2016).

    ``stem``: 7, the published 7x7 convolution with stride 2 and a pooling after it, which the 0/1
    paper uses even for images of 32x32; or 3, the usual 3x3 convolution for such images.
    """

    def __init__(self, channels: int, activation: MakeActivation, stem: int = 7) -> None:
        strided = stem > 3
        layers: list[nn.Module] = [
            nn.Conv2d(channels, 64, stem, 2 if strided else 1, padding=stem // 2, bias=False),
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


BODIES: dict[str, Callable[[int, MakeActivation], nn.Sequential]] = {
    "small": SmallBody,
    "resnet18": ResNet18,
    "resnet18-3x3": _resnet_3x3,
}
LEAST = {"small": 18, "resnet18": 1, "resnet18-3x3": 1}  # pixels a side


def check_image(name: str, image: tuple[int, ...] | None) -> tuple[int, ...]:
    """Require a shape (channels, height, width) that the body can take."""
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
    return image


def make_body(
    name: str, image: tuple[int, ...] | None, activation: MakeActivation
) -> nn.Sequential:
    """A body for rows of flattened images of a shape (channels, height, width)."""
    shape = check_image(name, image)
    return nn.Sequential(nn.Unflatten(1, shape), *BODIES[name](shape[0], activation))
