"""Progress as plain lines of text, for a stderr that is not a terminal."""

import sys
import time
from typing import Any

from zeroone.training.callbacks import Callback
from zeroone.utils.checks import printable

PARTS = ("train", "validation", "test")
SILENCE = 30.0  # the longest time without a line, in seconds


class Lines(Callback):
    """Print about ten lines per run, and at least one every half minute."""

    def __init__(self, label: str = "training") -> None:
        self.label, self.total = label, 0
        self.begun, self.since, self.spoken = 0, 0.0, 0.0

    def on_start(self, done: int, total: int) -> None:
        """Note the number of iterations; say where a resumed run continues."""
        self.total, self.begun = total, done
        self.since = self.spoken = time.monotonic()
        if done:
            self._say(f"resumes after {done} of {total}")

    def on_batch(self, iteration: int, done: int, total: int) -> None:
        """Print a line if the last one is old."""
        if done < total and time.monotonic() - self.spoken >= SILENCE:
            reached = iteration - 1 + done / total
            share = 100 * done // total
            self._say(f"{share}% of {iteration}/{self.total}{self._left(reached)}")

    def on_iteration(self, entry: dict[str, Any], model: Any) -> None:  # noqa: ARG002
        """Print a line after every tenth of the iterations, or if the last one is old."""
        k = entry["iteration"]
        late = time.monotonic() - self.spoken >= SILENCE
        if late or k % max(1, self.total // 10) == 0 or k == self.total:
            what = "sweep" if "F" in entry else "epoch"
            self._say(f"{what} {k}/{self.total}, {describe(entry)}{self._left(k)}")

    def _say(self, words: str) -> None:
        self.spoken = time.monotonic()
        say(f"{self.label}: {words}")

    def _left(self, reached: float) -> str:
        """Return the time left, if it is at least a minute."""
        if reached <= self.begun:
            return ""
        each = (time.monotonic() - self.since) / (reached - self.begun)
        seconds = each * (self.total - reached)
        return f", about {seconds / 60:.0f} min left" if seconds >= 60 else ""


def say(sentence: str) -> None:
    """Print a line to stderr."""
    print(printable(sentence), file=sys.stderr, flush=True)


def describe(entry: dict[str, Any]) -> str:
    """Summarise a history entry: loss or F, errors, flipped bits."""
    errors = [f"{p} error {percent(entry[f'{p}_error'])}" for p in PARTS if f"{p}_error" in entry]
    value = f"F {entry['F']:.4g}" if "F" in entry else f"loss {entry['loss']:.4g}"
    shares = "-".join(map(percent, entry.get("flipped", [])))
    return ", ".join([value, *errors, *([f"bits flipped {shares}"] if shares else [])])


def percent(share: float | None) -> str:
    """Format a share of one as a percentage; None becomes an empty string."""
    return "" if share is None else f"{100 * share:.2f}%"
