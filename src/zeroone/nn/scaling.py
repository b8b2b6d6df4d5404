"""Centring and scaling of the inputs, learned on the training data and kept with the network."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from zeroone.utils.memmap import Rows, SparseRows, split_rows
from zeroone.utils.parallel import ALONE, Team

ROWS = 4096  # samples that become floating point at a time
EXACT_ROWS = 2**24 // 255**2  # of bytes, whose squares add up in float32 without rounding
SCALINGS = ("auto", "common", "feature")
UNLIKE = 10  # spreads of which the largest is so many times the median are of unlike features


@dataclass(frozen=True)
class InputRange:
    """What raw inputs look like: bytes, or numbers between a smallest and a largest, by feature.

    Exports need it: a network of integers takes bytes.
    """

    low: Tensor
    high: Tensor
    are_bytes: bool = False

    @classmethod
    def of(cls, X: Rows, dtype: torch.dtype, team: Team = ALONE) -> "InputRange":
        """Of some raw inputs, of which each rank of a team has a part."""
        if X.dtype == torch.uint8:
            low = torch.zeros(X.shape[1], dtype=dtype)
            return cls(low, low + 255, are_bytes=True)
        both = torch.full((2, X.shape[1]), -torch.inf, dtype=X.dtype)
        for rows in split_rows(X, ROWS) if len(X) else ():
            both = torch.maximum(both, torch.stack([-rows.amin(dim=0), rows.amax(dim=0)]))
        team.largest_(both)
        return cls((-both[0]).to(dtype), both[1].to(dtype))

    def fits(self, n_features: int) -> bool:
        """Whether it is one of so many features at all."""
        shapes = self.low.shape == self.high.shape == (n_features,)
        return shapes and bool((self.low <= self.high).all())


@dataclass(frozen=True)
class Scaling:
    """x -> (x - centre) / scale: one centre a feature, and one scale for all of them or one each.

    A common scale keeps the features' relative sizes, which for pixels carry meaning. Features
    measured in units of their own (an age, an area) need a scale each.

    ``taken``: the numbers of the features that are used at all, in rising order; None uses all.
    ``inputs``: what raw inputs look like, if it is known.
    """

    centre: Tensor
    scale: Tensor  # one number, or one a feature
    taken: Tensor | None = None
    inputs: InputRange | None = None

    @classmethod
    def fit(
        cls,
        X: Rows,
        dtype: torch.dtype = torch.float32,
        kind: str = "auto",
        weights: Tensor | None = None,
        team: Team = ALONE,
    ) -> "Scaling":
        """The features' means, and the standard deviation of what remains (1 if none does).

        ``kind``: 'common', 'feature', or 'auto', which takes 'feature' where the largest spread
        exceeds ten times the median one (features that never vary aside) unless X is sparse.
        ``weights``: how often each sample counts. ``team``: whose ranks have other samples.
        """
        if X.dtype == torch.uint8 and weights is None:
            centre, variances = _moments_of_bytes(X, team)
        else:
            centre, variances = _moments(X, weights, team)
        spreads = variances.sqrt()
        spreads[spreads <= 1e-9 * centre.abs()] = 0  # a constant, but for rounding
        varying = spreads[spreads > 0]
        if kind == "auto" and isinstance(X, SparseRows):
            kind = "common"  # counts of words: rare ones would be as large as frequent ones
        if kind == "auto" and len(varying):
            kind = "feature" if varying.max() > UNLIKE * varying.median() else "common"
        if kind == "feature":
            scale = torch.where(spreads > 0, spreads, 1.0)
        else:
            scale = spreads.square().mean().sqrt()
            scale = torch.where(scale > 0, scale, 1.0)
        return cls(centre.to(dtype), scale.to(dtype), inputs=InputRange.of(X, dtype, team))

    @classmethod
    def identity(cls, n_features: int, dtype: torch.dtype = torch.float32) -> "Scaling":
        """Leave the inputs as they are."""
        return cls(torch.zeros(n_features, dtype=dtype), torch.ones((), dtype=dtype))

    @property
    def n_taken(self) -> int:
        """How many features are used."""
        return len(self.centre if self.taken is None else self.taken)

    def fits(self, n_features: int) -> bool:
        """Whether it is a scaling of so many features at all: what comes from a file may not be."""
        shapes = self.centre.shape == (n_features,) and self.scale.shape in {(), (n_features,)}
        ranges = self.inputs is None or self.inputs.fits(n_features)
        taken = self.taken is None or _is_rising(self.taken, n_features)
        return shapes and ranges and taken and bool((self.scale > 0).all())

    def take(self, columns: Tensor) -> "Scaling":
        """The scaling that uses only these of the features that are used."""
        return replace(self, taken=columns if self.taken is None else self.taken[columns])

    def apply(self, X: Tensor) -> Tensor:
        """The scaled inputs, as floating point numbers, where the centre is."""
        if self.taken is not None:
            X = X[:, self.taken]
        X = X.to(self.centre.device).to(self.centre.dtype)  # bytes are quicker to send
        if self.taken is None:
            return (X - self.centre) / self.scale
        scale = self.scale if self.scale.ndim == 0 else self.scale[self.taken]
        return (X - self.centre[self.taken]) / scale

    def to(self, device: torch.device) -> "Scaling":
        """The same on a device; what is known of raw inputs, and which are taken, stays."""
        return replace(self, centre=self.centre.to(device), scale=self.scale.to(device))


def _moments(X: Rows, weights: Tensor | None, team: Team) -> tuple[Tensor, Tensor]:
    """The mean and the variance of each feature, in two passes."""
    w = torch.ones(len(X), dtype=torch.float64) if weights is None else weights.double()
    total = team.total(float(w.sum()))[0]
    sums = torch.zeros(X.shape[1], dtype=torch.float64)
    for rows, some in zip(split_rows(X, ROWS), torch.split(w, ROWS), strict=True):
        sums += some @ rows.double()
    team.sum_(sums)
    centre = sums / total
    squares = torch.zeros_like(sums)
    for rows, some in zip(split_rows(X, ROWS), torch.split(w, ROWS), strict=True):
        squares += some @ (rows.double() - centre).square()
    team.sum_(squares)
    return centre, squares / total


def _moments_of_bytes(X: Rows, team: Team) -> tuple[Tensor, Tensor]:
    """The same of bytes, in one pass, thirty times as fast.

    Sums of so few squares are whole numbers that float32 can hold, so nothing is rounded, and what
    the difference of mean squares and squared means may lose is known: less than that is 0.
    """
    totals = torch.zeros(2, X.shape[1], dtype=torch.float64)
    for rows in split_rows(X, ROWS):
        for some in torch.split(rows, EXACT_ROWS):
            numbers = some.float()
            ones = numbers.new_ones(len(numbers))
            totals[0] += ones @ numbers
            totals[1] += ones @ numbers.square_()
    team.sum_(totals)
    n = team.total(len(X))[0]
    centre, mean_squares = totals / n
    variances = mean_squares - centre.square()
    lost = 8 * torch.finfo(torch.float64).eps * mean_squares
    return centre, torch.where(variances > lost, variances, 0.0)


def _is_rising(numbers: Tensor, limit: int) -> bool:
    """Whether they are distinct numbers below the limit, in their order."""
    if numbers.ndim != 1 or not len(numbers):
        return False
    return bool((numbers.diff() > 0).all()) and int(numbers[0]) >= 0 and int(numbers[-1]) < limit
