"""Centring and scaling of the inputs, learned on the training data and kept with the network."""

from dataclasses import dataclass

import torch
from torch import Tensor

ROWS = 4096  # samples that become floating point at a time
SCALINGS = ("auto", "common", "feature")
UNLIKE = 10  # spreads of which the largest is so many times the median are of unlike features


@dataclass(frozen=True)
class Scaling:
    """x -> (x - centre) / scale: one centre a feature, and one scale for all of them or one each.

    A common scale keeps the features' relative sizes, which for pixels carry meaning. Features
    measured in units of their own (an age, an area) need a scale each.
    """

    centre: Tensor
    scale: Tensor  # one number, or one a feature

    @classmethod
    def fit(
        cls,
        X: Tensor,
        dtype: torch.dtype = torch.float32,
        kind: str = "auto",
        weights: Tensor | None = None,
    ) -> "Scaling":
        """The features' means, and the standard deviation of what remains (1 if none does).

        ``kind``: 'common', 'feature', or 'auto', which takes 'feature' where the largest spread
        exceeds ten times the median one (features that never vary aside). ``weights``: how often
        each sample counts.
        """
        w = torch.ones(len(X), dtype=torch.float64) if weights is None else weights.double()
        total = w.sum()
        sums = torch.zeros(X.shape[1], dtype=torch.float64)
        for rows, some in zip(torch.split(X, ROWS), torch.split(w, ROWS), strict=True):
            sums += some @ rows.double()
        centre = sums / total
        squares = torch.zeros_like(sums)
        for rows, some in zip(torch.split(X, ROWS), torch.split(w, ROWS), strict=True):
            squares += some @ (rows.double() - centre).square()
        spreads = (squares / total).sqrt()
        spreads[spreads <= 1e-9 * centre.abs()] = 0  # a constant, but for rounding
        varying = spreads[spreads > 0]
        if kind == "auto" and len(varying):
            kind = "feature" if varying.max() > UNLIKE * varying.median() else "common"
        if kind == "feature":
            scale = torch.where(spreads > 0, spreads, 1.0)
        else:
            scale = spreads.square().mean().sqrt()
            scale = torch.where(scale > 0, scale, 1.0)
        return cls(centre.to(dtype), scale.to(dtype))

    @classmethod
    def identity(cls, n_features: int, dtype: torch.dtype = torch.float32) -> "Scaling":
        """Leave the inputs as they are."""
        return cls(torch.zeros(n_features, dtype=dtype), torch.ones((), dtype=dtype))

    def fits(self, n_features: int) -> bool:
        """Whether it is a scaling of so many features at all: what comes from a file may not be."""
        shapes = self.centre.shape == (n_features,) and self.scale.shape in {(), (n_features,)}
        return shapes and bool((self.scale > 0).all())

    def apply(self, X: Tensor) -> Tensor:
        """The scaled inputs, as floating point numbers."""
        return (X.to(self.centre.dtype) - self.centre) / self.scale
