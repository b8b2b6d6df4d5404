"""Train a body by Adam, compute its features once, train 0/1 layers on them.

The folder of a body holds ``model.safetensors`` (a network of its own: the body and a linear
classifier), ``record.json``, and the features ``train.npy`` and ``test.npy``, which are
memory-mapped. What is there already is used, not made again.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor

from zeroone.baselines.train import describe_rival, train_rival
from zeroone.bodies import Body, check_image
from zeroone.checks import InputError
from zeroone.heads import make_head
from zeroone.initial.settings import InitialSettings
from zeroone.initial.store import cached_features
from zeroone.network import Network, load
from zeroone.operators import Shape
from zeroone.records import read_record
from zeroone.scaling import Scaling
from zeroone.training import Callback, Status, TrainSettings, train
from zeroone.training.checkpoint import FILE as STATE
from zeroone.training.features import Features
from zeroone.training.parts import Labelled, Task
from zeroone.training.run import MODEL, RECORD, Run

FOLDER = "initial"  # of the body, in the folder of a run


def train_on_body(
    X: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    initial: InitialSettings,
    settings: TrainSettings,
    *,
    out: Path,
    test: Labelled | None = None,
    name: str | None = None,
    image: Shape | None = None,
    callbacks: Sequence[Sequence[Callback]] = ((), (), ()),
    resume: bool = False,
    noise: Sequence[float] = (),
) -> Run:
    """Both stages, as ``train`` does the second one; the body is kept in ``out``/initial.

    ``callbacks``: those of the initial process, of the features, and of the layers.
    """
    folder = out / FOLDER
    begun = (folder / STATE).exists()
    if resume and not begun and not (folder / RECORD).exists():
        raise InputError(f"{out} holds no unfinished run on a body: there is nothing to resume.")
    features = make_features(
        X,
        y,
        initial,
        settings,
        folder,
        test=test,
        name=name,
        image=image,
        callbacks=callbacks[:2],
        resume=resume and begun,
    )
    return train(
        X,
        y,
        settings,
        test=test,
        name=name,
        image=image,
        callbacks=callbacks[2],
        out=out,
        # Interrupted before its first state was kept, the second stage begins.
        resume=resume and ((out / STATE).exists() or (out / RECORD).exists()),
        features=features,
        noise=noise,
    )


def make_features(
    X: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    initial: InitialSettings,
    settings: TrainSettings,
    folder: Path,
    *,
    test: Labelled | None = None,
    name: str | None = None,
    image: Shape | None = None,
    callbacks: Sequence[Sequence[Callback]] = ((), ()),
    resume: bool = False,
) -> Features:
    """The features of X and of the test inputs, from the body in ``folder``, trained if need be.

    Of ``settings`` the seed, the validation part, the scaling and the dtype count.
    """
    check_image(initial.body, image)
    training = initial.training(settings)
    task = Task.prepare(X, y, training, test, name, image)
    if resume or not (folder / RECORD).exists():
        model, record = train_rival(
            X,
            y,
            initial.rival,
            training,
            test=test,
            name=name,
            image=image,
            callbacks=callbacks[0],
            out=folder,
            resume=resume,
        )
        _keep(folder, model, record, initial, image)
    network, record = load(folder / MODEL), read_record(folder / RECORD)
    _check_same(folder, record, initial, training, task)
    parts = {"train": X} if test is None else {"train": X, "test": test[0]}
    made = {
        part: cached_features(folder / f"{part}.npy", network, inputs, callbacks[1])
        for part, inputs in parts.items()
    }
    return Features(network, made["train"], made.get("test"), record)


def _keep(
    folder: Path, model: Any, record: dict[str, Any], initial: InitialSettings, image: Any
) -> None:
    """Write the body, with its linear classifier, as a network of its own; features are stale."""
    for features in folder.glob("*.npy"):
        features.unlink()
    if record["status"] == Status.DIVERGED:
        raise InputError(f"the initial process diverged: {record['reason']}.")
    (classifier,) = model.operators
    body = Body(initial.body, tuple(image), model.body, Scaling.identity(classifier.n_inputs))
    network = Network(
        [classifier], make_head("softmax"), model.scaling, record["data"]["classes"], body
    )
    Run(network, Status(record["status"]), record["reason"], record).save(folder)


def _check_same(
    folder: Path,
    record: dict[str, Any],
    initial: InitialSettings,
    training: TrainSettings,
    task: Task,
) -> None:
    """Refuse a body of other settings or other data."""
    settings = json.loads(json.dumps(describe_rival(initial.rival, training)))
    for name in settings:
        if record["settings"].get(name) != settings[name]:
            raise InputError(
                f"the body in {folder} was trained with {name}={record['settings'].get(name)!r}, "
                f"not {settings[name]!r}: take another folder, or remove it."
            )
    if record["data"]["sha256"] != task.digests:
        raise InputError(f"the body in {folder} was trained on other data.")
