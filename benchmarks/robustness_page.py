"""The page about robustness, from its record."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from textwrap import fill
from typing import Any

from paper.reproduce.differences import FEWEST, Difference, difference

WIDTH = 100
COMMAND = "python benchmarks/robustness.py --json results/robustness.json --page docs/robustness.md"
Cell = dict[str, Any]
Value = Callable[[Cell], float]
TWINS = {"relu": "ReLU", "ste": "STE"}
NAMES = {"bcd": "0/1, BCD"} | TWINS
TITLES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}
ATTACKS = {
    "noise": "Gaussian noise in the ball",
    "corners": "random corners",
    "from bcd": "transfer from 0/1, BCD",
    "from relu": "transfer from ReLU",
    "from ste": "transfer from STE",
    "rays": "RayS (classes)",
    "square": "Square attack (scores)",
    "naive": "PGD, one run, window of training",
    "pgd": "PGD, all restarts",
    "worst": "**worst case**",
}

HEADER = """# Robustness

{made}

The paper claims (C3) that 0/1 networks "are more robust to adversarial perturbations". It tests
that with Gaussian noise. Noise is no adversary: here networks also meet attacks.

## What is measured

Networks 784-256-256-10 on raw pixels, {epochs} epochs, default settings: 0/1 networks by stochastic
BCD, and twins with ReLU and with 0/1 units trained by the straight-through estimator (STE) and
Adam, on the same batches. Each is trained without and with Gaussian noise on the inputs
(`input_noise`). All attacks see the same {images} test images of each class. Pixels lie in [0, 1];
an image that is classified wrongly counts as an error at radius 0. **Errors are in %**, means ±
standard deviations over seeds.

- **Gaussian noise** has a standard deviation of the radius and is clipped to the ball; **random
  corners** move every pixel by the radius, up or down. {draws} draws of each.
- **Transfer** shows images that fool a twin, trained on the same data with the same seed.
- **RayS** (Chen and Gu, 2020) sees classes only, **Square** (Andriushchenko et al., 2020) scores.
- **PGD** follows gradients for {steps:,} steps: {restarts} restarts of {each}, with cross-entropies
  of different temperatures and with the margin, on images not yet fooled. A step has no useful
  gradient, so a surrogate takes its place (BPDA, Athalye et al., 2018): sigmoids of random widths,
  a smooth network that sharpens to the 0/1 network, a narrow sigmoid, and a window. The same
  surrogates attack both kinds of 0/1 networks; ReLU has its own gradients. For comparison, **one
  run** of 100 steps through the window of training, |u| at most 1 standard deviation, with plain
  cross-entropy: what a hurried test would do.
- The **worst case** counts an image that any attack fools. It is a lower bound of the true one: a
  better attack may find more.
- **HopSkipJump** (Chen et al., 2020) sees classes only and looks for the nearest image of another
  class, in l2. Its distances are upper bounds, and after few queries they tell how hard the search
  is rather than how far the boundary is.

We chose the surrogates, their widths and the probe of HopSkipJump on 150 test images and networks
of another seed, most of them 0/1 networks by BCD on MNIST.

## The verdict

