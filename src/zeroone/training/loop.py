"""The one training loop: it turns a learner, scores it, keeps its state, and says why it ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zeroone.analysis.counts import active_units
from zeroone.analysis.metrics import error_rate
from zeroone.training.callbacks import Callback
from zeroone.training.checkpoint import Checkpoint, Progress
from zeroone.training.learner import Learner, Status
from zeroone.training.training_data import Subset
from zeroone.utils.parallel import ALONE, Team

SCORED = 10_000  # training samples that are scored after an iteration; at the end all are


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    progress: Progress
    status: Status
    reason: str

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry an iteration, the first one from before the training."""
        return self.progress.history


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
    """Iterate until the learner or a callback stops, patience ends, or all is done.

    ``scores``: whether all parts are scored after every iteration; without, only the validation
    part is, if there is one.
    ``team``: all of its ranks do the same; the first one reads and writes the state.
    """
    whole = {**parts, "train": parts["train"].sample(SCORED)}
    wanted = {name: part for name, part in whole.items() if scores or name == "validation"}
    scored = {name: part.mine(team) for name, part in wanted.items()}
    if checkpoint and resume:
        kept = team.first_word(checkpoint.read() if team.is_first else None)
        assert kept is not None
        progress, state = kept
        learner.restore(state)
    else:
        progress = Progress([_entry(0, learner, learner.start(), scored, team)])
        _keep(checkpoint, progress, learner, team, due=True)
    for callback in callbacks:
        callback.on_start(len(progress.history) - 1, learner.limit)
    stop: tuple[Status, str] | None = None
    for k in range(len(progress.history), learner.limit + 1):
        iteration = learner.iterate(k, _batch_reporter(k, callbacks))
        entry = _entry(k, learner, iteration.entry, scored, team)
        progress.history.append(entry)
        stop = iteration.stop or _impatience(progress, learner, patience)
        wishes = [callback.on_iteration(entry, learner.model) for callback in callbacks]
        if team.largest(any(wishes))[0]:
            stop = stop or (Status.STOPPED, f"a callback stopped it after iteration {k}")
        if stop:
            break
        _keep(checkpoint, progress, learner, team, due=k == learner.limit)
    status, reason = stop or learner.at_limit
    if progress.best:
        learner.restore(progress.best)
        if status is not Status.EARLY:
            reason += f"; the weights are those of iteration {progress.best_iteration}, the best"
    return Outcome(progress, status, reason)


def _keep(
    checkpoint: Checkpoint | None, progress: Progress, learner: Learner, team: Team, *, due: bool
) -> None:
    """Write the state if it is due, or the last one is old; the ranks make it together."""
    if checkpoint is None or not team.first_word(due or checkpoint.is_due):
        return
    state = learner.state()
    if team.is_first:
        checkpoint.write(progress, state)


def _batch_reporter(k: int, callbacks: Sequence[Callback]) -> Any:
    def report(done: int, total: int) -> None:
        for callback in callbacks:
            callback.on_batch(k, done, total)

    return report


def _entry(
    k: int, learner: Learner, did: dict[str, Any], parts: dict[str, Subset], team: Team
) -> dict[str, Any]:
    """One line of the history: what was done, the errors, what is left of the network."""
    errors = {f"{n}_error": error_rate(learner.model, p.X, p.y, team) for n, p in parts.items()}
    left = {"active_units": active_units(learner.model)} if parts else {}
    return {"iteration": k, **did, **errors, **left}


def _impatience(
    progress: Progress, learner: Learner, patience: int | None
) -> tuple[Status, str] | None:
    """Keep the best weights by the validation error, and stop where none came for long.

    While units are still being removed no weights count: they are larger than was asked for.
    """
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
