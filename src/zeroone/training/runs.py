"""``train``: arrays in; a network, a reason for stopping and a record out."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from zeroone.analysis.counts import counts
from zeroone.analysis.metrics import Model, error_rates, noise_errors
from zeroone.exact.solver import ExactBCD
from zeroone.nn.heads import make_head
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network, check_network
from zeroone.nn.operators import Shape
from zeroone.training.callbacks import Callback
from zeroone.training.checkpoint import FILE as STATE
from zeroone.training.checkpoint import Checkpoint, refuse_both, refuse_unfinished
from zeroone.training.epochs import BatchPlan, Epochs
from zeroone.training.features import Features
from zeroone.training.flash import within_flash
from zeroone.training.loop import Learner, Outcome, Status
from zeroone.training.loop import run as run_loop
from zeroone.training.settings import DTYPES, TrainSettings
from zeroone.training.sweeps import Sweeps
from zeroone.training.torch_data import Given, as_arrays
from zeroone.training.trainers import PROBE, BCDTrainer
from zeroone.training.training_data import Labelled, Subset, TrainingData
from zeroone.utils.checks import InputError
from zeroone.utils.device import find_device
from zeroone.utils.malloc import enough_memory
from zeroone.utils.parallel import ALONE, Team
from zeroone.utils.records import new_record, write_record
from zeroone.utils.storage import flush, locked, make_folder, remove_leftovers

EXACT_INIT_STD = 1e-3
RECORD, MODEL = "record.json", "model.safetensors"
TorchData = Dataset[Any] | DataLoader[Any]


@dataclass
class Run:
    """A finished training run.

    Attributes:
        network: the trained network.
        status: why training stopped.
        reason: the same in words.
        record: settings, data, history and results, as ``record.json`` holds them.

    """

    network: Network
    status: Status
    reason: str
    record: dict[str, Any] = field(repr=False)

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
    noise: Sequence[float] = (),
    features: Features | None = None,
    sample_weight: ArrayLike | Tensor | None = None,
    start: Network | None = None,
    feature_names: Sequence[str] | None = None,
    scores: bool = True,
    team: Team = ALONE,
) -> Run:
    """Train a network on raw inputs X and labels y.

    Args:
        X: one sample per row: an array, a tensor, a sparse matrix or sharded data. Or a map-style
            ``torch.utils.data.Dataset`` of (input, label) pairs, which is read once into memory and
            must have no random transforms (see ``augment``). Of a ``DataLoader``, the data set, the
            workers and, unless the settings give one, the batch size are used. Batches are drawn
            by the settings' seed; the loader's order and ``drop_last`` have no effect.
        y: the labels, numbers or strings; with the softmax head also a matrix of class
            probabilities, whose columns are the classes. Other heads take other targets: an
            indicator matrix of labels ('logistic'), one or several real numbers ('linear', which
            callbacks see scaled to mean 0 and variance 1). None if X is a data set of torch.
        settings: what to train and how; None takes the defaults, or what ``start`` has.
        test: inputs and labels, or a data set of torch, to score after every iteration, and for
            nothing else.
        name: what the record calls the data.
        image: the shape of a sample (channels, height, width); convolutions need it. Samples of a
            data set of torch that have three axes set it.
        callbacks: observe the run and may stop it.
        out: a folder for the model and the record. It also holds the state of the run, written
            after an iteration, at most every 0.2 s. One run at a time may use it.
        resume: whether to continue from the state in ``out``. On the same machine with as many
            threads, the result equals that of an uninterrupted run bit for bit.
        overwrite: whether a new run may replace one in ``out``, finished or not.
        noise: levels of Gaussian noise (see ``metrics.Noise``) at which to score the result.
        features: the outputs of a trained backbone for X (see ``zeroone.pretraining``). Layers
            are trained on these; the resulting network takes X.
        sample_weight: how often each sample counts, for the stochastic solver. Errors count
            every sample once.
        start: a trained network to start from, with its scaling; it is copied. Its layers and the
            shape of its images need not be given, nor its head, margin, bias and dtype if
            ``settings`` is None. Settings that contradict it are refused. ``keep`` counts its
            units, or those of ``hidden``, if units were removed before.
        feature_names: the names of the inputs, which the model keeps.
        scores: whether to score all parts after every iteration, which on small data takes
            longer than the iteration. If not, only a validation part is scored, and flipped bits
            are not counted.
        team: the processes that train together (see ``parallel.together``), with equal calls.

    """
    for callback in callbacks:
        callback.check()
    if start is not None and out is not None:
        raise InputError("a run that begins with a trained network keeps no state on disk.")
    if resume and out is None:
        raise InputError("resume needs the folder of the run, out=...")
    refuse_both(resume=resume, overwrite=overwrite)
    if start is not None:
        settings, image = _continuing(settings, check_network(start), image)
    settings = settings or TrainSettings()
    if sample_weight is not None and settings.solver == "exact":
        raise InputError("weights of samples are for solver='stochastic'.")
    device = find_device(settings.device)
    given = as_arrays(Given(X, y, settings, test, image))
    settings = given.settings
    known: dict[str, Any] = {"resume": resume, "scores": scores, "out": out is None}
    known["start"] = _fingerprint(start)
    task = TrainingData.prepare(
        *given[:4], name, given.image, features, sample_weight, team, **known
    )
    network = _start(task, settings, start, feature_names)
    settings = within_flash(settings, task, network.scaling)
    task = replace(task, scaling=network.to(device).scaling)
    learner = _make_learner(network, task, settings, team, fresh=start is None, scores=scores)
    how = {"resume": resume, "overwrite": overwrite, "keeps_results": True}
    with open_checkpoint(out, settings.flat(), task, team, **how) as checkpoint:
        outcome = run_loop(
            learner,
            task.parts,
            patience=settings.patience,
            callbacks=callbacks,
            checkpoint=checkpoint,
            resume=resume,
            scores=scores,
            team=team,
        )
        errors = part_errors(network, task.parts, team)
        task = replace(task, scaling=network.to(torch.device("cpu")).scaling)
        record = new_record("train", settings.describe(), settings.seed)
        record |= {"ranks": team.describe(), "device": settings.device}
        record |= describe(learner, task, outcome, errors, noise)
        record["network"] = [layer.describe() for layer in network.layers]
        if task.target_scaling is not None:
            task.target_scaling.fold(network.operators[-1])
        finished = Run(task.whole(network), outcome.status, outcome.reason, record)
        if checkpoint and team.is_first:
            finished.save(checkpoint.path.parent)
            checkpoint.remove()
    return finished


@contextmanager
def open_checkpoint(
    out: str | Path | None,
    settings: dict[str, Any],
    task: TrainingData,
    team: Team = ALONE,
    *,
    resume: bool,
    overwrite: bool,
    keeps_results: bool = False,
) -> Iterator[Checkpoint | None]:
    """Lock a folder and yield its checkpoint; None without a folder.

    Results of an earlier run stay until there are new ones, which the run ``keeps_results`` for.

    Raises:
        InputError: there is nothing to resume, a new run would replace another one, or another
            process is at work in the folder.

    """
    if out is None:
        yield None
        return
    checkpoint = Checkpoint(make_folder(Path(out)), settings, task)
    team.keep_state_in(checkpoint.path)
    folder = checkpoint.path.parent
    with ExitStack() as stack:
        with team.agree():
            if team.is_first:
                stack.enter_context(locked(folder))
                _check_folder(folder, resume=resume, overwrite=overwrite, results=keeps_results)
        yield checkpoint


def _check_folder(folder: Path, *, resume: bool, overwrite: bool, results: bool) -> None:
    """Remove what an interrupted write left; refuse a folder that does not fit the wishes."""
    state = folder / STATE
    for path in (folder / RECORD, folder / MODEL, state):
        remove_leftovers(path)
    if resume and not state.is_file():
        what = "a finished run" if (folder / RECORD).exists() else "no unfinished run"
        raise InputError(f"{folder} holds {what}: there is nothing to resume.")
    if not (resume or overwrite):
        refuse_unfinished(folder)
        if results:
            refuse_finished(folder)


def refuse_finished(folder: Path) -> None:
    """Raise an error rather than replace the results of a run."""
    if any((folder / name).exists() for name in (RECORD, MODEL)):
        raise InputError(
            f"{folder} holds a finished run: take another folder, or replace it with --overwrite "
            f"(overwrite=True)."
        )


def _start(
    task: TrainingData,
    settings: TrainSettings,
    start: Network | None,
    feature_names: Sequence[str] | None,
) -> Network:
    """Return a new network, or a copy of the one to start from."""
    if start is None:
        network = make_network(task, settings)
    else:
        if (start.n_features, list(start.classes)) != (task.n_features, list(task.classes)):
            raise InputError("the network to begin with has other inputs or classes than the data.")
        network = deepcopy(start)
        network.scaling = network.scaling.widened(task.scaling)
        if task.target_scaling is not None:
            task.target_scaling.unfold(network.operators[-1])
    if feature_names is not None:
        network.name_features(feature_names)
    return network


def make_network(task: TrainingData, settings: TrainSettings) -> Network:
    """Build a network with random weights."""
    std = settings.init_std
    if std is None and settings.solver == "exact":
        std = EXACT_INIT_STD
    return Network.build(
        task.shape_for(settings.plans),
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
    settings: TrainSettings | None, start: Network, image: Shape | None
) -> tuple[TrainSettings, Shape | None]:
    """Take from a network to begin with what is not given; refuse what contradicts it."""
    if start.backbone is not None:
        raise InputError("a network on a backbone cannot be trained further.")
    plans = [LayerPlan.of(layer) for layer in start.layers[:-1]]
    own: dict[str, Any] = {
        "head": start.head.kind,
        "dtype": str(start.dtype).removeprefix("torch."),
        "bias": any(op.bias for op in start.operators),
        "hidden": tuple(plan.written for plan in plans),
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


def _fingerprint(network: Network | None) -> str | None:
    """Return a digest of all that a training starts from."""
    if network is None:
        return None
    scaling = network.scaling
    digest = hashlib.sha256(repr((network.head.describe(), scaling.inputs)).encode())
    weights = [link.operator.weight for link in network.links]
    for tensor in (scaling.centre, scaling.scale, scaling.taken, *weights):
        if tensor is not None:
            digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


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
    network: Network,
    task: TrainingData,
    settings: TrainSettings,
    team: Team,
    *,
    fresh: bool,
    scores: bool,
) -> Sweeps | Epochs:
    part = task.parts["train"]
    if settings.solver == "exact":
        mine = part.mine(team)
        V0 = task.scaling.apply(mine.X[:])
        network.head.smoothing = 0.0  # which an earlier training may have had
        exact = ExactBCD(network, V0, mine.y.to(V0.device), settings.exact, team)
        return Sweeps(exact, part.own_rows(team))
    s = settings.stochastic
    convolves = len(network.operators[0].shape_in) > 1
    plan = BatchPlan.make(
        part,
        s.epochs,
        s.batch,
        s.input_dropout,
        settings.seed,
        of_images=convolves,
        noise=s.input_noise,
    )
    widths = None if fresh else [p.units for p in settings.plans]
    probe = task.probe(PROBE, team) if scores else None
    trainer = BCDTrainer(network, s, max(1, plan.total), probe, widths=widths, team=team)
    return Epochs(trainer, part, task.scaling, plan, task.augmentation(settings), team)


def describe(
    learner: Learner,
    task: TrainingData,
    outcome: Outcome,
    errors: dict[str, float],
    noise: Sequence[float] = (),
) -> dict[str, Any]:
    """Return the part of a record about the data and the course of the training.

    ``errors`` come from ``part_errors``. The learner's model is back on the CPU.
    """
    progress = outcome.progress
    history, best = progress.history, progress.best_iteration if progress.best else None
    last = history[-1 if best is None else best]
    model = task.whole(learner.model)
    return {
        "data": {
            "name": task.name,
            "features": model.n_features,
            "classes": task.classes,
            "samples": {name: len(part.y) for name, part in task.parts.items()},
            "sha256": task.raw_digests,
        },
        **({"initial": task.features.summary} if task.features else {}),
        "status": str(outcome.status),
        "reason": outcome.reason,
        "plan": learner.plan,
        "n_iter": len(history) - 1,
        "best_iteration": best,
        "objective": last.get("F", last["loss"]),
        "residuals": last.get("residuals", {}),
        "result": {
            **errors,
            **in_noise(model, task.raw or task.parts, noise),
            **counts(model),
            "seconds": sum(entry["seconds"] for entry in history),
        },
        "resumed": progress.resumed,
        "history": history,
    }


def part_errors(model: Model, parts: dict[str, Subset], team: Team = ALONE) -> dict[str, float]:
    """Score all samples of each part: ``train_error``, ``train_top5_error`` and so on."""
    mine = {name: part.mine(team) for name, part in parts.items()}
    return {
        f"{name}_{kind}": error
        for name, part in mine.items()
        for kind, error in error_rates(model, part.X, part.y, team).items()
    }


def in_noise(model: Model, parts: dict[str, Subset], levels: Sequence[float]) -> dict[str, Any]:
    """Score the test part, or else the validation or the training part, in noise."""
    if not levels:
        return {}
    name = next(name for name in ("test", "validation", "train") if name in parts)
    part = parts[name]
    return {"noise": {"part": name} | noise_errors(model, part.X[:], part.y, levels)}
