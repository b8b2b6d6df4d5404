"""Differences between methods, seed by seed: repetitions share their data, bodies and seeds."""

import math
import statistics
from dataclasses import dataclass
from typing import Any

FEWEST = 3  # seeds, below which nothing is decided
LEVEL = 0.05  # of a two-sided test
ROUNDING = 1e-12  # a spread that is none: equal differences of decimal fractions

Row = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """The mean difference of paired values, and how surely it is beyond a margin.

    ``low`` and ``high``: between these it lies with 95% confidence, looked at alone. ``lowest`` and
    ``highest``: the same, where it is one of ``of`` that are looked at together (Bonferroni).
    Without enough seeds, or if all pairs differ by as much, all four are infinite.
    """

    mean: float
    low: float
    high: float
    n: int
    of: int
    lowest: float
    highest: float

    def is_within(self, margin: float = 0.0) -> bool:
        """Clearly below the margin, looked at alone.

        A claim that *all* differences are below needs no correction: if one of them is not, to
        confirm it takes an error in that one (an intersection-union test).
        """
        return self.high < margin

    def is_beyond(self, margin: float = 0.0) -> bool:
        """Clearly above the margin although it may be the largest of many: *any* would refute."""
        return self.lowest > margin

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"{100 * self.mean:+.2f} points (n = {self.n}, nothing is decided)"
        alone = f"{100 * self.low:+.2f} to {100 * self.high:+.2f}"
        many = f"; as one of {self.of}: {100 * self.lowest:+.2f} to {100 * self.highest:+.2f}"
        return (
            f"{100 * self.mean:+.2f} points (95% confidence: {alone}{many * (self.of > 1)}, "
            f"n = {self.n})"
        )


def difference(a: dict[int, float], b: dict[int, float], of: int = 1) -> Difference:
    """Of a minus b, values by seed; ``of``: how many such differences are looked at together."""
    shared = sorted(a.keys() & b.keys())
    gaps = [a[seed] - b[seed] for seed in shared]
    n = len(gaps)
    mean = statistics.mean(gaps) if gaps else math.nan
    spread = statistics.stdev(gaps) if n >= FEWEST else 0.0
    if spread < ROUNDING:
        return Difference(mean, -math.inf, math.inf, n, of, -math.inf, math.inf)
    from scipy.special import stdtrit

    error = spread / math.sqrt(n)
    alone, corrected = (float(stdtrit(n - 1, 1 - LEVEL / (2 * k))) * error for k in (1, of))
    return Difference(mean, mean - alone, mean + alone, n, of, mean - corrected, mean + corrected)


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
