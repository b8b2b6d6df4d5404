"""Line charts as SVG; the page's style sheet sets their colours, for light and dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from zeroone.commands.report.templates import load_template

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 14, 40
LARGEST = 1e300  # beyond it, and below its inverse, arithmetic overflows
MOST_TICKS = 6  # decades that a logarithmic axis labels
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A line; None is a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: int = 0
    dashed: bool = False

    def points(self, *, log: bool) -> list[Point]:
        """The points that an axis can show: finite and, if it is logarithmic, above 0."""
        low = 1 / LARGEST if log else -LARGEST
        pairs = zip(self.x, self.y, strict=True)
        return [(x, y) for x, y in pairs if isinstance(y, int | float) and low < y < LARGEST]


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic axis."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def fit(cls, values: Sequence[float], *, log: bool = False, zero: bool = False) -> "Scale":
        """Make an axis with room for all values, and for 0 if asked.

        It is logarithmic only if all values are positive and the largest is 5 times the least.
        """
        low, high = min(values), max(values)
        if zero:
            low = min(low, 0.0)
        if log and low > 0 and high > 5 * low:
            return cls(low, high, log=True)
        if math.isclose(low, high, rel_tol=1e-12, abs_tol=1 / LARGEST):
            low, high = (low, high + 1) if zero else (low - 0.5, high + 0.5)
        steps = ticks(low, high)
        return cls(min(low, steps[0]), max(high, steps[-1]))

    def place(self, value: float) -> float:
        """Map a value to [0, 1]."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """The round values to label."""
        if not self.log:
            return ticks(self.low, self.high)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        every = max(1, math.ceil((last - first) / MOST_TICKS))
        steps = (1, 2, 5) if last - first <= 2 else (1,)
        values = [m * 10.0**k for k in range(first, last + 1, every) for m in steps]
        return [value for value in values if self.low <= value <= self.high]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """List about so many multiples of 1, 2 or 5 times a power of ten within [low, high]."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def line_chart(
    title: str, x_label: str, y_label: str, series: list[Series], *, log: bool = False
) -> str:
    """Draw a figure with a caption and a legend; an empty string if there are no points.

    Values that are not finite leave gaps, and so does 0 on a logarithmic axis.
    """
    lines = [(line, points) for line in series if (points := line.points(log=log))]
    if not lines:
        return ""
    across = Scale.fit([x for _, points in lines for x, _ in points])
    up = Scale.fit([y for _, points in lines for _, y in points], log=log, zero=not log)

    def at(x: float, y: float) -> Point:
        right = LEFT + across.place(x) * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - up.place(y) * (HEIGHT - TOP - BOTTOM)
        return round(right, 1), round(down, 1)

    dots = [[(at(x, y), (x, y)) for x, y in points] for _, points in lines]
    figure: str = load_template("chart.html").render(
        title=title,
        labels=(x_label, y_label),
        box=(WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM),
        x_ticks=[(at(x, up.low)[0], f"{x:g}") for x in across.ticks()],
        y_ticks=[(at(across.low, y)[1], f"{y:.4g}") for y in up.ticks()],
        lines=[
            (line, line_dots, _covered(dots[k:]))
            for k, ((line, _), line_dots) in enumerate(zip(lines, dots, strict=True))
        ],
    )
    return figure


def _covered(lines: list[list[tuple[Point, Point]]]) -> tuple[int, list[tuple[Point, Point]]]:
    """How many later lines cover parts of the first one, and which segments.

    Covered segments are drawn wider, so that equal lines show as stripes.
    """
    first, *others = [list(pairwise(place for place, _ in dots)) for dots in lines]
    later = [set(segments) for segments in others]
    counts = [sum(segment in other for other in later) for segment in first]
    covered = [segment for segment, count in zip(first, counts, strict=True) if count]
    return max(counts, default=0), covered