**Confirmed**: the error of BCD is lower than that of both twins, and the 95% intervals of both
differences, seed by seed (Student's t), lie below 0. **Refuted**: it is higher than that of one of
them, by an interval corrected for two comparisons that lies above 0. **Undecided**: neither.
**Incomplete**: fewer than three seeds are measured.
"""


def page(record: dict[str, Any]) -> str:
    """Write the page."""
    cells, settings, plans = record["cells"], record["settings"], record["plans"]
    expected = len(plans) * 2 * len(NAMES) * record["seeds"]
    done = f"{len(cells)} of {expected} networks are measured."
    if len(cells) == expected:
        done = f"All {expected} networks are measured, {record['seeds']} seeds of each kind."
    text = HEADER.format(
        made=fill(f"Made by `{COMMAND}` from its record only; edit nothing here. {done}", WIDTH),
        epochs=settings["epochs"],
        images=settings["per_class"],
        draws=settings["draws"],
        steps=settings["restarts"] * settings["steps"],
        restarts=settings["restarts"],
        each=settings["steps"],
    )
    if not cells:
        return text
    parts = [text, *overall(cells, plans)]
    for data, plan in plans.items():
        for noise in (0.0, plan["noise"]):
            some = [c for c in cells if (c["data"], c["noise"]) == (data, noise)]
            if some:
                parts += [section(data, noise, plan, some)]
    return "\n".join([*parts, sanity(cells)])


def overall(cells: Sequence[Cell], plans: dict[str, Any]) -> list[str]:
    """Make the table of the worst cases."""
    rows = []
    for data, plan in plans.items():
        for noise in (0.0, plan["noise"]):
            some = [c for c in cells if (c["data"], c["noise"]) == (data, noise)]
            for radius in map(_name, plan["radii"]):
                value = _worst(radius)
                words = [TITLES.get(data, data), _training(noise), radius]
                rows.append([*words, *_compared(some, value)])
    head = ["data", "trained", "radius", *NAMES.values(), "BCD - ReLU", "BCD - STE", "verdict"]
    return ["Worst case over all attacks, l-infinity:", "", table(head, rows), ""]


def section(data: str, noise: float, plan: dict[str, Any], cells: Sequence[Cell]) -> str:
    """Make the tables of one data set and one kind of training."""
    lines = [f"## {TITLES.get(data, data)}, trained {_training(noise)}", ""]
    head = [*NAMES.values(), "BCD - ReLU", "BCD - STE", "verdict"]
    rows = [["the whole test part", *_compared(cells, lambda c: c["result"]["test_error"])]]
    for level in cells[0]["result"]["gaussian"]:
        value = _at("gaussian", level)
        rows.append([f"in Gaussian noise {level}, not clipped", *_compared(cells, value)])
    rows.append(["images to attack", *_compared(cells, lambda c: c["result"]["clean"])])
    lines += ["Without an adversary:", "", table(["error", *head], rows), ""]
    for radius in map(_name, plan["radii"]):
        rows = [
            [name, *_compared(cells, _at("radii", radius, key))] for key, name in ATTACKS.items()
        ]
        lines += [f"Attacks in the l-infinity ball of radius {radius}:", ""]
        lines += [table(["attack", *head], rows), ""]
    rows = []
    for radius in map(_name, plan["radii"]):
        for kind, name in (("square", "Square"), ("rays", "RayS")):
            for queries in cells[0]["result"]["queries"][kind][radius]:
                value = _at("queries", kind, radius, queries)
                rows.append([f"{name}, radius {radius}", queries, *_means(cells, value)])
    lines += ["Errors by the number of queries:", ""]
    lines += [table(["attack", "queries", *NAMES.values()], rows), ""]
    rows = []
    for queries, found in cells[0]["result"]["l2"].items():
        for key in found:
            value, is_error = _at("l2", queries, key), key != "median"
            name = f"error at {key}" if is_error else "median distance"
            scale = 100 if is_error else 1
            rows.append([name, queries, *_compared(cells, value, scale)])
    lines += ["HopSkipJump, l2; a **larger** distance is better, a lower error is better:", ""]
    return "\n".join([*lines, table(["l2", "queries", *head], rows), ""])


def sanity(cells: Sequence[Cell]) -> str:
    """Say whether the attacks work where nothing can resist them."""
    found = [cell["result"]["sanity"] for cell in cells]
    text = (
        "In a ball of radius 0.5 every image can become the same grey, so that no network can "
        f"resist. There PGD alone fools between {100 * min(found):g} and {100 * max(found):g}% of "
        "100 images that a network classifies correctly. On linear classifiers, whose distances to "
        "the boundary are known, every attack finds what it should "
        "(`tests/benchmarks/test_attacks.py`)."
    )
    return f"## Do the attacks work?\n\n{fill(text, WIDTH, break_long_words=False)}\n"


def _compared(cells: Sequence[Cell], value: Value, scale: float = 100) -> list[str]:
    """Return means, differences by seed and a verdict, as cells of a table."""
    gaps = [_gap(cells, value, twin) for twin in TWINS]
    lower_is_better = scale == 100
    words = [_interval(gap, scale) for gap in gaps]
    return [*_means(cells, value, scale), *words, verdict(gaps, lower_is_better=lower_is_better)]


def verdict(gaps: Iterable[Difference], *, lower_is_better: bool = True) -> str:
    """Judge differences from the twins, BCD minus twin."""
    gaps = list(gaps)
    if any(gap.n == 0 for gap in gaps):
        return "-"
    if any(gap.n < FEWEST for gap in gaps):
        return "incomplete"
    if not lower_is_better:
        gaps = [_turned(gap) for gap in gaps]
    if all(gap.is_within() for gap in gaps):
        return "confirmed"
    return "refuted" if any(gap.is_beyond() for gap in gaps) else "undecided"


def _turned(gap: Difference) -> Difference:
    alone, together = ((-b, -a) for a, b in (gap.alone, gap.together))
    return Difference(-gap.mean, gap.n, gap.of, alone, together)


def _gap(cells: Sequence[Cell], value: Value, twin: str) -> Difference:
    ours, theirs = (
        {c["seed"]: value(c) for c in _of(cells, kind, value)} for kind in ("bcd", twin)
    )
    return difference(ours, theirs, of=len(TWINS))


def _of(cells: Sequence[Cell], kind: str, value: Value) -> list[Cell]:
    """Return the cells of a model that have the value: no model is its own twin."""
    return [c for c in cells if c["model"] == kind and not math.isnan(value(c))]


def _means(cells: Sequence[Cell], value: Value, scale: float = 100) -> list[str]:
    return [_mean([scale * value(c) for c in _of(cells, kind, value)], scale) for kind in NAMES]


def _mean(values: Sequence[float], scale: float) -> str:
    digits = 1 if scale == 100 else 2
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def _interval(gap: Difference, scale: float) -> str:
    digits = 1 if scale == 100 else 2
    if math.isnan(gap.mean):
        return "-"
    text = f"{scale * gap.mean:+.{digits}f}"
    if math.isinf(gap.alone[0]):
        return text
    low, high = (scale * end for end in gap.alone)
    return f"{text} ({low:+.{digits}f} to {high:+.{digits}f})"


def _at(*path: str) -> Value:
    """Return the value at a path in a cell's results; NaN if there is none."""

    def value(cell: Cell) -> float:
        found: Any = cell["result"]
        for name in path:
            found = found.get(name, math.nan) if isinstance(found, dict) else math.nan
        return float(found)

    return value


def _worst(radius: str) -> Value:
    return _at("radii", radius, "worst")


def _name(radius: float) -> str:
    return f"{radius:g}"


def _training(noise: float) -> str:
    return f"with noise {noise:g}" if noise else "without noise"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
