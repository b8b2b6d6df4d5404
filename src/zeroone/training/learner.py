"""What the training loop turns: a learner, one iteration at a time, and why it may end."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from torch import Tensor

from zeroone.analysis.metrics import Model


class Status(StrEnum):
    """Why training stopped."""

    COMPLETED = "completed"
    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    EARLY = "early"
    STOPPED = "stopped"
    DIVERGED = "diverged"


@dataclass(frozen=True)
class Iteration:
    """What one iteration did, and why it should be the last one, if so."""

    entry: dict[str, Any]
    stop: tuple[Status, str] | None = None


OnBatch = Callable[[int, int], None]  # done, total


def silent(_done: int, _total: int) -> None:
    """Nobody watches the batches."""


class Learner(Protocol):
    """What the training loop needs."""

    limit: int  # iterations in all
    at_limit: tuple[Status, str]  # what to say when they are done

    @property
    def plan(self) -> dict[str, int]:
        """How much was planned, for the record."""

    @property
    def model(self) -> Model:
        """What is scored."""

    @property
    def settled(self) -> bool:
        """Whether no more units will be removed: only then the best weights are what was asked."""

    def start(self) -> dict[str, Any]:
        """What the history says before the first iteration."""

    def iterate(self, k: int, on_batch: OnBatch = silent) -> Iteration:
        """Do iteration k, counted from 1."""

    def state(self) -> dict[str, Tensor]:
        """All that the next iteration depends on."""

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()``."""
