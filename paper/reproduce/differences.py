"""Paired differences between methods: repetitions share their data, backbones and seeds."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import ttest_1samp

from paper.matrix.tables import Row

FEWEST = 3  # seeds, below which nothing is decided
LEVEL = 0.05  # of a two-sided test
ROUNDING = 1e-12  # a deviation that is none: equal differences of decimal fractions
INFINITE = (-math.inf, math.inf)


@dataclass(frozen=True)
class Difference:
    """A mean paired difference with 95% confidence intervals (Student's t).

    Attributes:
        mean: The mean difference.
        n: The number of pairs.
        of: How many such differences are looked at together.
        alone: The interval of this difference looked at alone.
        together: The interval corrected for ``of`` differences (Bonferroni).

    With too few pairs, or if all pairs differ by the same amount, both intervals are infinite.

    """

    mean: float
    n: int
    of: int
    alone: tuple[float, float] = INFINITE
    together: tuple[float, float] = INFINITE

    def is_within(self, margin: float = 0.0) -> bool:
        """Whether it is clearly below the margin, looked at alone.

        A claim that *all* differences are below needs no correction: if one of them is not, to
        confirm the claim takes an error in that one (an intersection-union test).
        """
        return self.alone[1] < margin

    def is_beyond(self, margin: float = 0.0) -> bool:
        """Whether it is clearly above the margin, even as the largest of many."""
        return self.together[0] > margin

    def __str__(self) -> str:
        if math.isinf(self.alone[0]):
            return f"{100 * self.mean:+.2f} points (n = {self.n}, nothing is decided)"
        many = f"; as one of {self.of}: {_points(self.together)}" if self.of > 1 else ""
        return (
            f"{100 * self.mean:+.2f} points (95% confidence: {_points(self.alone)}{many}, "
            f"n = {self.n})"
        )


def _points(interval: tuple[float, float]) -> str:
    return f"{100 * interval[0]:+.2f} to {100 * interval[1]:+.2f}"


def difference(a: dict[int, float], b: dict[int, float], of: int = 1) -> Difference:
    """Compare values by seed, a minus b, as one of so many differences."""
    gaps = np.array([a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())])
    mean = float(gaps.mean()) if len(gaps) else math.nan
    if len(gaps) < FEWEST or gaps.std(ddof=1) < ROUNDING:
        return Difference(mean, len(gaps), of)
    test = ttest_1samp(gaps, 0)
    alone, together = (test.confidence_interval(1 - LEVEL / k) for k in (1, of))
    return Difference(mean, len(gaps), of, tuple(alone), tuple(together))


def by_seed(row: Row, name: str = "test_error") -> dict[int, float]:
    """The values of a row, by the seeds that gave them."""
    if name not in row:
        return {}
    return dict(zip(row["seeds"], row[name]["values"], strict=True))


def rise_by_seed(row: Row, level: int) -> dict[int, float]:
    """How far noise of a level raises the error above that without noise, by seed."""
    clean, noisy = (row["noise"]["errors"][k]["values"] for k in (0, level))
    return {s: v - c for s, v, c in zip(row["seeds"], noisy, clean, strict=True)}
