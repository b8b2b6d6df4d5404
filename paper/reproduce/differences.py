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
    gaps = [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]
    n = len(gaps)
    mean = statistics.mean(gaps) if gaps else math.nan
    if n < FEWEST or statistics.stdev(gaps) < ROUNDING:
        return Difference(mean, -math.inf, math.inf, n, of, -math.inf, math.inf)
    from scipy.stats import ttest_1samp

    test = ttest_1samp(gaps, 0)
    low, high = test.confidence_interval(1 - LEVEL)
    lowest, highest = test.confidence_interval(1 - LEVEL / of)
    return Difference(mean, low, high, n, of, lowest, highest)


def by_seed(row: Row, name: str = "test_error") -> dict[int, float]:
    """The values of a row of ``summarise``, by the seeds that gave them."""
    if name not in row:
        return {}
    return dict(zip(row["seeds"], row[name]["values"], strict=True))


def rise_by_seed(row: Row, level: int) -> dict[int, float]:
    """How far noise of a level lifts the errors above those without noise."""
    clean, noisy = (row["noise"]["errors"][k]["values"] for k in (0, level))
    return {s: v - c for s, v, c in zip(row["seeds"], noisy, clean, strict=True)}
