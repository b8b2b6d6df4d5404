"""``train``: arrays in; a network, a reason for stopping and a record out.

Inputs X are an array, a tensor, a sparse matrix or sharded data. They may also be a map-style
``torch.utils.data.Dataset`` of (input, label) pairs, which is read once into memory and must have
no random transforms (see ``augment``). Of a ``DataLoader``, the data set, the workers and, unless
the settings give one, the batch size are used: batches are drawn by the settings' seed, so the
loader's order and ``drop_last`` have no effect. Samples with three axes are images.

Labels y are numbers or strings, for the softmax head also a matrix of class probabilities, whose
columns are the classes. Other heads take other targets: an indicator matrix of labels ('logistic'),
one or several real numbers ('linear', which callbacks see scaled to mean 0 and variance 1).

A network to ``start`` from is copied. Its layers and the shape of its images need not be given, nor
its head, margin, bias and dtype if there are no settings; settings that contradict it are refused.
``keep`` counts its units, or those of ``hidden``, if units were removed before.

The folder ``out`` belongs to one run at a time. The state is written after an iteration, at most
every 0.2 s.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from zeroone.analysis.counts import counts
from zeroone.analysis.metrics import error_rates
from zeroone.exact.solver import ExactBCD
from zeroone.nn.heads import make_head
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network, check_network
from zeroone.nn.operators import Shape
from zeroone.training.callbacks import Callback
from zeroone.training.checkpoint import MODEL, RECORD, Checkpoint, open_checkpoint
from zeroone.training.epochs import BatchPlan, Epochs
from zeroone.training.flash import within_flash
from zeroone.training.loop import Status
from zeroone.training.loop import run as run_loop
from zeroone.training.settings import DTYPES, TrainSettings
from zeroone.training.sweeps import Sweeps
from zeroone.training.trainers import PROBE, BCDTrainer
from zeroone.training.training_data import Arrays, Features, Labelled, TrainingData, as_arrays
from zeroone.utils.checks import InputError, enough_memory
from zeroone.utils.device import find_device
from zeroone.utils.parallel import ALONE, Team
from zeroone.utils.records import new_record, write_record
from zeroone.utils.storage import flush, locked, make_folder

EXACT_INIT_STD = 1e-3
TorchData = Dataset[Any] | DataLoader[Any]


@dataclass
class Run:
    """A finished training run.

    Attributes:
        network: the trained network.
        record: settings, data, history and results, as ``record.json`` holds them.

    """

    network: Network
    record: dict[str, Any] = field(repr=False)

    @property
    def status(self) -> Status:
        """Why training stopped."""
        return Status(self.record["status"])

    @property
    def reason(self) -> str:
        """The same in words."""
        return str(self.record["reason"])

    @property
    def n_iter(self) -> int:
        """The number of sweeps or epochs."""
        return int(self.record["n_iter"])

    def save(self, folder: str | Path) -> Path:
        """Write ``model.safetensors`` and ``record.json`` into a folder, made if need be.

        A run that diverged gets no model. The record comes last: it tells that all is there.
        """
        folder = make_folder(Path(folder))
        with locked(folder):
            (folder / RECORD).unlink(missing_ok=True)  # of an earlier run, with another model
            flush(folder)
            if self.status is Status.DIVERGED:
                (folder / MODEL).unlink(missing_ok=True)
            else:
                self.network.save(folder / MODEL)
            write_record(folder / RECORD, self.record)
        return folder


@enough_memory()
def train(
    X: ArrayLike | Tensor | TorchData,
    y: ArrayLike | Tensor | None = None,
    settings: TrainSettings | None = None,
    *,
    test: Labelled | TorchData | None = None,
    name: str | None = None,
    image: Shape | None = None,
    callbacks: Sequence[Callback] = (),
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    features: Features | None = None,
    sample_weight: ArrayLike | Tensor | None = None,
    start: Network | None = None,
    feature_names: Sequence[str] | None = None,
    scores: bool = True,
    team: Team = ALONE,
) -> Run:
    """Train a network on raw inputs X and labels y; ``zeroone.training.runs`` has the details.

    Args:
        X: one sample per row: an array, a tensor, a sparse matrix or shards; or torch's data set.
        y: the labels, or other targets that the head takes; None if X is a data set of torch.
        settings: what to train and how; None takes the defaults, or what ``start`` has.
        test: inputs and labels, or a data set of torch, to score after every iteration only.
        name: what the record calls the data.
        image: the shape of a sample (channels, height, width), for convolutions.
        callbacks: observe the run and may stop it.
        out: a folder for the model, the record and, until they are there, the state of the run.
        resume: whether to continue from the state in ``out``: on the same machine, with as many
            threads, the result is that of an uninterrupted run, bit for bit.
        overwrite: whether a new run may replace one in ``out``, finished or not.
        features: the outputs of a trained backbone for X, on which layers are trained (see
            ``zeroone.pretraining``); the resulting network takes X.
        sample_weight: how often each sample counts in training; errors count each once.
        start: a trained network to start from, with its scaling.
        feature_names: the names of the inputs, which the model keeps.
        scores: whether to score all parts after every iteration; if not, only a validation part
            is scored, and flipped bits are not counted.
        team: the processes that train together (see ``parallel.together``), with equal calls.

    """
    if resume and out is None:
        raise InputError("resume needs the folder of the run, out=...")
    known: dict[str, Any] = {"resume": resume, "scores": scores, "out": out is None, "start": start}
    if start is not None:
        settings, image = _continuing(settings, check_network(start), image, out)
    data = as_arrays(X, y, settings or TrainSettings(), test, image)
    task, network = _prepare(data, name, features, sample_weight, start, team, known)
    if feature_names is not None:
        network.name_features(feature_names)
    learner = _make_learner(network, task, team, fresh=start is None, scores=scores)
    with open_checkpoint(
        out, task.settings.flat(), task, resume=resume, overwrite=overwrite, team=team
    ) as checkpoint:
        return _finish(learner, task, network, checkpoint, callbacks=callbacks, scores=scores)


def _prepare(
    data: Arrays,
    name: str | None,
    features: Features | None,
    sample_weight: ArrayLike | Tensor | None,
    start: Network | None,
    team: Team,
    known: dict[str, Any],
) -> tuple[TrainingData, Network]:
    """Check the data and make the network that learns them, on its device."""
    X, y, settings, test, image = data
    if sample_weight is not None and settings.solver == "exact":
        raise InputError("weights of samples are for solver='stochastic'.")
    device = find_device(settings.device)
    task = TrainingData.prepare(
        X, y, settings, test, name, image, features, sample_weight, team, **known
    )
    network = make_network(task) if start is None else _copy_for(task, start)
    settings = within_flash(task, network.scaling)
    return replace(task, settings=settings, scaling=network.to(device).scaling), network


def _finish(
    learner: Sweeps | Epochs,
    task: TrainingData,
    network: Network,
    checkpoint: Checkpoint | None,
    *,
    callbacks: Sequence[Callback],
    scores: bool,
) -> Run:
    """Train to the end and write the results in place of the state."""
    model, record = record_run(
        learner, task, task.settings.describe(), checkpoint, callbacks=callbacks, scores=scores
    )
    record["network"] = [str(LayerPlan.of(layer)) for layer in network.layers]
    if task.target_scaling is not None:
        task.target_scaling.fold(network.operators[-1])
    finished = Run(model, record)
    if checkpoint and learner.trainer.team.is_first:
        finished.save(checkpoint.path.parent)
        checkpoint.path.unlink()  # results are written
    return finished


def _copy_for(task: TrainingData, start: Network) -> Network:
    """Copy a trained network to train it on other data."""
    if (start.n_features, list(start.classes)) != (task.n_features, list(task.classes)):
        raise InputError("the network to begin with has other inputs or classes than the data.")
    network = deepcopy(start)
    network.scaling = network.scaling.widened(task.scaling)
    if task.target_scaling is not None:
        task.target_scaling.unfold(network.operators[-1])
    return network


def make_network(task: TrainingData) -> Network:
    """Build a network with random weights."""
    settings = task.settings
    std = settings.init_std
    if std is None and settings.solver == "exact":
        std = EXACT_INIT_STD
    return Network.build(
        task.shape,
        settings.plans,
        len(task.classes),
        make_head(settings.head, settings.margin),
        std=std,
        bias=settings.bias,
        seed=settings.seed,
        dtype=DTYPES[settings.dtype],
        scaling=task.scaling,
        classes=task.classes,
    )


def _continuing(
    settings: TrainSettings | None, start: Network, image: Shape | None, out: str | Path | None
) -> tuple[TrainSettings, Shape | None]:
    """Take from a network to begin with what is not given; refuse what contradicts it."""
    if out is not None:
        raise InputError("a run that begins with a trained network keeps no state on disk.")
    if start.backbone is not None:
        raise InputError("a network on a backbone cannot be trained further.")
    plans = [LayerPlan.of(layer) for layer in start.layers[:-1]]
    own: dict[str, Any] = {
        "head": start.head.kind,
        "dtype": str(start.dtype).removeprefix("torch."),
        "bias": any(op.bias for op in start.operators),
        "hidden": tuple(plan.written for plan in plans),
        "input_bits": start.scaling.bits if start.scaling.bits < 8 else None,
    }
    if start.head.has_margin:
        own["margin"] = start.head.margin
    if settings is None:
        settings = TrainSettings(**own)
    if settings.hidden is None:
        settings = replace(settings, hidden=own["hidden"])
    for name, value in own.items():
        given = getattr(settings, name)
        if given != value and not (name == "hidden" and _has_more_units(settings, plans)):
            raise InputError(f"the network to begin with has {name}={value!r}, not {given!r}.")
    shape = start.operators[0].shape_in
    return settings, shape if image is None and len(shape) == 3 else image


def _has_more_units(settings: TrainSettings, plans: list[LayerPlan]) -> bool:
    """Whether the layers may be what ``keep`` or ``lam`` left of those in the settings."""
    s = settings.stochastic
    if settings.solver == "exact" or (s.keep is None and not s.lam):
        return False
    planned = settings.plans
    return len(planned) == len(plans) and all(
        plan.units <= full.units and replace(plan, units=full.units) == full
        for plan, full in zip(plans, planned, strict=True)
    )


def _make_learner(
    network: Network, task: TrainingData, team: Team, *, fresh: bool, scores: bool
) -> Sweeps | Epochs:
    settings, part = task.settings, task.parts["train"]
    if settings.solver == "exact":
        mine = part.mine(team)
        V0 = task.scaling.apply(mine.X[:])
        network.head.smoothing = 0.0  # which an earlier training may have had
        y, rows = mine.y.to(V0.device), part.own_rows(team)
        return Sweeps(ExactBCD(network, V0, y, settings.exact, team, rows))
    plan = BatchPlan.make(part, settings, of_images=len(network.operators[0].shape_in) > 1)
    widths = None if fresh else [p.units for p in settings.plans]
    probe = task.probe(PROBE, team) if scores else None
    steps = max(1, plan.total)
    trainer = BCDTrainer(network, settings.stochastic, steps, probe, widths=widths, team=team)
    return Epochs(trainer, part, task.scaling, plan, task.augmentation)


def record_run(
    learner: Sweeps | Epochs,
    task: TrainingData,
    described: dict[str, Any],
    checkpoint: Checkpoint | None,
    *,
    callbacks: Sequence[Callback],
    scores: bool = True,
) -> tuple[Any, dict[str, Any]]:
    """Train to the end and score the result; ``described`` are the settings for the record.

    Returns:
        The network, on the CPU and for raw inputs, and the record.

    """
    progress, status, reason = run_loop(learner, task, checkpoint, callbacks, scores=scores)
    team, errors = learner.trainer.team, dict[str, float]()
    for part, samples in task.parts.items():
        mine = samples.mine(team)
        rates = error_rates(learner.trainer.model, mine.X, mine.y, team)
        errors |= {f"{part}_{kind}": error for kind, error in rates.items()}
    history, best = progress.history, progress.best_iteration if progress.best else None
    last = history[-1 if best is None else best]
    network: Any = learner.trainer.model
    model = task.whole(network.to(torch.device("cpu")))
    return model, {
        **new_record("train", described, task.settings.seed),
        "ranks": {"count": team.size},
        "device": task.settings.device,
        "data": {
            "name": task.name,
            "features": model.n_features,
            "classes": task.classes,
            "samples": {name: len(part.y) for name, part in task.parts.items()},
            "sha256": task.raw_digests,
        },
        **({"initial": task.features.summary} if task.features else {}),
        "status": str(status),
        "reason": reason,
        "plan": learner.plan,
        "n_iter": len(history) - 1,
        "best_iteration": best,
        "objective": last.get("F", last["loss"]),
        "residuals": last.get("residuals", {}),
        "result": {
            **errors,
            **counts(model),
            "seconds": sum(entry["seconds"] for entry in history),
        },
        "resumed": progress.resumed,
        "history": history,
    }
