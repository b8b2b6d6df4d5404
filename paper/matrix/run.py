"""A cell of a run matrix: data, architecture, method, repetition -> one JSON record."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock
from safetensors.torch import load_file

from paper.matrix.architectures import Architecture
from paper.matrix.methods import INITIAL
from paper.matrix.validate_record import is_complete
from zeroone.analysis.metrics import Model, noisy_probabilities
from zeroone.baselines.settings import BaselineSettings
from zeroone.data.load import load_data
from zeroone.data.splits import Split
from zeroone.nn.inputs import check_inputs
from zeroone.pretraining import InitialSettings, make_features
from zeroone.training import Callback, Status, TrainSettings, train
from zeroone.training.baselines import USED, describe_baseline, train_baseline
from zeroone.training.checkpoint import FILE as STATE
from zeroone.training.checkpoint import StaleStateError
from zeroone.training.features import Features
from zeroone.training.runs import MODEL, RECORD, in_noise
from zeroone.training.training_data import TrainingData
from zeroone.utils.checks import InputError, one_of
from zeroone.utils.records import code, new_record
from zeroone.utils.storage import checksum, make_folder

FAILED = "failed"
Result = TypeVar("Result")
RIVAL_OPTIONS = [f.name for f in fields(BaselineSettings) if f.name != "body"]  # the architecture's
INITIAL_OPTIONS = [f.name for f in fields(InitialSettings) if f.name not in ("body", "epochs")]
SHARED = ("scaling", "validation", "dtype")  # options of training that a body shares


def check_initial(options: dict[str, Any]) -> None:
    """Refuse what is no option of an initial process."""
    for name in options:
        one_of("option of an initial process", name, INITIAL_OPTIONS)
    InitialSettings("small", 1, **options)


def _as_name(text: str) -> str:
    """A file's name that no other text gets: one that had to be changed carries its digest."""
    if re.fullmatch(r"[\w-][\w.-]*", text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return re.sub(r"[^\w-]+", "_", text).strip("_") + "-" + digest


@dataclass(frozen=True)
class Cell:
    """One training run of a matrix: the four that name it, and all else that decides its result.

    ``options``: of training, and of ``BaselineSettings`` if the method is a ``rival``. ``initial``:
    those of the initial process, if the architecture has one. ``noise``: levels in which it is
    scored, and ``images``: test samples whose class probabilities are kept at each of them.
    ``label`` is the label column of a ``.csv`` file, ``store`` a folder for bodies and the states
    of unfinished cells.
    """

    data: str
    architecture: str
    method: str
    repetition: int
    rival: bool = False
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    initial: dict[str, Any] = field(default_factory=dict, hash=False)
    noise: tuple[float, ...] = ()
    images: tuple[int, ...] = ()
    data_dir: Path | None = field(default=None, compare=False)
    label: str | None = None
    store: Path | None = field(default=None, compare=False)

    @property
    def key(self) -> dict[str, Any]:
        """The four that name it."""
        names = ("data", "architecture", "method", "repetition")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        return f"{self.data}, {self.architecture}, {self.method}, repetition {self.repetition}"

    @property
    def seed(self) -> int:
        """Of the four: no two cells share their random numbers, unless ``options`` say so.

        Cells on the same body share its seed, and so the samples that are held out.
        """
        what = list(self.key.values())
        if self.plan.initial_epochs is not None:
            what = [self.data, self.plan.body, self.plan.initial_epochs, self.repetition]
        digest = hashlib.sha256(json.dumps(what).encode()).digest()
        return int(self.options.get("seed", int.from_bytes(digest[:4])))

    @property
    def path(self) -> Path:
        """Where its record goes in the matrix's folder."""
        architecture = self.architecture.replace(":", "_")
        names = (_as_name(self.data), architecture, _as_name(self.method))
        return Path(*names, f"{self.repetition}.json")

    @property
    def plan(self) -> Architecture:
        """What its architecture says."""
        return Architecture.parse(self.architecture)

    @property
    def settings(self) -> TrainSettings:
        """How it is trained; refuses what its method has no use for."""
        options: dict[str, Any] = dict(self.options)
        if self.rival:
            options = {k: v for k, v in options.items() if k not in RIVAL_OPTIONS}
            for name in options:
                one_of("option of a network trained by Adam", name, [*USED, *RIVAL_OPTIONS])
        hidden = self.plan.hidden if self.rival else self.plan.bits
        return TrainSettings.from_options(**options | {"hidden": hidden, "seed": self.seed})

    @property
    def rival_settings(self) -> BaselineSettings:
        """What is trained by Adam."""
        own = {name: value for name, value in self.options.items() if name in RIVAL_OPTIONS}
        on_features = self.plan.initial_epochs is not None
        return BaselineSettings(body=None if on_features else self.plan.body, **own)

    @property
    def initial_settings(self) -> InitialSettings | None:
        """How the body below it is trained first, if it is."""
        plan = self.plan
        if plan.body is None or plan.initial_epochs is None:
            return None
        return InitialSettings(plan.body, plan.initial_epochs, **self.initial)

    @property
    def below(self) -> "Cell | None":
        """The cell that trains the body below this one; all on one body have the same."""
        if self.initial_settings is None or self.method == INITIAL:
            return None
        shared = {k: v for k, v in self.options.items() if k in (*SHARED, "seed")}
        alone = self.architecture.partition(":")[0]
        return replace(self, architecture=alone, method=INITIAL, rival=False, options=shared)

    @property
    def body_folder(self) -> Path:
        """Where the body below it is kept."""
        what = json.dumps([self.describe()["initial"], self.seed]).encode()
        name = f"{_as_name(self.data)}-{self.plan.body}-{self.plan.initial_epochs}"
        digest = hashlib.sha256(what).hexdigest()[:8]
        return (self.store or Path()) / "bodies" / f"{name}-{digest}"

    def describe(self) -> dict[str, Any]:
        """All that decides its result, as JSON gives it back; refuses what cannot be."""
        settings: dict[str, Any] = {}
        if self.rival:
            settings = describe_baseline(self.rival_settings, self.settings)
        elif self.method != INITIAL:
            settings = self.settings.describe()
        initial = self.initial_settings
        if initial is not None:
            training = initial.training(self.settings)
            settings["initial"] = describe_baseline(initial.rival, training)
        settings |= {"noise": self.noise} | ({"images": self.images} if self.images else {})
        content: dict[str, Any] = json.loads(json.dumps(settings))
        return content

    @property
    def body_digest(self) -> str:
        """The fingerprint of the body below it, of which a repetition is to have one."""
        return checksum("", load_file(self.body_folder / MODEL))

    def can_have_written(self, record: dict[str, Any]) -> bool:
        """Whether nothing is missing from a record that is said to be its own."""
        if not isinstance(record.get("settings"), dict) or type(record.get("seed")) is not int:
            return False
        if record.get("status") == FAILED:
            return isinstance(record.get("reason"), str)
        return is_complete(record, self.noise, () if self.method == INITIAL else self.images)

    def new_record(self) -> dict[str, Any]:
        """The start of its record. Nothing in it tells one run of the cell from another."""
        record = new_record("cell", self.describe(), self.seed)
        del record["date"]
        return record | {"cell": self.key}


def run_cell(cell: Cell, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """Train and score: the record, and the ``seconds`` of each iteration, no part of it.

    With a ``store``, a cell that was interrupted goes on from its last state.
    """
    record = cell.new_record()  # first: what is committed meanwhile is not what runs
    split = load_data(cell.data, data_dir=cell.data_dir, label=cell.label)
    trained = _train(cell, split, callbacks)
    seconds = _take_seconds(trained)
    record |= _measured(trained)
    if cell.method == INITIAL:  # a body that was there already names the code that trained it
        record |= {name: trained[name] for name in ("commit", "code")}
    record["data"]["digest"] = split.digest()
    if cell.initial_settings is not None:
        record["body_digest"] = cell.body_digest
    if record["status"] == Status.DIVERGED:
        record["status"] = FAILED
    return {"record": record, "seconds": seconds}


def _train(cell: Cell, split: Split, callbacks: Sequence[Callback]) -> dict[str, Any]:
    """The record of a training."""
    data: dict[str, Any] = {"test": split.test, "name": split.name, "image": split.shape}
    if cell.method == INITIAL:
        return _train_body(cell, split, callbacks)
    more: dict[str, Any] = {"callbacks": callbacks, "noise": cell.noise}
    if cell.initial_settings is not None:
        if not (cell.body_folder / RECORD).exists():
            raise InputError("the initial process that trains its body has no result.")
        more["features"] = _make_features(cell, split)
    if cell.store is None:
        return _train_layers(cell, split, **data, **more)
    # States of other code are not gone on from: the record names one.
    made_by = (code() or "unknown")[:8]
    out = cell.store / "unfinished" / made_by / cell.path.with_suffix("")
    trained = _resumably(
        out, lambda resume: _train_layers(cell, split, **data, **more, out=out, resume=resume)
    )
    shutil.rmtree(out)
    return trained


def _resumably(folder: Path, run: Callable[[bool], Result]) -> Result:
    """Go on from the state in the folder if it is this run's and whole, else begin."""
    if (folder / STATE).exists():
        try:
            return run(True)
        except StaleStateError:
            (folder / STATE).unlink()
    return run(False)


def _train_body(cell: Cell, split: Split, callbacks: Sequence[Callback]) -> dict[str, Any]:
    """The record of an initial process, with the errors in noise."""
    features = _make_features(cell, split, callbacks)
    record, initial = features.record, cell.initial_settings
    if cell.noise and initial is not None:
        settings = initial.training(cell.settings)
        task = TrainingData.prepare(split.X, split.y, settings, split.test, image=split.shape)
        record["result"] |= in_noise(features.network, task.parts, cell.noise)
    return record


def _train_layers(cell: Cell, split: Split, **arguments: Any) -> dict[str, Any]:
    X, y = split.X, split.y
    model: Model
    if cell.rival:
        model, record = train_baseline(X, y, cell.rival_settings, cell.settings, **arguments)
    else:
        run = train(X, y, cell.settings, **arguments)
        model, record = run.network, run.record
    if cell.images:
        record["result"]["images"] = _look(model, split, cell)
    return record


def _look(model: Model, split: Split, cell: Cell) -> dict[str, Any]:
    """The class probabilities of single test samples at every level of noise."""
    X, _ = split.test or (split.X, split.y)
    rows = check_inputs(X[list(cell.images)], model.scaling.centre.dtype)
    probabilities = noisy_probabilities(model, rows, cell.noise)
    return {"rows": cell.images, "levels": cell.noise, "probabilities": probabilities}


def _make_features(cell: Cell, split: Split, callbacks: Sequence[Callback] = ()) -> Features:
    initial, folder = cell.initial_settings, cell.body_folder
    assert initial is not None

    def make(resume: bool) -> Features:
        return make_features(
            split.X,
            split.y,
            initial,
            cell.settings,
            folder,
            test=split.test,
            name=split.name,
            image=split.shape,
            callbacks=(callbacks, ()),
            resume=resume,
        )

    # Another matrix may share the store: one of them trains a body, the other waits for it.
    with FileLock(make_folder(folder) / ".training"):
        return _resumably(folder, make)


def _measured(trained: dict[str, Any]) -> dict[str, Any]:
    """What training adds to a record."""
    names = ("data", "status", "reason", "plan", "n_iter", "objective", "result", "history")
    return {name: trained[name] for name in names}


def _take_seconds(trained: dict[str, Any]) -> list[float]:
    """Remove all times from a record: they differ from run to run."""
    del trained["result"]["seconds"]
    return [entry.pop("seconds") for entry in trained["history"]][1:]
