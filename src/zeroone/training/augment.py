"""Augmentation: random changes of training images that keep their class."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from zeroone.nn.operators import Shape
from zeroone.utils.parallel import Share

AUGMENTATIONS = ("none", "crop-flip")
BORDER = 4  # the largest shift in pixels


@dataclass(frozen=True)
class CropFlip:
    """Shift images by up to four pixels, with zeros moving in, and flip half of them."""

    image: Shape

    def apply(self, X: Tensor, rng: torch.Generator, share: Share) -> Tensor:
        """Change raw images, one per row; all ranks draw for the whole batch."""
        n, (channels, height, width) = len(X), self.image
        down, right = map(
            share.of, torch.randint(2 * BORDER + 1, (2, share.total, 1), generator=rng)
        )
        flip = share.of(torch.randint(2, (share.total, 1), generator=rng)).bool()
        rows, columns = torch.arange(height) + down, torch.arange(width)
        columns = torch.where(flip, width - 1 - columns, columns) + right
        wide = functional.pad(X.reshape(n, channels, height, width), [BORDER] * 4)
        samples = torch.arange(n)[:, None, None]
        changed = wide.permute(0, 2, 3, 1)[samples, rows[:, :, None], columns[:, None, :]]
        return changed.permute(0, 3, 1, 2).reshape(n, -1)
