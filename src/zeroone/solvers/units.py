"""Mean and variance of each unit's pre-activations, from sums that several processes can add up."""

from torch import Tensor


def unit_sums(B: Tensor, weights: Tensor | None) -> Tensor:
    """The sum of each unit (or filter) over samples (and positions), by their weights."""
    if weights is None:
        return B.sum(dim=[d for d in range(B.ndim) if d != 1])
    return weights @ (B.sum(dim=list(range(2, B.ndim))) if B.ndim > 2 else B)


def power_sums(B: Tensor, weights: Tensor | None) -> list[Tensor]:
    """Of each unit the sum of its values and that of their squares. B.var is five times slower."""
    return [unit_sums(B, weights), unit_sums(B.square(), weights)]


def moments(total: Tensor, squares: Tensor, count: float) -> tuple[Tensor, Tensor]:
    """The mean and the variance (at least 0) from the power sums of so many values."""
    mean = total / count
    return mean, (squares / count - mean.square()).clamp_min(0)
