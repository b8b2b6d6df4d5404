"""Differences between methods, seed by seed: repetitions share their data, bodies and seeds."""

import math
import statistics
from dataclasses import dataclass
from typing import Any

FEWEST = 3  # seeds, below which nothing is decided
LEVEL = 0.05  # of a two-sided test

Row = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """The mean difference of paired values, and between what it lies with 95% confidence.

    Without enough seeds, or if all pairs differ by exactly as much, the limits are infinite.
    """

    mean: float
    low: float
    high: float
    n: int

    @property
    def is_lower(self) -> bool:
        """Clearly below 0."""
        return self.high < 0

    @property
    def is_higher(self) -> bool:
        """Clearly above 0."""
        return self.low > 0

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"{100 * self.mean:+.2f} points (n = {self.n}, nothing is decided)"
        return (
            f"{100 * self.mean:+.2f} points (95% confidence: {100 * self.low:+.2f} to "
            f"{100 * self.high:+.2f}, n = {self.n})"
        )


def difference(a: dict[int, float], b: dict[int, float], of: int = 1) -> Difference:
    """Of a minus b, values by seed; ``of``: how many such differences are looked at together."""
    shared = sorted(a.keys() & b.keys())
    gaps = [a[seed] - b[seed] for seed in shared]
    n = len(gaps)
    mean = statistics.mean(gaps) if gaps else math.nan
    spread = statistics.stdev(gaps) if n >= FEWEST else 0.0
    if not spread:
        return Difference(mean, -math.inf, math.inf, n)
    from scipy.special import stdtrit

    reach = float(stdtrit(n - 1, 1 - LEVEL / (2 * of))) * spread / math.sqrt(n)
    return Difference(mean, mean - reach, mean + reach, n)


def by_seed(row: Row, name: str = "test_error") -> dict[int, float]:
    """The values of a row of ``summarise``, by the seeds that gave them."""
    if name not in row:
        return {}
    return dict(zip(row["seeds"], row[name]["values"], strict=True))


def noise_by_seed(row: Row, level: int, *, rise: bool) -> dict[int, float]:
    """The errors at a level of noise; ``rise``: above those without noise."""
    errors = row["noise"]["errors"]
    values = errors[level]["values"]
    if rise:
        values = [v - clean for v, clean in zip(values, errors[0]["values"], strict=True)]
    return dict(zip(row["seeds"], values, strict=True))
