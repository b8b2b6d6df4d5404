"""Centring and scaling of the inputs, learned on the training data and kept with the network."""

from dataclasses import dataclass

import torch
from torch import Tensor

ROWS = 4096  # samples that become floating point at a time


@dataclass(frozen=True)
class Scaling:
    """x -> (x - centre) / scale: one centre a feature, one scale for all of them.

    One common scale keeps the features' relative sizes, which for pixels carry meaning.
    """

    centre: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, X: Tensor, dtype: torch.dtype = torch.float32) -> "Scaling":
        """The features' means, and the standard deviation of what remains (1 if none does)."""
        sums = torch.zeros(X.shape[1], dtype=torch.float64)
        for rows in torch.split(X, ROWS):
            sums += rows.sum(dim=0, dtype=torch.float64)
        centre = sums / len(X)
        squares = sum(
            float((rows.double() - centre).square().sum()) for rows in torch.split(X, ROWS)
        )
        spread = (squares / X.numel()) ** 0.5
        return cls(centre.to(dtype), torch.tensor(spread or 1.0, dtype=dtype))

    @classmethod
    def identity(cls, n_features: int, dtype: torch.dtype = torch.float32) -> "Scaling":
        """Leave the inputs as they are."""
        return cls(torch.zeros(n_features, dtype=dtype), torch.ones((), dtype=dtype))

    def apply(self, X: Tensor) -> Tensor:
        """The scaled inputs, as floating point numbers."""
        return (X.to(self.centre.dtype) - self.centre) / self.scale
