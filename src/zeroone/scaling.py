"""Centring and scaling of the inputs, learned on the training data and kept with the network."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scaling:
    """x -> (x - centre) / scale: one centre a feature, one scale for all of them.

    One common scale keeps the features' relative sizes, which for pixels carry meaning.
    """

    centre: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, X: Tensor) -> "Scaling":
        """The features' means, and the standard deviation of what remains (1 if none does)."""
        centre = X.mean(dim=0)
        spread = (X - centre).square().mean().sqrt()
        return cls(centre, torch.where(spread > 0, spread, torch.ones_like(spread)))

    @classmethod
    def identity(cls, n_features: int, dtype: torch.dtype = torch.float32) -> "Scaling":
        """Leave the inputs as they are."""
        return cls(torch.zeros(n_features, dtype=dtype), torch.ones((), dtype=dtype))

    def apply(self, X: Tensor) -> Tensor:
        """The scaled inputs."""
        return (X - self.centre) / self.scale
