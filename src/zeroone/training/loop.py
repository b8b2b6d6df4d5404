"""The training loop: iterate a learner, score it, save its state, and say why training ended."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from zeroone.analysis.counts import active_units
from zeroone.analysis.metrics import Model, error_rate
from zeroone.training.callbacks import Callback
from zeroone.training.checkpoint import Checkpoint, Progress
from zeroone.training.training_data import Subset
from zeroone.utils.checks import InputError
from zeroone.utils.parallel import ALONE, Team

SCORED = 10_000  # training samples to score after an iteration; the final score uses all


class Status(StrEnum):
    """Why training stopped."""

    COMPLETED = "completed"
    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    EARLY = "early"
    STOPPED = "stopped"
    FAILED = "failed"  # it ended, but a constant answer would have a lower loss
    DIVERGED = "diverged"


Stop = tuple[Status, str]  # with the reason, in words


@dataclass(frozen=True)
class Iteration:
    """The history entry of one iteration and, if it must be the last, why."""

    entry: dict[str, Any]
    stop: Stop | None = None


class Learner(Protocol):
    """What the loop iterates: ``Epochs`` of mini-batches, or ``Sweeps`` of the exact solver."""

    limit: int  # the number of iterations
    at_limit: Stop  # how training ends when they are done
    plan: dict[str, int]  # the amount of work, for the record

    @property
    def optimizer(self) -> Any:
        """What trains the model, for callbacks."""

    @property
    def model(self) -> Model:
        """The model to score."""

    @property
    def settled(self) -> bool:
        """Whether pruning is over. Until then the network is larger than requested."""

    def start(self) -> dict[str, Any]:
        """Return the history entry from before the first iteration."""

    def iterate(self, k: int, callbacks: Sequence[Callback] = ()) -> Iteration:
        """Run iteration ``k``, counted from 1."""

    def state(self) -> dict[str, Tensor]:
        """Return everything the next iteration depends on."""

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from the result of ``state()``."""


class Outcome(NamedTuple):
    """How a run ended."""

    progress: Progress
    status: Status
    reason: str


def run(
    learner: Learner,
    parts: dict[str, Subset],
    *,
    patience: int | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | None = None,
    resume: bool = False,
    scores: bool = True,
    team: Team = ALONE,
) -> Outcome:
    """Iterate until the limit, or until the learner, a callback or lost patience stops it.

    Args:
        learner: what to iterate.
        parts: the data to score, by name.
        patience: iterations to wait for a better validation error; None waits for the limit.
        callbacks: called after every batch and every iteration.
        checkpoint: where to save the state; None saves nothing.
        resume: whether to continue from the checkpoint.
        scores: whether to score all parts after every iteration, or only the validation part.
        team: the ranks. All do the same; the first one reads and writes the state.

    """
    whole = {**parts, "train": parts["train"].sample(SCORED)}
    wanted = {name: part for name, part in whole.items() if scores or name == "validation"}
    scored = {name: part.mine(team) for name, part in wanted.items()}
    if checkpoint and resume:
        with team.agree():
            kept = checkpoint.read() if team.is_first else None
        kept = team.first_word(kept)
        assert kept is not None
        progress, state = kept
        learner.restore(state)
    else:
        progress = Progress([_entry(0, learner, learner.start(), scored, team)])
        _save(checkpoint, progress, learner, team, due=True)
    stop: Stop | None = None
    with _watched(learner, callbacks):
        for callback in callbacks:
            callback.on_start(len(progress.history) - 1, learner.limit)
        for k in range(len(progress.history), learner.limit + 1):
            iteration = learner.iterate(k, callbacks)
            entry = _entry(k, learner, iteration.entry, scored, team)
            progress.history.append(entry)
            stop = iteration.stop or _impatience(progress, learner, patience)
            own = dict(entry)
            wishes = [callback.on_iteration(entry, learner.model) for callback in callbacks]
            _check_plain({name: x for name, x in entry.items() if x is not own.get(name)})
            if team.largest(any(wishes))[0]:
                stop = stop or (Status.STOPPED, f"a callback stopped it after iteration {k}")
            if stop:
                break
            _save(checkpoint, progress, learner, team, due=k == learner.limit)
    status, reason = stop or learner.at_limit
    if progress.best:
        learner.restore(progress.best)
        if status is not Status.EARLY:
            reason += f"; the weights are those of iteration {progress.best_iteration}, the best"
    return Outcome(progress, status, reason)


def _check_plain(added: dict[str, Any]) -> None:
    """Refuse values from callbacks that neither a state nor a record can hold."""
    for name, value in added.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            kind = type(value).__name__
            raise InputError(
                f"a callback set {name} to a {kind}: a history holds plain numbers, text and lists."
            ) from None


@contextmanager
def _watched(learner: Learner, callbacks: Sequence[Callback]) -> Iterator[None]:
    """Show the optimizer to callbacks while a run lasts: they may be copied afterwards."""
    for callback in callbacks:
        callback.optimizer = learner.optimizer
    try:
        yield
    finally:
        for callback in callbacks:
            callback.optimizer = None


def _save(
    checkpoint: Checkpoint | None, progress: Progress, learner: Learner, team: Team, *, due: bool
) -> None:
    """Write the state if it is due or the last one is old. All ranks contribute to it."""
    if checkpoint is None or not team.first_word(due or checkpoint.is_due):
        return
    state = learner.state()
    if team.is_first:
        checkpoint.write(progress, state)


def _entry(
    k: int, learner: Learner, did: dict[str, Any], parts: dict[str, Subset], team: Team
) -> dict[str, Any]:
    """Complete a history entry with the error of each part and the number of active units."""
    errors = {f"{n}_error": error_rate(learner.model, p.X, p.y, team) for n, p in parts.items()}
    left = {"active_units": active_units(learner.model)} if parts else {}
    return {"iteration": k, **did, **errors, **left}


def _impatience(progress: Progress, learner: Learner, patience: int | None) -> Stop | None:
    """Remember the weights with the best validation error; stop if none came for too long."""
    if patience is None or not learner.settled:
        return None
    entry = progress.history[-1]
    error, k = entry["validation_error"], entry["iteration"]
    if progress.best_error is None or error < progress.best_error:
        progress.best = {name: T.clone() for name, T in learner.state().items()}
        progress.best_error, progress.best_iteration = error, k
    if k - progress.best_iteration < patience:
        return None
    return Status.EARLY, (
        f"no validation error below that of iteration {progress.best_iteration} came within "
        f"patience={patience}"
    )
