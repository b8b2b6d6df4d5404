"""Augmentation: random changes of training images that keep their class.

An augmentation is one function, from a batch of raw images (samples, channels, height, width) to
changed ones of the same shape. It draws from torch's default generator, which training sets by the
seed and the epoch, so that a resumed run repeats it. ``register_augmentation`` adds one by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from zeroone.nn.operators import Shape
from zeroone.utils.checks import InputError
from zeroone.utils.parallel import Share

Augmentation = Callable[[Tensor], Tensor]
AUGMENTATIONS: dict[str, Augmentation | None] = {"none": None}
BORDER = 4  # the largest shift in pixels


def register_augmentation(name: str) -> Callable[[Augmentation], Augmentation]:
    """Make an augmentation known by name: ``augment=name``."""

    def register(function: Augmentation) -> Augmentation:
        AUGMENTATIONS[name] = function
        return function

    return register


def name_of(augment: str | Augmentation) -> str:
    """Return what a record calls an augmentation: its name, or that of its function or class."""
    if isinstance(augment, str):
        return augment
    if isinstance(augment, partial) and (augment.args or augment.keywords):
        return f"{name_of(augment.func)}, {augment.args}, {augment.keywords}"
    made: Any = getattr(augment, "func", augment)  # of a partial
    kind = made if hasattr(made, "__qualname__") else type(made)
    return f"{kind.__module__}.{kind.__qualname__}"


@register_augmentation("crop-flip")
def crop_flip(images: Tensor) -> Tensor:
    """Shift images by up to four pixels, with zeros moving in, and flip half of them."""
    n, _, height, width = images.shape
    down, right = torch.randint(2 * BORDER + 1, (2, n, 1))
    flip = torch.randint(2, (n, 1)).bool()
    rows, columns = torch.arange(height) + down, torch.arange(width)
    columns = torch.where(flip, width - 1 - columns, columns) + right
    wide = functional.pad(images, [BORDER] * 4)
    samples = torch.arange(n)[:, None, None]
    changed = wide.permute(0, 2, 3, 1)[samples, rows[:, :, None], columns[:, None, :]]
    return changed.permute(0, 3, 1, 2)


@register_augmentation("flip")
def flip(images: Tensor) -> Tensor:
    """Flip half of the images, left to right."""
    flipped = torch.randint(2, (len(images), 1, 1, 1)).bool()
    return torch.where(flipped.to(images.device), images.flip(3), images)


@dataclass(frozen=True)
class Augment:
    """Apply an augmentation to batches of flattened images."""

    function: Augmentation
    image: Shape

    def apply(self, X: Tensor, rng: torch.Generator, share: Share) -> Tensor:
        """Change raw images, one per row; all ranks draw for the whole batch."""
        whole = X
        if share.places is not None:
            whole = X.new_zeros(share.total, X.shape[1]).index_copy_(0, share.places, X)
        before = torch.get_rng_state()
        torch.set_rng_state(rng.get_state())
        try:
            changed = self.function(whole.reshape(-1, *self.image))
        finally:
            rng.set_state(torch.get_rng_state())
            torch.set_rng_state(before)
        if not isinstance(changed, Tensor) or changed.shape != (len(whole), *self.image):
            found = tuple(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
            raise InputError(
                f"{name_of(self.function)} must return images of shape "
                f"{(len(whole), *self.image)}, as it gets them, not {found}."
            )
        return share.of(changed.flatten(1))
