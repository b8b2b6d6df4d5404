"""What may watch a training run, and stop it."""

from typing import Any


class Callback:
    """Called while training goes on; override what you need."""

    def check(self) -> None:
        """Called before a run touches anything: refuse here what cannot work."""

    def on_start(self, done: int, total: int) -> None:
        """Training begins, or goes on: ``done`` of ``total`` iterations are behind it."""

    def on_batch(self, iteration: int, done: int, total: int) -> None:
        """``done`` of ``total`` batches of this iteration (from 1) are done."""

    def on_iteration(self, entry: dict[str, Any], model: Any) -> bool | None:
        """An iteration is over; ``entry`` is its line of the history. True ends the training."""
