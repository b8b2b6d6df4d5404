"""Train a backbone by Adam, compute its features once, and train 0/1 layers on them.

The folder of a backbone holds ``model.safetensors`` (a network: the backbone and a linear
classifier), ``record.json``, and the features ``train.npy`` and ``test.npy``, which are
memory-mapped. Files that are already there are used again.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from zeroone.baselines.networks import FloatNetwork
from zeroone.data.shards import Shards
from zeroone.nn.backbones import Backbone, check_image
from zeroone.nn.heads import make_head
from zeroone.nn.network import Network
from zeroone.nn.network_file import load
from zeroone.nn.operators import Shape
from zeroone.nn.scaling import Scaling
from zeroone.training import Callback, Status, TrainSettings, train
from zeroone.training.augment import AUGMENTATIONS, Augment
from zeroone.training.baselines import describe_baseline, train_baseline
from zeroone.training.checkpoint import FILE as STATE
from zeroone.training.checkpoint import MODEL, RECORD, check_folder, lock_for
from zeroone.training.epochs import BatchPlan
from zeroone.training.features import Features
from zeroone.training.pretraining.settings import PretrainingSettings
from zeroone.training.pretraining.store import cached_features
from zeroone.training.runs import Run
from zeroone.training.training_data import Labelled, TrainingData
from zeroone.utils.checks import InputError, enough_memory
from zeroone.utils.device import find_device
from zeroone.utils.parallel import ALONE, Share, Team
from zeroone.utils.records import read_record

FOLDER = "initial"  # of the backbone, in the folder of a run


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
    with lock_for(team, out):
        features = make_features(
            X, y, pretraining, settings, folder, **data, **stage, overwrite=overwrite
        )
        # Interrupted before its first state was kept, the second stage begins. After the first
        # stage, results are those of the run that this one replaces.
        kept = (out / STATE).exists() or (not begun and (out / RECORD).exists())
        again = team.first_word(resume and kept)
        data |= {"callbacks": callbacks[2], "features": features}
        data |= {"resume": again, "overwrite": (resume or overwrite) and not again}
        return train(X, y, settings, out=out, **data)


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
    with team.agree() as facts:
        pretraining, digests = _fit(X, y, pretraining, settings, test, image)
        facts.update(settings.flat())
        facts.update((f"{part} data", digest) for part, digest in digests.items())
        facts.update((f"pretraining {name}", value) for name, value in asdict(pretraining).items())
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
    _check_same(
        folder, network, record, describe_baseline(pretraining.baseline, training), digests, shape
    )
    parts: dict[str, Any] = {"train": X} if test is None else {"train": X, "test": test[0]}
    views = {f"train-{i}": i for i in range(1, 1 + pretraining.views)}
    made = {}
    for part, inputs in (parts | dict.fromkeys(views, X)).items():
        if not team.is_first:
            team.first_word(None)  # the first rank computes them
        path = folder / f"{part}.npy"
        network.to(find_device(settings.device))
        change = _changer(pretraining, settings.seed, views[part], shape) if part in views else None
        made[part] = cached_features(path, network, inputs, callbacks[1], change)
        if team.is_first:
            team.first_word(None)
    network.to(torch.device("cpu"))
    changed = [made[name] for name in views]
    return Features(network, made["train"], made.get("test"), record, changed)


def _changer(
    pretraining: PretrainingSettings, seed: int, view: int, image: Shape
) -> Callable[[Tensor], Tensor]:
    """Return the augmentation of one view, which draws its own random numbers."""
    rng = torch.Generator().manual_seed(
        int(np.random.SeedSequence([seed, view]).generate_state(1)[0])
    )
    function = AUGMENTATIONS[pretraining.usual_augment]
    assert function is not None  # or the settings had refused views
    augment = Augment(function, image)
    return lambda X: augment.apply(X, rng, Share(len(X)))


def _fit(
    X: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    pretraining: PretrainingSettings,
    settings: TrainSettings,
    test: Labelled | None,
    image: Shape | None,
) -> tuple[PretrainingSettings, dict[str, str]]:
    """Return settings that fit the data, and the data's digests; refuse layers that do not fit."""
    task = TrainingData.prepare(X, y, pretraining.training(settings), test, image=image)
    if convolutions := [str(plan) for plan in settings.plans if plan.kernel]:
        raise InputError(f"the layers on a backbone are dense, not {convolutions[0]}.")
    part = task.parts["train"]
    if settings.solver == "stochastic":
        s = settings.stochastic
        BatchPlan.make(part, s.epochs, s.batch, s.input_dropout, settings.seed)
    return pretraining.fitted(len(part.y)), task.digests


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
