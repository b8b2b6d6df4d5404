"""The architectures of a run matrix: a body or none, an initial process or none, hidden layers."""

import re
from dataclasses import dataclass

from zeroone.nn.backbones import BITS, residual_blocks
from zeroone.utils.checks import InputError, one_of

Hidden = tuple[int | str, ...]


@dataclass(frozen=True)
class Architecture:
    """``initial_epochs``: for how long Adam trains the body first, 0 leaving it as it begins.

    None leaves the body to the method.
    """

    body: str | None
    hidden: Hidden
    initial_epochs: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Architecture":
        """From ``f3nn``, ``f3nn:1000-1000``, ``convnet``, ``convnet@5:1000-1000`` and the like."""
        found = re.fullmatch(r"([^@:]*)(?:@(\d+))?(?::(\d+(?:-\d+)*))?", str(text))
        if found is None:
            name = re.split("[@:]", str(text))[0]
            raise InputError(f"architectures are written like {name}:1000-1000, got {text!r}.")
        body, hidden = ARCHITECTURES[one_of("architecture", found[1], ARCHITECTURES)]
        if found[3]:
            hidden = tuple(int(width) for width in found[3].split("-"))
        if found[2] is None:
            return cls(body, hidden)
        if body is None:
            raise InputError(f"{found[1]} has no body that an initial process could train.")
        return cls(body, hidden, int(found[2]))

    @property
    def bits(self) -> Hidden:
        """The hidden layers of a 0/1 network: those of the body are 0/1 as well, unless trained."""
        if self.body is None or self.initial_epochs is not None:
            return self.hidden
        if self.body not in BITS:
            raise InputError(
                f"there is no 0/1 network like the body {self.body}: give it an initial process, "
                f"such as {self.body}@10."
            )
        return BITS[self.body] + self.hidden


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
    "resnet18-bits": (None, ("conv3x3:32:pad1:max2", *residual_blocks((32, 64, 128, 256)))),
    "tinynet": ("tiny", (200, 200)),
    "convnet": ("small", (2000, 2000)),
    "resnet18": ("resnet18", (1500, 1500)),
    "resnet18-3x3": ("resnet18-3x3", (1500, 1500)),
}
