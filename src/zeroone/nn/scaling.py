"""Centring and scaling of the inputs, fitted to the training data and kept with the network."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from zeroone.utils.checks import InputError
from zeroone.utils.memmap import Rows, SparseRows, split_rows
from zeroone.utils.parallel import ALONE, Team

ROWS = 4096  # samples that become floating point at a time
EXACT_ROWS = 2**24 // 255**2  # of bytes, whose squares add up in float32 without rounding
SCALINGS = ("auto", "common", "feature")
UNLIKE = 10  # largest standard deviation over the median one, beyond which features differ in kind


@dataclass(frozen=True)
class InputRange:
    """The range of raw inputs: bytes, or the smallest and the largest number of each feature.

    Exports need it: integer networks take bytes.
    """

    low: Tensor
    high: Tensor
    are_bytes: bool = False

    @classmethod
    def of(cls, X: Rows, dtype: torch.dtype, team: Team = ALONE) -> "InputRange":
        """Return the range of raw inputs, of which each rank of a team has a part."""
        if X.dtype == torch.uint8:
            low = torch.zeros(X.shape[1], dtype=dtype)
            return cls(low, low + 255, are_bytes=True)
        both = torch.full((2, X.shape[1]), -torch.inf, dtype=X.dtype)
        for rows in split_rows(X, ROWS) if len(X) else ():
            both = torch.maximum(both, torch.stack([-rows.amin(dim=0), rows.amax(dim=0)]))
        team.largest_(both)
        return cls((-both[0]).to(dtype), both[1].to(dtype))

    def widened(self, other: "InputRange") -> "InputRange":
        """Return the range of both."""
        low, high = torch.minimum(self.low, other.low), torch.maximum(self.high, other.high)
        return InputRange(low, high, self.are_bytes and other.are_bytes)

    def fits(self, n_features: int) -> bool:
        """Return whether this is a range of so many features."""
        shapes = self.low.shape == self.high.shape == (n_features,)
        return shapes and bool((self.low <= self.high).all())


@dataclass(frozen=True)
class Scaling:
    """x -> (x - centre) / scale: a centre for each feature, and one scale for all or one each.

    A common scale keeps the relative sizes of features, which carry meaning for pixels. Features
    in different units (an age, an area) need a scale each.
    """

    centre: Tensor
    scale: Tensor  # one number, or one for each feature
    taken: Tensor | None = None  # the indices of the features in use, in rising order; None: all
    inputs: InputRange | None = None  # the range of raw inputs, if it is known
    constant: Tensor | None = None  # the indices of features that never varied in the training
    bits: int = 8  # the upper bits of a byte that count; the others are taken as 0

    @classmethod
    def fit(
        cls,
        X: Rows,
        dtype: torch.dtype = torch.float32,
        kind: str = "auto",
        weights: Tensor | None = None,
        team: Team = ALONE,
        channels: int | None = None,
        bits: int = 8,
    ) -> "Scaling":
        """Centre features at their mean and scale them by their standard deviation (1 if it is 0).

        A convolution shares its weights between pixels. With one centre a channel and one scale,
        its integer form needs one threshold a filter, except where it sees the padding.

        Args:
            X: raw inputs.
            dtype: of the centre and the scale.
            kind: 'common', 'feature', or 'auto': 'feature' if the largest standard deviation
                exceeds ten times the median one (of features that vary) and X is not sparse.
            weights: how often each sample counts.
            team: the ranks that have other samples.
            channels: of images for a convolution: pixels of a channel share their centre, and
                'auto' means 'common'. None for anything else; 'feature' ignores it.
            bits: how many upper bits of a byte to use.

        Raises:
            InputError: the inputs are no bytes, and only some of their bits are wanted.

        """
        if bits < 8 and X.dtype != torch.uint8:
            raise InputError(f"input_bits={bits} takes the upper bits of bytes, X is {X.dtype}.")
        if X.dtype == torch.uint8 and weights is None:
            centre, variances = _moments_of_bytes(X, team, bits)
        else:
            centre, variances = _moments(X, weights, team, bits)
        if channels is not None and kind != "feature":
            kind, planes = "common", centre.reshape(channels, -1)
            centre = planes.mean(dim=1, keepdim=True).expand_as(planes).flatten()
            variances = variances + (planes.flatten() - centre).square()
        stds = variances.sqrt()
        # A constant, up to rounding; the dtype may round a smaller scale to 0.
        stds[stds <= (1e-9 * centre.abs()).clamp(min=torch.finfo(dtype).tiny)] = 0
        varying = stds[stds > 0]
        if kind == "auto" and isinstance(X, SparseRows):
            kind = "common"  # word counts: rare words would become as large as frequent ones
        if kind == "auto" and len(varying):
            kind = "feature" if varying.max() > UNLIKE * varying.median() else "common"
        if kind == "feature":
            scale = torch.where(stds > 0, stds, 1.0)
        else:
            scale = stds.square().mean().sqrt()
            scale = torch.where(scale > 0, scale, 1.0)
        constant = (stds == 0).nonzero().flatten()
        ranges = InputRange.of(X, dtype, team)
        return cls(centre.to(dtype), scale.to(dtype), None, ranges, constant, bits)

    @classmethod
    def identity(cls, n_features: int, dtype: torch.dtype = torch.float32) -> "Scaling":
        """Return a scaling that changes nothing."""
        return cls(torch.zeros(n_features, dtype=dtype), torch.ones((), dtype=dtype))

    @property
    def n_taken(self) -> int:
        """How many features are in use."""
        return len(self.centre if self.taken is None else self.taken)

    def fits(self, n_features: int) -> bool:
        """Return whether this scales so many features: tensors from a file may not."""
        shapes = self.centre.shape == (n_features,) and self.scale.shape in {(), (n_features,)}
        ranges = self.inputs is None or self.inputs.fits(n_features)
        chosen = [some for some in (self.taken, self.constant) if some is not None and len(some)]
        fit = all(_is_rising(some, n_features) for some in chosen)
        fit = fit and (self.taken is None or len(self.taken) > 0)
        fit = fit and (self.bits == 8 or (self.inputs is not None and self.inputs.are_bytes))
        return shapes and ranges and fit and bool((self.scale > 0).all())

    def take(self, columns: Tensor) -> "Scaling":
        """Return the scaling that uses only these of the features in use."""
        return replace(self, taken=columns if self.taken is None else self.taken[columns])

    def widened(self, other: "Scaling") -> "Scaling":
        """Keep centre and scale, but know what more data bring: their range, and what is constant.

        Args:
            other: a scaling that was fitted to those data.

        """
        if self.inputs is None or other.inputs is None:
            return replace(self, inputs=None, constant=None)
        constant = None
        if self.constant is not None and other.constant is not None:
            same = torch.isclose(self.centre.cpu(), other.centre.cpu(), rtol=1e-6)
            both = self.constant[torch.isin(self.constant, other.constant)]
            constant = both[same[both]]
        return replace(self, inputs=self.inputs.widened(other.inputs), constant=constant)

    def without_constants(self) -> "Scaling":
        """Return the scaling that leaves out features that never varied, unless none did."""
        if self.constant is None:
            return self
        used = torch.arange(len(self.centre)) if self.taken is None else self.taken
        varying = (~torch.isin(used, self.constant)).nonzero().flatten()
        return self.take(varying) if 0 < len(varying) < len(used) else self

    def apply(self, X: Tensor) -> Tensor:
        """Return the scaled inputs as floating point numbers, on the device of the centre."""
        centre, scale = self.centre, self.scale
        if self.taken is not None:
            X, centre = X[:, self.taken], centre[self.taken]
            scale = scale if scale.ndim == 0 else scale[self.taken]
        X = X.to(centre.device).to(centre.dtype)  # bytes are quicker to send
        if self.bits < 8:
            X = upper_bits(X, self.bits)
        return (X - centre) / scale

    def to(self, device: torch.device) -> "Scaling":
        """Return the scaling on a device; the range of raw inputs and ``taken`` stay."""
        return replace(self, centre=self.centre.to(device), scale=self.scale.to(device))


def upper_bits(X: Tensor, bits: int) -> Tensor:
    """Set all but the upper bits of bytes to 0; the bytes may be floating point numbers."""
    step = 2.0 ** (8 - bits)
    return (X / step).floor() * step


def _moments(X: Rows, weights: Tensor | None, team: Team, bits: int) -> tuple[Tensor, Tensor]:
    """Return the mean and the variance of each feature, in two passes."""
    w = torch.ones(len(X), dtype=torch.float64) if weights is None else weights.double()
    total = team.total(float(w.sum()))[0]
    sums = torch.zeros(X.shape[1], dtype=torch.float64)
    for rows, some in zip(split_rows(X, ROWS), torch.split(w, ROWS), strict=True):
        sums += some @ _double(rows, bits)
    team.sum_(sums)
    centre = sums / total
    squares = torch.zeros_like(sums)
    for rows, some in zip(split_rows(X, ROWS), torch.split(w, ROWS), strict=True):
        squares += some @ (_double(rows, bits) - centre).square()
    team.sum_(squares)
    return centre, squares / total


def _double(rows: Tensor, bits: int) -> Tensor:
    return rows.double() if bits == 8 else upper_bits(rows.double(), bits)


def _moments_of_bytes(X: Rows, team: Team, bits: int) -> tuple[Tensor, Tensor]:
    """Return the same for bytes, in one pass, thirty times as fast.

    Sums of so few squares are whole numbers that float32 holds without rounding. The difference of
    mean squares and squared means may lose a known amount; less than that counts as 0.
    """
    totals = torch.zeros(2, X.shape[1], dtype=torch.float64)
    for rows in split_rows(X, ROWS):
        for some in torch.split(rows, EXACT_ROWS):
            numbers = some.float() if bits == 8 else upper_bits(some.float(), bits)
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
    """Return whether these are distinct indices below the limit, in rising order."""
    if numbers.ndim != 1 or not len(numbers):
        return False
    return bool((numbers.diff() > 0).all()) and int(numbers[0]) >= 0 and int(numbers[-1]) < limit
