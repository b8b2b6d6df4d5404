"""Train a baseline on the same data, batches and schedule as a 0/1 network, by Adam."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import BaselineSettings
from zeroone.nn.heads import HEADS, make_head
from zeroone.training import Callback, TrainSettings
from zeroone.training.checkpoint import open_checkpoint
from zeroone.training.epochs import BatchPlan, Epochs
from zeroone.training.runs import record_run
from zeroone.training.trainers import ModuleTrainer, as_bytes, from_bytes
from zeroone.training.training_data import Features, Labelled, TrainingData, as_arrays
from zeroone.utils.checks import InputError
from zeroone.utils.device import find_device
from zeroone.utils.parallel import ALONE, Share, Team

# The settings of training that a baseline shares with a 0/1 network; it ignores all others.
USED: tuple[str, ...] = ("hidden", "scaling", "augment", "validation", "patience", "dtype", "seed")
USED += ("epochs", "batch", "input_dropout", "input_noise", "input_bits")
# Older records have no such settings.
LATER = ("warmup", "weight_decay", "bf16", "input_noise", "input_bits")


class AdamTrainer(ModuleTrainer):
    """One step of Adam for each batch. Batch normalisation takes each rank's own samples."""

    def __init__(
        self, model: FloatNetwork, settings: BaselineSettings, n_batches: int, team: Team = ALONE
    ) -> None:
        self.network, self.settings, self.n_batches, self.team = model, settings, n_batches, team
        self.k, self.bf16 = 0, settings.bf16
        self.head = make_head("softmax", smoothing=settings.smoothing)
        fused = next(model.parameters()).device.type in {"cpu", "cuda"}
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=fused,
        )
        self.module = team.wrap(model)

    @property
    def model(self) -> FloatNetwork:
        """The network that is scored."""
        return self.network

    def update(
        self,
        V0: Tensor,
        y: Tensor,
        rng: torch.Generator,
        weights: Tensor | None = None,
        share: Share | None = None,
    ) -> Tensor:
        """Take one step of Adam, at a rate that may rise first and then falls linearly to 0."""
        warm = self.settings.warmup * self.n_batches
        if self.k < warm:
            rate = (self.k + 1) / (warm + 1)
        else:
            rate = (self.n_batches - self.k) / (self.n_batches - warm)
        self.optimizer.param_groups[0]["lr"] = self.settings.learning_rate * rate
        self.module.train()
        scores = super().update(V0, y, rng, weights, share)
        self.module.eval()
        self.k += 1
        return scores

    def state(self) -> dict[str, Tensor]:
        """Return the state of the network and of Adam."""
        state = {"model": self.network.state_dict(), "adam": self.optimizer.state_dict()}
        return {"state": as_bytes(state | {"k": self.k})}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Resume from ``state()``."""
        kept = from_bytes(state["state"])
        self.k = kept["k"]
        self.network.load_state_dict(kept["model"])
        parameters = list(self.network.parameters())
        for i, moments in kept["adam"]["state"].items():
            for name, T in moments.items():
                if T.shape == parameters[i].shape:
                    # The fused optimizer needs moments laid out in memory like their parameter.
                    moments[name] = torch.empty_like(parameters[i]).copy_(T)
        self.optimizer.load_state_dict(kept["adam"])


def train_baseline(
    X: Any,
    y: Any,
    baseline: BaselineSettings,
    settings: TrainSettings,
    *,
    test: Labelled | None = None,
    name: str | None = None,
    image: tuple[int, ...] | None = None,
    callbacks: Sequence[Callback] = (),
    out: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    features: Features | None = None,
    team: Team = ALONE,
) -> tuple[FloatNetwork, dict[str, Any]]:
    """Train a baseline; return the network and the record of its run.

    Of ``settings`` it uses those in ``USED``. ``image`` is the shape (channels, height, width) of a
    sample, for convolutions; ``features``, ``resume`` and ``overwrite`` are as in ``train``. The
    folder ``out`` holds only the state of the run, which the caller removes once it keeps the
    result.
    """
    if not HEADS[settings.head].targets.one_class:
        raise InputError(f"baselines choose one class per sample, not as head={settings.head!r}.")
    X, y, settings, test, image = as_arrays(X, y, settings, test, image)
    known = {"baseline": baseline, "resume": resume, "out": out is None}
    task = TrainingData.prepare(X, y, settings, test, name, image, features, None, team, **known)
    part = task.parts["train"]
    model = start(task, baseline).to(find_device(settings.device))
    task = replace(task, scaling=model.scaling)
    plan = BatchPlan.make(part, settings, of_images=model.convolves)
    trainer = AdamTrainer(model, baseline, plan.total, team)
    learner = Epochs(trainer, part, task.scaling, plan, task.augmentation)
    described = describe_baseline(baseline, settings)
    with open_checkpoint(
        out, described, task, resume=resume, overwrite=overwrite, team=team
    ) as checkpoint:
        return record_run(learner, task, described, checkpoint, callbacks=callbacks)


def describe_baseline(baseline: BaselineSettings, settings: TrainSettings) -> dict[str, Any]:
    """Return all settings that count, under the names that records have had since 0.1."""
    flat, own = settings.flat(), asdict(baseline)
    own = {name: value for name, value in own.items() if value or name not in LATER}
    kept = {name.replace("backbone", "body"): value for name, value in own.items()}
    used = {name: flat[name] for name in USED if flat[name] or name not in LATER}
    return used | {"rival": kept}


def start(task: TrainingData, baseline: BaselineSettings) -> FloatNetwork:
    """Return a network with torch's own start, drawn from the seed."""
    widths = [task.n_features, *task.settings.layers, len(task.classes)]
    with torch.random.fork_rng():
        torch.manual_seed(task.settings.seed)
        model = FloatNetwork(widths, baseline, task.scaling, task.image)
    return model.to(task.scaling.centre.dtype).eval()
