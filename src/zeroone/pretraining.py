"""Pretraining: Adam trains a convolutional backbone, then BCD trains 0/1 layers on its features.

The paper calls it the "initial process". The folder of a backbone holds ``model.safetensors`` (a
network: the backbone and a linear classifier), ``record.json``, and the features ``train.npy`` and
``test.npy``, which are memory-mapped. Files that are already there are used again.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import BaselineSettings
from zeroone.data.shards import Shards
from zeroone.nn.backbones import BACKBONES, Backbone, check_image
from zeroone.nn.heads import make_head
from zeroone.nn.network import Network
from zeroone.nn.network_file import load
from zeroone.nn.operators import Shape
from zeroone.nn.scaling import Scaling
from zeroone.training import Callback, Run, Status, StochasticSettings, TrainSettings, train
from zeroone.training.baselines import describe_baseline, train_baseline
from zeroone.training.checkpoint import FILE as STATE
from zeroone.training.checkpoint import MODEL, RECORD, check_folder, lock_for
from zeroone.training.epochs import BatchPlan
from zeroone.training.training_data import Features, Labelled, Subset, TrainingData
from zeroone.utils.checks import InputError, count, enough_memory, one_of
from zeroone.utils.device import find_device
from zeroone.utils.memmap import map_file
from zeroone.utils.parallel import ALONE, Team
from zeroone.utils.records import read_record
from zeroone.utils.storage import remove_leftovers, replacing

FOLDER = "initial"  # of the backbone, in the folder of a run
BATCH = 64


@dataclass(frozen=True)
class PretrainingSettings:
    """Settings of a backbone with ReLU activations and a linear classifier, trained by Adam.

    Attributes:
        backbone: the name of the backbone; see ``zeroone.nn.backbones``.
        epochs: 0 keeps the backbone at its random start.
        batch: None takes 64, or all samples if there are fewer.
        learning_rate, smoothing, warmup, weight_decay, bf16: as in ``BaselineSettings``.
        augment: as in ``TrainSettings``; None takes what is usual for the backbone.

    """

    backbone: str
    epochs: int
    batch: int | None = None
    learning_rate: float = 1e-3
    smoothing: float = 0.1
    warmup: float = 0.0
    weight_decay: float = 0.0
    bf16: bool = False
    augment: str | None = None

    def __post_init__(self) -> None:
        one_of("backbone", self.backbone, BACKBONES)
        count("pretraining's epochs", self.epochs, least=0)
        if self.batch is not None:
            count("pretraining's batch", self.batch, least=8)
        _ = self.baseline, self.training(TrainSettings())  # check the others, too

    @property
    def baseline(self) -> BaselineSettings:
        """The network that Adam trains."""
        shared = {f.name for f in fields(BaselineSettings)}
        return BaselineSettings(**{k: v for k, v in asdict(self).items() if k in shared})

    def fitted(self, n_samples: int) -> "PretrainingSettings":
        """Return the settings with a batch that so many training samples can fill."""
        if self.batch is None:
            return replace(self, batch=min(BATCH, n_samples))
        if self.batch > n_samples:
            raise InputError(
                f"pretraining's batch of {self.batch} is larger than the {n_samples} "
                f"training samples."
            )
        return self

    def training(self, settings: TrainSettings) -> TrainSettings:
        """Return the settings of training; seed and data parts are those of the layers."""
        usual = BACKBONES[self.backbone].augment
        return TrainSettings(
            hidden=(),
            scaling=settings.scaling,
            augment=usual if self.augment is None else self.augment,
            validation=settings.validation,
            dtype=settings.dtype,
            seed=settings.seed,
            device=settings.device,
            stochastic=StochasticSettings(epochs=self.epochs, batch=self.batch),
        )


@enough_memory()
def train_on_backbone(
    X: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    pretraining: PretrainingSettings,
    settings: TrainSettings,
    *,
    out: str | Path,
    test: Labelled | None = None,
    name: str | None = None,
    image: Shape | None = None,
    callbacks: Sequence[Sequence[Callback]] = ((), (), ()),
    resume: bool = False,
    overwrite: bool = False,
    team: Team = ALONE,
) -> Run:
    """Train a backbone, then 0/1 layers on its features.

    Args:
        X: raw inputs, images in rows.
        y: labels.
        pretraining: how the backbone is trained.
        settings: how the layers are trained.
        out: the folder of the run; the backbone is kept in its folder ``initial``.
        test: see ``train``, as for ``name``, ``image`` and ``team``.
        name: what the record calls the data.
        image: the shape (channels, height, width) of a sample.
        callbacks: those of pretraining, of computing features, and of the layers.
        resume: whether to resume the unfinished run in ``out``, in either stage.
        overwrite: whether new layers may replace those in ``out``. A finished backbone is used
            again all the same.
        team: the processes that train together.

    """
    if isinstance(X, Shards):
        raise InputError(
            "a backbone is trained on data in memory: sharded data are for 0/1 layers."
        )
    out = Path(out)
    folder = out / FOLDER
    begun = (folder / STATE).exists()
    if overwrite or not (resume and (begun or (folder / RECORD).exists())):
        check_folder(out, resume=resume, overwrite=overwrite)
    data: dict[str, Any] = {"test": test, "name": name, "image": image, "team": team}
    stage: dict[str, Any] = {"callbacks": callbacks[:2], "resume": resume and begun}
    features = make_features(
        X, y, pretraining, settings, folder, **data, **stage, overwrite=overwrite
    )
    # Interrupted before its first state was kept, the second stage begins. After the first
    # stage, results are those of the run that this one replaces.
    kept = (out / STATE).exists() or (not begun and (out / RECORD).exists())
    again = team.first_word(resume and kept)
    data |= {"callbacks": callbacks[2], "features": features, "resume": again}
    return train(X, y, settings, out=out, **data, overwrite=(resume or overwrite) and not again)


def make_features(
    X: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    pretraining: PretrainingSettings,
    settings: TrainSettings,
    folder: Path,
    *,
    test: Labelled | None = None,
    name: str | None = None,
    image: Shape | None = None,
    callbacks: Sequence[Sequence[Callback]] = ((), ()),
    resume: bool = False,
    overwrite: bool = False,
    team: Team = ALONE,
) -> Features:
    """Return the features of X and of the test inputs; train the backbone if need be.

    ``folder`` keeps all of it. Of ``settings`` the seed, the validation part, the scaling and the
    dtype count. ``callbacks`` are those of pretraining and of computing features. ``overwrite``
    replaces an unfinished backbone; a finished one is used again.
    """
    shape = check_image(pretraining.backbone, image)
    facts = {f"pretraining {key}": value for key, value in asdict(pretraining).items()}
    facts |= settings.flat()
    training = pretraining.training(settings)
    task = TrainingData.prepare(X, y, training, test, image=image, team=team, **facts)
    _check_layers(settings, task.parts["train"])
    pretraining = pretraining.fitted(len(task.parts["train"].y))
    training = pretraining.training(settings)
    if team.first_word(resume or not (folder / RECORD).exists()):
        stage: dict[str, Any] = {"callbacks": callbacks[0], "out": folder, "resume": resume}
        stage |= {"test": test, "name": name, "image": image, "team": team}
        with lock_for(team, folder):
            model, record = train_baseline(
                X, y, pretraining.baseline, training, **stage, overwrite=overwrite
            )
            if team.is_first:
                _keep(folder, model, record, pretraining.backbone, shape)
        team.first_word(None)  # the others wait for it
    network, record = load(folder / MODEL), read_record(folder / RECORD)
    described = describe_baseline(pretraining.baseline, training)
    _check_same(folder, network, record, described, task.digests, shape)
    network.to(find_device(settings.device))

    def features_of(part: str, inputs: Any) -> NDArray[Any]:
        if not team.is_first:
            team.first_word(None)  # the first rank computes them
        made = _features_of(folder / f"{part}.npy", network, inputs, callbacks[1])
        if team.is_first:
            team.first_word(None)
        return made

    train = features_of("train", X)
    held = None if test is None else features_of("test", test[0])
    network.to(torch.device("cpu"))
    return Features(network, train, held, record)


def _check_layers(settings: TrainSettings, part: Subset) -> None:
    """Refuse layers that do not fit a backbone or the data, before hours of pretraining."""
    if convolutions := [str(plan) for plan in settings.plans if plan.kernel]:
        raise InputError(f"the layers on a backbone are dense, not {convolutions[0]}.")
    if settings.solver == "stochastic":
        s = settings.stochastic
        BatchPlan.make(part, s.epochs, s.batch, s.input_dropout, settings.seed)


def _keep(
    folder: Path, model: FloatNetwork, record: dict[str, Any], name: str, image: Shape
) -> None:
    """Write the backbone and its classifier as a network; remove features of an earlier one."""
    for features in folder.glob("*.npy"):
        features.unlink()
    if record["status"] == Status.DIVERGED:
        raise InputError(f"pretraining diverged: {record['reason']}.")
    layers = model.as_layers()
    classifier = layers[0].operator
    identity = Scaling.identity(classifier.n_inputs, classifier.weight.dtype)
    assert isinstance(model.backbone, nn.Sequential)
    backbone = Backbone(name, image, model.backbone, identity)
    head = make_head("softmax", smoothing=record["settings"]["rival"]["smoothing"])
    network = Network(layers, head, model.scaling, record["data"]["classes"], backbone)
    Run(network, record).save(folder)
    (folder / STATE).unlink()


def _check_same(
    folder: Path,
    network: Network,
    record: dict[str, Any],
    settings: dict[str, Any],
    digests: dict[str, str],
    image: Shape,
) -> None:
    """Refuse a backbone that was trained with other settings or on other data."""
    for name, now in json.loads(json.dumps(settings)).items():
        then = record["settings"].get(name)
        if then != now:
            raise InputError(
                f"the backbone in {folder} was trained with {name}={then!r}, not {now!r}: take "
                f"another folder, or remove it."
            )
    shape = network.backbone.image if network.backbone else None
    if (record["data"].get("sha256"), shape) != (digests, image):
        raise InputError(f"the backbone in {folder} was trained on other data.")


def _features_of(
    path: Path, network: Network, X: ArrayLike | Tensor, callbacks: Sequence[Callback]
) -> NDArray[Any]:
    """Read the features of raw inputs from a file, or compute and write them."""
    assert network.backbone is not None
    inputs = network.inputs(X)[:]
    shape = (len(inputs), network.backbone.n_features)
    with FileLock(path.parent / ".features"):  # runs of a matrix may want the same features
        try:
            found = map_file(path, "c")
        except InputError:
            found = np.empty(0)  # missing or damaged
        if found.shape == shape and found.dtype.kind == "f":
            return found
        remove_leftovers(path)
        for callback in callbacks:
            callback.on_start(0, 1)
        with replacing(path) as temporary:
            dtype = np.float64 if network.dtype == torch.float64 else np.float32
            array = np.lib.format.open_memmap(temporary, mode="w+", dtype=dtype, shape=shape)
            batches = torch.split(torch.arange(len(inputs)), network.batch_rows)
            for done, rows in enumerate(batches, start=1):
                V = network.features(network.scaling.apply(inputs[rows]))
                array[rows] = V.cpu().numpy()
                for callback in callbacks:
                    callback.on_batch(1, done, len(batches))
            array.flush()
        return map_file(path, "c")
