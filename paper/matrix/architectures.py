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


ARCHITECTURES: dict[str, tuple[str | None, Hidden]] = {
    "f3nn": (None, (2000, 2000)),
    "lenet": (None, ("conv5x5:32:max2", "conv5x5:64:max2", 500)),
    "vgg": (
        None,
        (
            "conv3x3:64:pad1:max2",
            "conv3x3:128:pad1:max2",
            "conv3x3:256:pad1:max2",
            "conv3x3:256:pad1:max2",
            512,
        ),
    ),
    # Two thresholds a filter, for methods with 1-bit activations; others have one output a filter.
    "deep": (
        None,
        tuple(
            f"conv3x3:{filters}:pad1:bits2{pool}"
            for filters in (48, 96, 192)
            for pool in ("", ":max2")
        ),
    ),
    "tinynet": ("tiny", (200, 200)),
    "convnet": ("small", (2000, 2000)),
    "resnet18": ("resnet18", (1500, 1500)),
    "resnet18-3x3": ("resnet18-3x3", (1500, 1500)),
}
