"""A run of a matrix: data, architecture, method and repetition in, one record out."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from filelock import FileLock
from safetensors.torch import load_file
from torch import Tensor

from paper.matrix.architectures import Architecture
from paper.matrix.methods import PRETRAINING
from paper.matrix.validate_record import ANY, is_complete
from zeroone.analysis.metrics import Model, Noise, noise_errors
from zeroone.baselines.settings import BaselineSettings
from zeroone.data.load import load_data
from zeroone.data.splits import Split
from zeroone.nn.inputs import check_inputs
from zeroone.pretraining import PretrainingSettings, make_features
from zeroone.training import Callback, Status, TrainSettings, train
from zeroone.training.baselines import USED, describe_baseline, train_baseline
from zeroone.training.checkpoint import FILE as STATE
from zeroone.training.checkpoint import MODEL, RECORD, StaleStateError
from zeroone.training.training_data import Features, TrainingData
from zeroone.utils.checks import InputError, one_of
from zeroone.utils.records import fits, new_record, source
from zeroone.utils.storage import checksum, make_folder

FAILED = "failed"
KEY = ("data", "architecture", "method", "repetition")
MEASURED = ("data", "status", "reason", "plan", "n_iter", "objective", "result", "history")
SHARED = ("scaling", "validation", "dtype")  # options that all runs on one backbone share
# The architecture names the backbone and its epochs.
BASELINE_OPTIONS = [f.name for f in fields(BaselineSettings) if f.name != "backbone"]
PRETRAINING_OPTIONS = [
    f.name for f in fields(PretrainingSettings) if f.name not in ("backbone", "epochs")
]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Run:
    """One training run: the four fields that name it, and all else that decides its result.

    Attributes:
        baseline: Whether Adam trains it.
        options: Options of training, for a baseline also those of ``BaselineSettings``.
        pretraining: Options of pretraining, used if the architecture asks for it.
        noise: Noise levels at which the network is scored.
        images: Test samples whose class probabilities are kept at every noise level.
        label: The label column of a ``.csv`` file.
        store: The folder of backbones and of the states of unfinished runs.

    """

    data: str
    architecture: str
    method: str
    repetition: int
    baseline: bool = False
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    pretraining: dict[str, Any] = field(default_factory=dict, hash=False)
    noise: tuple[float, ...] = ()
    images: tuple[int, ...] = ()
    data_dir: Path | None = field(default=None, compare=False)
    label: str | None = None
    store: Path | None = field(default=None, compare=False)

    @property
    def key(self) -> dict[str, Any]:
        """The four fields that name it."""
        return {name: getattr(self, name) for name in KEY}

    def __str__(self) -> str:
        return f"{self.data}, {self.architecture}, {self.method}, repetition {self.repetition}"

    @property
    def seed(self) -> int:
        """The seed in ``options``, else one derived from the key, so that no two runs share it.

        Runs on one backbone share its seed, and so the samples that are held out.
        """
        what = list(self.key.values())
        if self.plan.pretraining_epochs is not None:
            what = [self.data, self.plan.backbone, self.plan.pretraining_epochs, self.repetition]
        digest = hashlib.sha256(json.dumps(what).encode()).digest()
        return int(self.options.get("seed", int.from_bytes(digest[:4])))

    @property
    def plan(self) -> Architecture:
        """Its architecture, parsed."""
        return Architecture.parse(self.architecture)

    @property
    def settings(self) -> TrainSettings:
        """How it is trained; refuses options that its method does not have."""
        options: dict[str, Any] = dict(self.options)
        if self.baseline:
            options = {k: v for k, v in options.items() if k not in BASELINE_OPTIONS}
            for name in options:
                one_of("option of a network trained by Adam", name, [*USED, *BASELINE_OPTIONS])
        hidden = self.plan.hidden if self.baseline else self.plan.bits
        return TrainSettings.from_options(**options | {"hidden": hidden, "seed": self.seed})

    @property
    def baseline_settings(self) -> BaselineSettings:
        """Settings of the network that Adam trains."""
        own = {name: value for name, value in self.options.items() if name in BASELINE_OPTIONS}
        on_features = self.plan.pretraining_epochs is not None
        return BaselineSettings(backbone=None if on_features else self.plan.backbone, **own)

    @property
    def pretraining_settings(self) -> PretrainingSettings | None:
        """How its backbone is pretrained, if it is."""
        plan = self.plan
        if plan.backbone is None or plan.pretraining_epochs is None:
            return None
        return PretrainingSettings(plan.backbone, plan.pretraining_epochs, **self.pretraining)

    @property
    def backbone_run(self) -> "Run | None":
        """The run that pretrains its backbone; all runs on one backbone have the same."""
        if self.pretraining_settings is None or self.method == PRETRAINING:
            return None
        shared = {k: v for k, v in self.options.items() if k in (*SHARED, "seed")}
        alone = self.architecture.partition(":")[0]
        return replace(self, architecture=alone, method=PRETRAINING, baseline=False, options=shared)

    @property
    def backbone_folder(self) -> Path:
        """Where its backbone is kept."""
        what = json.dumps([self.describe()["initial"], self.seed]).encode()
        name = f"{_as_name(self.data)}-{self.plan.backbone}-{self.plan.pretraining_epochs}"
        digest = hashlib.sha256(what).hexdigest()[:8]
        return (self.store or Path()) / "backbones" / f"{name}-{digest}"

    @property
    def backbone_digest(self) -> str:
        """The checksum of its backbone's weights."""
        return checksum("", load_file(self.backbone_folder / MODEL))

    @property
    def state_folder(self) -> Path:
        """Where its state is kept while it is unfinished; other code does not resume from it."""
        names = (_as_name(self.data), self.architecture.replace(":", "_"), _as_name(self.method))
        made_by = source()[:8]
        path = Path("unfinished", made_by, *names, str(self.repetition))
        return (self.store or Path()) / path

    def describe(self) -> dict[str, Any]:
        """All that decides its result, as JSON returns it; refuses settings that are not valid."""
        settings: dict[str, Any] = {}
        if self.baseline:
            settings = describe_baseline(self.baseline_settings, self.settings)
        elif self.method != PRETRAINING:
            settings = self.settings.describe()
        pretraining = self.pretraining_settings
        if pretraining is not None:
            training = pretraining.training(self.settings)
            settings["initial"] = describe_baseline(pretraining.baseline, training)
        settings |= {"noise": self.noise} | ({"images": self.images} if self.images else {})
        content: dict[str, Any] = json.loads(json.dumps(settings))
        return content

    def can_have_written(self, record: dict[str, Any]) -> bool:
        """Whether a record that claims to be its own is complete."""
        if not fits(record, ANY):
            return False
        if record.get("status") == FAILED:
            return isinstance(record.get("reason"), str)
        return is_complete(record, self.noise, () if self.method == PRETRAINING else self.images)

    def new_record(self) -> dict[str, Any]:
        """Start its record, without a date: the same run has the same record every time."""
        record = new_record("run", self.describe(), self.seed)
        del record["date"]
        return record


