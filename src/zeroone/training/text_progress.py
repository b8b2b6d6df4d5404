"""What a person reads while training goes on, where there is no terminal for a bar."""

import sys
import time
from typing import Any

from zeroone.training.callbacks import Callback

PARTS = ("train", "validation", "test")
SILENCE = 30.0  # seconds without a line, at most


class Lines(Callback):
    """About ten plain lines, one an epoch or so, and one at least every half minute."""

    def __init__(self, label: str = "training") -> None:
        self.label, self.total = label, 0
        self.begun, self.since, self.spoken = 0, 0.0, 0.0

    def on_start(self, done: int, total: int) -> None:
        """Learn how far it is; say where a resumed run goes on."""
        self.total, self.begun = total, done
        self.since = self.spoken = time.monotonic()
        if done:
            self._say(f"goes on after {done} of {total}")

    def on_batch(self, iteration: int, done: int, total: int) -> None:
        """A sign of life, if there has been no other."""
        if done < total and time.monotonic() - self.spoken >= SILENCE:
            reached = iteration - 1 + done / total
            share = 100 * done // total
            self._say(f"{share}% of {iteration}/{self.total}{self._left(reached)}")

    def on_iteration(self, entry: dict[str, Any], model: Any) -> None:  # noqa: ARG002
        """One line."""
        k = entry["iteration"]
        late = time.monotonic() - self.spoken >= SILENCE
        if late or k % max(1, self.total // 10) == 0 or k == self.total:
            what = "sweep" if "F" in entry else "epoch"
            self._say(f"{what} {k}/{self.total}, {describe(entry)}{self._left(k)}")

    def _say(self, words: str) -> None:
        self.spoken = time.monotonic()
        say(f"{self.label}: {words}")

    def _left(self, reached: float) -> str:
        """How long the rest will take, if it is worth saying."""
        if reached <= self.begun:
            return ""
        each = (time.monotonic() - self.since) / (reached - self.begun)
        seconds = each * (self.total - reached)
        return f", about {seconds / 60:.0f} min left" if seconds >= 60 else ""


def say(sentence: str) -> None:
    """One line about what is going on, on stderr."""
    print(sentence, file=sys.stderr, flush=True)


def describe(entry: dict[str, Any]) -> str:
    """How it stands, by an entry of the history."""
    errors = [f"{p} error {percent(entry[f'{p}_error'])}" for p in PARTS if f"{p}_error" in entry]
    value = f"F {entry['F']:.4g}" if "F" in entry else f"loss {entry['loss']:.4g}"
    shares = "-".join(map(percent, entry.get("flipped", [])))
    return ", ".join([value, *errors, *([f"bits flipped {shares}"] if shares else [])])


def percent(share: float | None) -> str:
    """A share of one, or nothing."""
    return "" if share is None else f"{100 * share:.2f}%"
