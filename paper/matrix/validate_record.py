"""Whether the record of a trained cell is whole: tables and figures find all in it they need."""

import math
from collections.abc import Sequence
from typing import Any

from zeroone.training import Status
from zeroone.utils.records import is_errors

SIZES = ("macs", "additions", "word_operations")
SLACK = 1e-3  # of a sum of probabilities


def is_complete(
    record: dict[str, Any], noise: Sequence[float] = (), images: Sequence[int] = ()
) -> bool:
    """With errors at these levels of noise, and what it says of these single images."""
    if record.get("status") not in set(Status) - {Status.DIVERGED}:
        return False
    result, history, data = (record.get(name) for name in ("result", "history", "data"))
    if not isinstance(result, dict) or not isinstance(history, list) or not isinstance(data, dict):
        return False
    samples = data.get("samples")
    if not isinstance(samples, dict) or "train" not in samples:
        return False
    return (
        _has_errors(result, samples)
        and len(history) - 1 == record.get("n_iter")
        and all(_is_entry(entry, k, samples) for k, entry in enumerate(history))
        and _agree(record, result, history[-1], samples)
        and _has_sizes(result, history[-1].get("active_units"))
        and (not noise or _is_in_noise(result.get("noise"), noise, samples))
        and (not images or _is_of_images(result.get("images"), noise, images))
    )


def _has_errors(content: dict[str, Any], samples: dict[str, Any]) -> bool:
    """An error rate of every part."""
    return is_errors([content.get(f"{part}_error") for part in samples], samples)


def _agree(
    record: dict[str, Any], result: dict[str, Any], last: dict[str, Any], samples: dict[str, Any]
) -> bool:
    """The errors at the end are those after the last iteration, unless a run went back to its best.

    Of the training part only some samples are scored after an iteration.
    """
    settings = record.get("settings")
    if isinstance(settings, dict) and settings.get("patience") is not None:
        return True
    parts = [part for part in samples if part != "train"]
    return all(math.isclose(result[f"{part}_error"], last[f"{part}_error"]) for part in parts)


def _has_sizes(result: dict[str, Any], units_at_the_end: Any) -> bool:
    """Finite numbers from 0 on, and as many layers as the history tells of."""
    units, operations = result.get("active_units"), result.get("operations")
    if not isinstance(units, list) or not isinstance(operations, dict):
        return False
    if isinstance(units_at_the_end, list) and len(units) != len(units_at_the_end):
        return False
    sizes = [*units, result.get("parameters"), *(operations.get(name) for name in SIZES)]
    return all(isinstance(size, int | float) and 0 <= size < math.inf for size in sizes)


def _is_entry(entry: Any, k: int, samples: dict[str, Any]) -> bool:
    """Of the history: iteration k, and the errors after it."""
    return isinstance(entry, dict) and entry.get("iteration") == k and _has_errors(entry, samples)


def _is_in_noise(noise: Any, levels: Sequence[float], samples: dict[str, Any]) -> bool:
    return (
        isinstance(noise, dict)
        and noise.get("part") in samples
        and noise.get("levels") == list(levels)
        and is_errors(noise.get("errors"), levels)
    )


def _is_of_images(content: Any, levels: Sequence[float], rows: Sequence[int]) -> bool:
    """At every level the class probabilities of every image."""
    if not isinstance(content, dict):
        return False
    if (content.get("rows"), content.get("levels")) != (list(rows), list(levels)):
        return False
    probabilities = content.get("probabilities")
    return (
        isinstance(probabilities, list)
        and len(probabilities) == len(levels)
        and all(isinstance(level, list) and len(level) == len(rows) for level in probabilities)
        and all(_are_shares(shares) for level in probabilities for shares in level)
    )


def _are_shares(shares: Any) -> bool:
    """Probabilities of all classes, up to rounding."""
    return is_errors(shares, shares) and abs(sum(shares) - 1) < SLACK
