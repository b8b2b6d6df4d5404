"""The training loop: iterate a learner, score it, save its state, and say why training ended."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from zeroone.analysis.counts import active_units
from zeroone.analysis.metrics import error_rate
from zeroone.training.callbacks import Callback
from zeroone.training.checkpoint import Checkpoint, Progress
from zeroone.training.training_data import Subset

if TYPE_CHECKING:
    from zeroone.training.epochs import Epochs
    from zeroone.training.sweeps import Sweeps

    Learner: TypeAlias = Epochs | Sweeps  # of mini-batches; of the exact solver

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


def run(
    learner: "Learner",
    parts: dict[str, Subset],
    *,
    patience: int | None = None,
    callbacks: Sequence[Callback] = (),
    checkpoint: Checkpoint | None = None,
    scores: bool = True,
) -> tuple[Progress, Status, str]:
    """Iterate until the limit, or until the learner, a callback or lost patience stops it.

    Args:
        learner: what to iterate. All of its ranks do the same; the first one reads and writes
            the state.
        parts: the data to score, by name.
        patience: iterations to wait for a better validation error; None waits for the limit.
        callbacks: called after every batch and every iteration.
        checkpoint: where to save the state, and perhaps to resume from; None saves nothing.
        scores: whether to score all parts after every iteration, or only the validation part.

    Returns:
        How far it came, why it ended, and the same in words.

    """
    team = learner.team
    whole = {**parts, "train": parts["train"].sample(SCORED)}
    wanted = {name: part for name, part in whole.items() if scores or name == "validation"}
    scored = {name: part.mine(team) for name, part in wanted.items()}
    if checkpoint and checkpoint.resume:
        with team.agree():
            kept = checkpoint.read() if team.is_first else None
        kept = team.first_word(kept)
        assert kept is not None
        progress, state = kept
        learner.restore(state)
    else:
        progress = Progress([_entry(0, learner, learner.start(), scored)])
        _save(checkpoint, progress, learner, due=True)
    stop: Stop | None = None
    with _watched(learner, progress, callbacks):
        for callback in callbacks:
            callback.on_start(len(progress.history) - 1, learner.limit)
        for k in range(len(progress.history), learner.limit + 1):
            did, stop = learner.iterate(k, callbacks)
            entry = _entry(k, learner, did, scored)
            progress.history.append(entry)
            stop = stop or _impatience(progress, learner, patience)
            wishes = [callback.on_iteration(entry, learner.model) for callback in callbacks]
            if team.largest(any(wishes))[0]:
                stop = stop or (Status.STOPPED, f"a callback stopped it after iteration {k}")
            if stop:
                break
            _save(checkpoint, progress, learner, due=k == learner.limit)
    status, reason = stop or learner.at_limit
    if progress.best:
        learner.restore(progress.best)
        if status is not Status.EARLY:
            reason += f"; the weights are those of iteration {progress.best_iteration}, the best"
    return progress, status, reason


@contextmanager
def _watched(
    learner: "Learner", progress: Progress, callbacks: Sequence[Callback]
) -> Iterator[None]:
    """Show the optimizer and the history to callbacks while a run lasts: they may be copied."""
    for callback in callbacks:
        callback.optimizer, callback.history = learner.optimizer, progress.history
    try:
        yield
    finally:
        for callback in callbacks:
            callback.optimizer, callback.history = None, []


def _save(
    checkpoint: Checkpoint | None, progress: Progress, learner: "Learner", *, due: bool
) -> None:
    """Write the state if it is due or the last one is old. All ranks contribute to it."""
    team = learner.team
    if checkpoint is None or not team.first_word(due or checkpoint.is_due):
        return
    state = learner.state()
    if team.is_first:
        checkpoint.write(progress, state)


def _entry(
    k: int, learner: "Learner", did: dict[str, Any], parts: dict[str, Subset]
) -> dict[str, Any]:
    """Complete a history entry with the error of each part and the number of active units."""
    model, team = learner.model, learner.team
    errors = {f"{name}_error": error_rate(model, p.X, p.y, team) for name, p in parts.items()}
    left = {"active_units": active_units(model)} if parts else {}
    return {"iteration": k, **did, **errors, **left}


def _impatience(progress: Progress, learner: "Learner", patience: int | None) -> Stop | None:
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
