"""The training loop: iterate a learner, score it, save its state, and say why training ended."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from zeroone.analysis.counts import active_units
from zeroone.analysis.metrics import error_rate
from zeroone.training.callbacks import Callback
from zeroone.training.checkpoint import Checkpoint, Progress
from zeroone.training.training_data import Subset, TrainingData

if TYPE_CHECKING:
    from zeroone.exact.solver import ExactBCD
    from zeroone.training.epochs import Epochs
    from zeroone.training.sweeps import Sweeps
    from zeroone.training.trainers import ModuleTrainer

    Learner: TypeAlias = Epochs | Sweeps  # of mini-batches; of the exact solver
    Trainer: TypeAlias = ModuleTrainer | ExactBCD

SCORED = 2_000  # training samples to score after an iteration; the final score uses all


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
    task: TrainingData,
    checkpoint: Checkpoint | None,
    callbacks: Sequence[Callback],
    *,
    scores: bool,
) -> tuple[Progress, Status, str]:
    """Iterate until the limit, or until the learner, a callback or lost patience stops it.

    All ranks do the same; the first one reads and writes the state.

    Returns:
        How far it came, why it ended, and the same in words.

    """
    trainer, team, patience = learner.trainer, learner.trainer.team, task.settings.patience
    whole = task.parts | {"train": task.parts["train"].sample(SCORED)}
    wanted = {name: part for name, part in whole.items() if scores or name == "validation"}
    scored = {name: part.mine(team) for name, part in wanted.items()}
    if checkpoint and checkpoint.resume:
        with team.agree():
            kept = checkpoint.read() if team.is_first else None
        kept = team.first_word(kept)
        assert kept is not None
        progress, state = kept
        trainer.restore(state)
    else:
        progress = Progress([_entry(0, trainer, learner.start(), scored)])
        _save(checkpoint, progress, trainer, due=True)
    stop: Stop | None = None
    with _watched(trainer, progress, callbacks):
        for callback in callbacks:
            callback.on_start(len(progress.history) - 1, learner.limit)
        for k in range(len(progress.history), learner.limit + 1):
            did, stop = learner.iterate(k, callbacks)
            entry = _entry(k, trainer, did, scored)
            progress.history.append(entry)
            stop = stop or _impatience(progress, trainer, patience)
            wishes = [callback.on_iteration(entry, trainer.model) for callback in callbacks]
            if team.largest(any(wishes))[0]:
                stop = stop or (Status.STOPPED, f"a callback stopped it after iteration {k}")
            if stop:
                break
            _save(checkpoint, progress, trainer, due=k == learner.limit)
    status, reason = stop or learner.at_limit
    if progress.best:
        trainer.restore(progress.best)
        if status is not Status.EARLY:
            reason += f"; the weights are those of iteration {progress.best_iteration}, the best"
    return progress, status, reason


@contextmanager
def _watched(
    trainer: "Trainer", progress: Progress, callbacks: Sequence[Callback]
) -> Iterator[None]:
    """Show the optimizer and the history to callbacks while a run lasts: they may be copied."""
    for callback in callbacks:
        callback.optimizer, callback.history = trainer.optimizer, progress.history
    try:
        yield
    finally:
        for callback in callbacks:
            callback.optimizer, callback.history = None, []


def _save(
    checkpoint: Checkpoint | None, progress: Progress, trainer: "Trainer", *, due: bool
) -> None:
    """Write the state if it is due or the last one is old. All ranks contribute to it."""
    if checkpoint is None or not trainer.team.first_word(due or checkpoint.is_due):
        return
    state = trainer.state()
    if trainer.team.is_first:
        checkpoint.write(progress, state)


def _entry(
    k: int, trainer: "Trainer", did: dict[str, Any], parts: dict[str, Subset]
) -> dict[str, Any]:
    """Complete a history entry with the error of each part and the number of active units."""
    model, team = trainer.model, trainer.team
    errors = {f"{name}_error": error_rate(model, p.X, p.y, team) for name, p in parts.items()}
    left = {"active_units": active_units(model)} if parts else {}
    return {"iteration": k, **did, **errors, **left}


def _impatience(progress: Progress, trainer: "Trainer", patience: int | None) -> Stop | None:
    """Remember the weights with the best validation error; stop if none came for too long."""
    if patience is None or not trainer.settled:
        return None
    entry = progress.history[-1]
    error, k = entry["validation_error"], entry["iteration"]
    if progress.best_error is None or error < progress.best_error:
        progress.best = {name: T.clone() for name, T in trainer.state().items()}
        progress.best_error, progress.best_iteration = error, k
    if k - progress.best_iteration < patience:
        return None
    return Status.EARLY, (
        f"no validation error below that of iteration {progress.best_iteration} came within "
        f"patience={patience}"
    )
