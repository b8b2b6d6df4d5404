"""Line charts as SVG. Colours come from the page's style, so they follow light and dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from markupsafe import Markup, escape

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 14, 40
COLOURS = 8
MOST_TICKS = 6  # decades, of a logarithmic axis


@dataclass(frozen=True)
class Series:
    """A line; values that are None are gaps."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    colour: int = 0
    dashed: bool = False


@dataclass(frozen=True)
class Scale:
    """From values to a length, evenly or by their logarithm."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def fit(cls, values: Sequence[float], *, log: bool = False, zero: bool = False) -> "Scale":
        """Room for all values; logarithmic only if all are positive and there is reason to."""
        low, high = min(values), max(values)
        if zero:
            low = min(low, 0.0)
        if log and low > 0 and high > 5 * low:
            return cls(low, high, log=True)
        if low == high:
            low, high = low - 0.5, high + 0.5
        steps = ticks(low, high)
        return cls(min(low, steps[0]), max(high, steps[-1]))

    def place(self, value: float) -> float:
        """Where a value lies between 0 and 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values to write beside an axis."""
        if not self.log:
            return ticks(self.low, self.high)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        every = max(1, math.ceil((last - first) / MOST_TICKS))
        steps = (1, 2, 5) if last - first <= 2 else (1,)
        values = [m * 10.0**k for k in range(first, last + 1, every) for m in steps]
        return [value for value in values if self.low <= value <= self.high]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten within [low, high], about so many."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def line_chart(
    title: str, x_label: str, y_label: str, series: list[Series], *, log: bool = False
) -> Markup:
    """A figure with a caption and a legend; nothing for no points.

    What is no number is a gap, and so is 0 on a logarithmic axis.
    """
    lines, points = [], []
    for s in series:
        found = [(x, y) for x, y in zip(s.x, s.y, strict=True) if _can_be_shown(y, log=log)]
        if found:
            lines.append(s)
            points.append(found)
    if not lines:
        return Markup("")
    across = Scale.fit([x for line in points for x, _ in line])
    up = Scale.fit([y for line in points for _, y in line], log=log, zero=not log)
    parts = [_axes(across, up, x_label, y_label)]
    parts += [_line(s, p, across, up) for s, p in zip(lines, points, strict=True)]
    box = f"0 0 {WIDTH} {HEIGHT}"
    label = escape(title)
    svg = Markup('<svg viewBox="{}" role="img" aria-label="{}">{}</svg>').format(
        box, label, Markup("").join(parts)
    )
    return Markup('<figure class="chart"><figcaption>{}</figcaption>{}{}</figure>').format(
        label, svg, _legend(lines)
    )


def _can_be_shown(value: Any, *, log: bool) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value) and (value > 0 or not log)


def _x(scale: Scale, value: float) -> float:
    return LEFT + scale.place(value) * (WIDTH - LEFT - RIGHT)


def _y(scale: Scale, value: float) -> float:
    return HEIGHT - BOTTOM - scale.place(value) * (HEIGHT - TOP - BOTTOM)


def _axes(across: Scale, up: Scale, x_label: str, y_label: str) -> Markup:
    parts = []
    for value in up.ticks():
        y = _y(up, value)
        parts.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(
                LEFT, WIDTH - RIGHT, y, y
            )
        )
        parts.append(_text(LEFT - 6, y + 4, f"{value:.4g}", "end"))
    for value in across.ticks():
        parts.append(_text(_x(across, value), HEIGHT - BOTTOM + 16, f"{value:g}", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, "middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = Markup(' transform="rotate(-90 12 {:.0f})"').format(middle)
    parts.append(_text(12, middle, y_label, "middle", turned))
    return Markup("").join(parts)


def _text(x: float, y: float, words: str, anchor: str, more: str = "") -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>').format(
        x, y, anchor, more, words
    )


def _line(series: Series, points: list[tuple[float, float]], across: Scale, up: Scale) -> Markup:
    places = [(_x(across, x), _y(up, y), x, y) for x, y in points]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py, _, _ in places)
    kind = f"c{series.colour % COLOURS}" + (" dashed" if series.dashed else "")
    line = Markup('<polyline class="{}" points="{}"/>').format(kind, path)
    dots = [
        Markup(
            '<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"><title>{}</title></circle>'
        ).format(kind, px, py, 2.5 if len(places) <= 40 else 1.2, f"{series.name}: {x:g}, {y:.4g}")
        for px, py, x, y in places
    ]
    return line + Markup("").join(dots)


def _legend(lines: list[Series]) -> Markup:
    items = [
        Markup('<li class="c{}{}">{}</li>').format(
            s.colour % COLOURS, " dashed" if s.dashed else "", s.name
        )
        for s in lines
    ]
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(items))
