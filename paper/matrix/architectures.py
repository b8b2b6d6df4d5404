"""The architectures of a run matrix: an optional backbone, its pretraining, hidden layers."""

import re
from dataclasses import dataclass

from zeroone.nn.backbones import BITS
from zeroone.utils.checks import InputError, one_of

Hidden = tuple[int | str, ...]


@dataclass(frozen=True)
class Architecture:
    """A network's shape.

    Attributes:
        backbone: The convolutional network below the hidden layers, if there is one.
        hidden: The hidden layers.
        pretraining_epochs: How long Adam trains the backbone first. 0 freezes it at its random
            start; None leaves its training to the method.

    """

    backbone: str | None
    hidden: Hidden
    pretraining_epochs: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Architecture":
        """Read ``f3nn``, ``f3nn:1000-1000``, ``convnet``, ``convnet@5:1000-1000`` and the like."""
        found = re.fullmatch(r"([^@:]*)(?:@(\d{1,9}))?(?::(\d{1,9}(?:-\d{1,9})*))?", str(text))
        if found is None:
            name = re.split("[@:]", str(text))[0]
            raise InputError(f"architectures are written like {name}:1000-1000, got {text!r}.")
        name, epochs, widths = found.groups()
        backbone, hidden = ARCHITECTURES[one_of("architecture", name, ARCHITECTURES)]
        if widths:
            hidden = tuple(int(width) for width in widths.split("-"))
        if epochs is None:
            return cls(backbone, hidden)
        if backbone is None:
            raise InputError(f"{name} has no backbone to pretrain.")
        return cls(backbone, hidden, int(epochs))

    @property
    def bits(self) -> Hidden:
        """The layers of the 0/1 network, with those of a backbone that is not pretrained."""
        if self.backbone is None or self.pretraining_epochs is not None:
            return self.hidden
        if self.backbone not in BITS:
            raise InputError(
                f"the backbone {self.backbone} has no 0/1 form: pretrain it, as {self.backbone}@10 "
                f"does for 10 epochs."
            )
        return BITS[self.backbone] + self.hidden


def pairs(filters: int, bits: int = 2) -> Hidden:
    """Return three stages of two convolutions, the second one pooled; filters double."""
    return tuple(
        f"conv3x3:{filters * times}:pad1:bits{bits}{pool}"
        for times in (1, 2, 4)
        for pool in ("", ":max2")
    )


def tower(depth: int, *, stream: bool) -> Hidden:
    """Return a pooled convolution, then so many of 16 and of 32 filters, half of each."""
    layers = ["conv3x3:16:pad1:bits2:max2"]
    for i in range(depth):
        filters = 16 if i < depth // 2 else 32
        pool = ":max2" if i + 1 == depth // 2 else ""
        layers.append(f"conv3x3:{filters}:pad1:bits2" + ":stream" * (stream and i > 0) + pool)
    return tuple(layers)


ARCHITECTURES: dict[str, tuple[str | None, Hidden]] = {
    "f3nn": (None, (2000, 2000)),
    "lenet": (None, ("conv5x5:32:max2", "conv5x5:64:max2", 500)),
    # Several thresholds a filter, for methods with 1-bit activations; others have one output each.
    "conv-bits": (None, tuple(f"conv3x3:{n}:pad1:bits4:max2" for n in (32, 64, 128))),
    "tinynet": ("tiny", (200, 200)),
    "convnet": ("small", (2000, 2000)),
    "resnet18": ("resnet18", (1500, 1500)),
    "resnet18-3x3": ("resnet18-3x3", (1500, 1500)),
}
# Layers of one kind at a growing depth, and filters and thresholds at a growing cost: 23 filters of
# one bit take the additions of 16 filters of two, 28 those of three, 32 those of four.
ARCHITECTURES |= {
    f"{kind}-{depth}": (None, tower(depth, stream=kind == "stream"))
    for kind in ("stream", "chain")
    for depth in (4, 8, 16, 32)
}
ARCHITECTURES |= {
    f"deep-{n}x{bits}": (None, pairs(n, bits))
    for n, bits in (
        (16, 1),
        (16, 2),
        (16, 3),
        (16, 4),
        (23, 1),
        (28, 1),
        (32, 1),
        (32, 4),
        (32, 8),
        (48, 2),
    )
}
