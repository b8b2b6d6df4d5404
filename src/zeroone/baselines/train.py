"""Train a rival on the same data, batches and schedule as a 0/1 network."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from zeroone.baselines.adam import AdamRule, AdamSettings, FloatNetwork
from zeroone.records import new_record
from zeroone.training import Callback, TrainSettings
from zeroone.training.epochs import BatchPlan, Epochs
from zeroone.training.loop import run as run_loop
from zeroone.training.parts import Labelled, Task
from zeroone.training.run import describe


def train_rival(
    X: Any,
    y: Any,
    rival: AdamSettings,
    settings: TrainSettings,
    *,
    test: Labelled | None = None,
    name: str | None = None,
    callbacks: Sequence[Callback] = (),
) -> tuple[FloatNetwork, dict[str, Any]]:
    """The trained network and the record of its run.

    Of ``settings`` it uses what does not belong to a solver, and epochs, batch, input dropout.
    """
    task = Task.prepare(X, y, settings, test, name)
    s, part = settings.stochastic, task.parts["train"]
    plan = BatchPlan.make(part, s.epochs, s.batch, s.input_dropout, settings.seed)
    widths = [task.n_features, *settings.hidden, len(task.classes)]
    rule = AdamRule.fresh(widths, rival, task.scaling, plan.total, settings.seed)
    learner = Epochs(rule, part, task.scaling, plan)
    outcome = run_loop(learner, task.parts, patience=settings.patience, callbacks=callbacks)
    record = new_record("train", settings.describe() | {"rival": asdict(rival)}, settings.seed)
    return rule.model, record | describe(learner, task, outcome)
