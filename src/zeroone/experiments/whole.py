"""Whether the record of a trained cell is whole: tables and figures find all in it they need."""

from collections.abc import Sequence
from typing import Any

from zeroone.records import is_errors
from zeroone.training.learner import Status

SIZES = ("macs", "additions", "word_operations")


def is_whole(
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
        and _has_sizes(result)
        and len(history) - 1 == record.get("n_iter")
        and all(_is_entry(entry, k, samples) for k, entry in enumerate(history))
        and (not noise or _is_in_noise(result.get("noise"), noise, samples))
        and (not images or isinstance(result.get("images"), dict))
    )


def _has_errors(content: dict[str, Any], samples: dict[str, Any]) -> bool:
    """An error rate of every part."""
    return is_errors([content.get(f"{part}_error") for part in samples], samples)


def _has_sizes(result: dict[str, Any]) -> bool:
    units, operations = result.get("active_units"), result.get("operations")
    if not isinstance(units, list) or not isinstance(operations, dict):
        return False
    sizes = [*units, result.get("parameters"), *(operations.get(name) for name in SIZES)]
    return all(isinstance(size, int | float) for size in sizes)


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
