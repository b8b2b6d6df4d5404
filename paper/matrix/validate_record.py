"""Check that the record of a trained run holds everything that tables and figures need."""

import math
from collections.abc import Sequence, Sized
from typing import Any

from zeroone.training import Status
from zeroone.utils.records import ENTRY, NUMBER, RESULT, fits, is_count, is_error, maybe

SIZES = ("macs", "additions", "word_operations")
SLACK = 1e-3  # rounding of a sum of probabilities
Content = dict[str, Any]


def are_counts(value: Any) -> bool:
    """Tell whether a value is a dict of whole numbers."""
    return isinstance(value, dict) and all(map(is_count, value.values()))


# Of any record, and of that of a run that ended well.
ANY = {
    "settings": dict,
    "seed": is_count,
    "machine": dict,
    **dict.fromkeys(("commit", "code", "backbone_digest"), maybe(str)),
    "data": maybe({"digest": maybe(str)}),
}
TOP5 = {f"{part}_top5_error": maybe(is_error) for part in ("train", "validation", "test")}
COMPLETE = ANY | {
    "data": {"samples": are_counts},
    "n_iter": is_count,
    "objective": NUMBER,
    "result": RESULT | TOP5 | {"operations": dict.fromkeys(SIZES, is_count), "seconds": NUMBER},
    "history": [ENTRY],
}


def is_complete(record: Content, noise: Sequence[float] = (), images: Sequence[int] = ()) -> bool:
    """Whether a record is complete, with errors at these noise levels and these single images."""
    try:
        return (
            fits(record, COMPLETE)
            and record["status"] in set(Status) - {Status.DIVERGED}
            and _has_history(record)
            and _has_sizes(record)
            and (not noise or _has_noise(record, noise))
            and (not images or _has_images(record["result"]["images"], noise, images))
        )
    except (KeyError, IndexError, TypeError, AttributeError):  # a key is missing or of another type
        return False


def is_errors(values: Any, of: Sized) -> bool:
    """Tell whether the values are a list of error rates, one for each item of ``of``."""
    return (
        isinstance(values, list)
        and len(values) == len(of)
        and all(isinstance(value, int | float) and 0 <= value <= 1 for value in values)
    )


def _has_errors(content: Content, samples: Content) -> bool:
    """Whether there is an error rate of every part of the data."""
    return is_errors([content[f"{part}_error"] for part in samples], samples)


def _has_history(record: Content) -> bool:
    """Whether every iteration has its errors, and the last ones are those of the result.

    A run with ``patience`` may return to earlier weights. The training errors of the history are
    those of some samples only.
    """
    result, history, samples = record["result"], record["history"], record["data"]["samples"]
    ends_alike = record["settings"].get("patience") is not None or all(
        math.isclose(result[f"{part}_error"], history[-1][f"{part}_error"])
        for part in samples
        if part != "train"
    )
    return (
        "train" in samples
        and _has_errors(result, samples)
        and len(history) == record["n_iter"] + 1
        and all(entry["iteration"] == k for k, entry in enumerate(history))
        and all(_has_errors(entry, samples) for entry in history)
        and ends_alike
    )


def _has_sizes(record: Content) -> bool:
    """Whether all sizes are finite, with as many layers as the settings and the history have."""
    result = record["result"]
    units = result["active_units"]
    planned = record["settings"].get("hidden", units)
    if not len(units) == len(planned) == len(record["history"][-1].get("active_units", planned)):
        return False
    sizes = [*units, result["parameters"], *(result["operations"][name] for name in SIZES)]
    return all(0 <= size < math.inf for size in sizes)


def _has_noise(record: Content, levels: Sequence[float]) -> bool:
    noise = record["result"]["noise"]
    return (
        noise["part"] in record["data"]["samples"]
        and noise["levels"] == list(levels)
        and is_errors(noise["errors"], levels)
    )


def _has_images(content: Content, levels: Sequence[float], rows: Sequence[int]) -> bool:
    """Whether every image has its class probabilities at every noise level."""
    probabilities = content["probabilities"]
    return (
        (content["rows"], content["levels"]) == (list(rows), list(levels))
        and [len(level) for level in probabilities] == [len(rows)] * len(levels)
        and all(
            is_errors(shares, shares) and abs(sum(shares) - 1) < SLACK
            for level in probabilities
            for shares in level
        )
    )