def _as_name(text: str) -> str:
    """Make a file name that no other text has: one that had to be changed carries a digest."""
    if re.fullmatch(r"[\w-][\w.-]*", text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return re.sub(r"[^\w-]+", "_", text).strip("_") + "-" + digest


def digest_of(split: Split) -> str:
    """Return a SHA-256 digest of all samples and labels."""
    digest = hashlib.sha256()
    for array in (split.X, split.y, *(split.test or ())):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def execute(run: Run, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """Train and score a run, from its last state if it has a ``store`` and was interrupted.

    Returns:
        Its ``record``, and the ``seconds`` of each iteration, which differ every time.

    """
    record = run.new_record()  # first: a commit made meanwhile is not the code that runs
    split = load_data(run.data, data_dir=run.data_dir, label=run.label)
    trained = _train(run, split, callbacks)
    del trained["result"]["seconds"]
    seconds = [entry.pop("seconds") for entry in trained["history"]][1:]
    record |= {name: trained[name] for name in MEASURED}
    if run.method == PRETRAINING:  # the backbone may be there already, trained by other code
        record |= {name: trained[name] for name in ("commit", "code")}
    record["data"]["digest"] = digest_of(split)
    if run.pretraining_settings is not None:
        record["backbone_digest"] = run.backbone_digest
    if record["status"] == Status.DIVERGED:
        record["status"] = FAILED
    return {"record": record, "seconds": seconds}


def _train(run: Run, split: Split, callbacks: Sequence[Callback]) -> dict[str, Any]:
    """Train a backbone, or the layers of a method, and return the record of that training."""
    if run.method == PRETRAINING:
        return _pretrain(run, split, callbacks)
    more: dict[str, Any] = {"callbacks": callbacks}
    if run.pretraining_settings is not None:
        if not (run.backbone_folder / RECORD).exists():
            raise InputError("the pretraining of its backbone has no result.")
        more["features"] = _make_features(run, split)
    if run.store is None:
        return _train_layers(run, split, **more)
    out = run.state_folder
    # Another matrix may share the store and have the same run: one trains, the other waits.
    with FileLock(make_folder(out.parent) / f".{out.name}.training"):
        more["out"] = out
        trained = _resumably(
            out,
            lambda resume: _train_layers(run, split, **more, resume=resume, overwrite=not resume),
        )
        shutil.rmtree(out)
    return trained


def _resumably(folder: Path, train_it: Callable[[bool], Result]) -> Result:
    """Resume from the state in the folder if it is intact and of these settings, else start."""
    if (folder / STATE).exists():
        try:
            return train_it(True)
        except StaleStateError:
            (folder / STATE).unlink()
    return train_it(False)


def _pretrain(run: Run, split: Split, callbacks: Sequence[Callback]) -> dict[str, Any]:
    """Train a backbone and add its errors in noise to the record."""
    features = _make_features(run, split, callbacks)
    features.record["result"] |= _in_noise(run, split, features.network)
    return features.record


def _in_noise(run: Run, split: Split, model: Model) -> dict[str, Any]:
    """Score the test part, or else the validation or the training part, in noise."""
    if not run.noise:
        return {}
    settings = replace(run.settings, augment="none")
    parts = TrainingData.prepare(split.X, split.y, settings, split.test, image=split.shape).parts
    name = next(name for name in ("test", "validation", "train") if name in parts)
    part = parts[name]
    return {"noise": {"part": name} | noise_errors(model, part.X[:], part.y, run.noise)}


def _train_layers(run: Run, split: Split, **more: Any) -> dict[str, Any]:
    more |= _named(split)
    model: Model
    if run.baseline:
        settings = run.baseline_settings
        model, record = train_baseline(split.X, split.y, settings, run.settings, **more)
    else:
        trained = train(split.X, split.y, run.settings, **more)
        model, record = trained.network, trained.record
    record["result"] |= _in_noise(run, split, model)
    if run.images:
        X, _ = split.test or (split.X, split.y)
        inputs = check_inputs(X[list(run.images)], model.scaling.centre.dtype)
        record["result"]["images"] = {
            "rows": run.images,
            "levels": run.noise,
            "probabilities": [_noisy_probabilities(model, inputs, level) for level in run.noise],
        }
    return record


def _noisy_probabilities(model: Model, X: Tensor, level: float) -> list[list[float]]:
    """Compute the softmax of the scores for raw samples in noise."""
    noisy = Noise(level, model.scaling, X.dtype == torch.uint8).add(X)
    with torch.no_grad():
        scores = model.forward(model.scaling.apply(noisy))
    probabilities: list[list[float]] = scores.softmax(dim=1).tolist()
    return probabilities


def _make_features(run: Run, split: Split, callbacks: Sequence[Callback] = ()) -> Features:
    """Compute the features of a backbone, which is trained first if it is not in the store."""
    pretraining, folder = run.pretraining_settings, run.backbone_folder
    assert pretraining is not None
    more = _named(split) | {"callbacks": (callbacks, ())}

    def make(resume: bool) -> Features:
        return make_features(
            split.X, split.y, pretraining, run.settings, folder, **more, resume=resume
        )

    # Another matrix may share the store: one of them trains a backbone, the other waits for it.
    with FileLock(make_folder(folder) / ".training"):
        return _resumably(folder, make)


def _named(split: Split) -> dict[str, Any]:
    """The test part, the name and the image shape, as training takes them."""
    return {"test": split.test, "name": split.name, "image": split.shape}
