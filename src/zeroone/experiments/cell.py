"""A cell of a run matrix: data, architecture, method, repetition -> one JSON record."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from zeroone.baselines.settings import RivalSettings
from zeroone.baselines.train import USED, describe_rival, train_rival
from zeroone.checks import InputError, one_of
from zeroone.data.files import load_data
from zeroone.records import new_record
from zeroone.training import Callback, Status, TrainSettings, train


def residual_layers(widths: Sequence[int]) -> tuple[str, ...]:
    """A stem and stages of two residual blocks each, as in ResNet-18; later stages begin strided.

    The classes take the bits of every position of the last stage: averaging them would not leave
    bits, and pooling before the step loses what the positions say.
    """
    layers = [f"conv3x3:{widths[0]}:pad1"]
    for stage, width in enumerate(widths):
        for block in range(2):
            stride = ":stride2" if stage and not block else ""
            layers += [f"conv3x3:{width}{stride}:pad1", f"conv3x3:{width}:pad1:skip2"]
    return tuple(layers)


# The body of each architecture, and the hidden layers on it.
ARCHITECTURES: dict[str, tuple[str | None, tuple[int | str, ...]]] = {
    "f3nn": (None, (2000, 2000)),
    "lenet": (None, ("conv5x5:32:max2", "conv5x5:64:max2", 500)),
    "resnet18-bits": (None, residual_layers((32, 64, 128, 256))),
    "convnet": ("small", (2000, 2000)),
    "resnet18": ("resnet18", (1500, 1500)),
    "resnet18-3x3": ("resnet18-3x3", (1500, 1500)),
}
FAILED = "failed"
RIVAL_OPTIONS = [f.name for f in fields(RivalSettings) if f.name != "body"]  # the architecture's


def parse_architecture(text: str) -> tuple[str | None, tuple[int | str, ...]]:
    """Body and hidden widths of ``f3nn``, ``f3nn:1000-1000``, ``convnet``, ``resnet18`` ..."""
    name, colon, widths = str(text).partition(":")
    body, hidden = ARCHITECTURES[one_of("architecture", name, ARCHITECTURES)]
    if colon:
        if not re.fullmatch(r"\d+(-\d+)*", widths):
            raise InputError(f"architectures are written like {name}:1000-1000, got {text!r}.")
        hidden = tuple(int(width) for width in widths.split("-"))
    return body, hidden


def _as_name(text: str) -> str:
    """A file's name that no other text gets: one that had to be changed carries its digest."""
    if re.fullmatch(r"[\w-][\w.-]*", text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return re.sub(r"[^\w-]+", "_", text).strip("_") + "-" + digest


@dataclass(frozen=True)
class Cell:
    """One training run of a matrix: the four that name it, and all else that decides its result.

    ``options``: of training, and of ``RivalSettings`` if the method is a ``rival``. ``label`` is
    the label column of a ``.csv`` file.
    """

    data: str
    architecture: str
    method: str
    repetition: int
    rival: bool = False
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    noise: tuple[float, ...] = ()
    data_dir: Path | None = None
    label: str | None = None

    @property
    def key(self) -> dict[str, Any]:
        """The four that name it."""
        names = ("data", "architecture", "method", "repetition")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        return f"{self.data}, {self.architecture}, {self.method}, repetition {self.repetition}"

    @property
    def seed(self) -> int:
        """Of the four: no two cells share their random numbers, unless ``options`` say so."""
        digest = hashlib.sha256(json.dumps(list(self.key.values())).encode()).digest()
        return int(self.options.get("seed", int.from_bytes(digest[:4])))

    @property
    def path(self) -> Path:
        """Where its record goes in the matrix's folder."""
        architecture = self.architecture.replace(":", "_")
        names = (_as_name(self.data), architecture, _as_name(self.method))
        return Path(*names, f"{self.repetition}.json")

    @property
    def body(self) -> str | None:
        """The convolutional body of its architecture."""
        return parse_architecture(self.architecture)[0]

    @property
    def settings(self) -> TrainSettings:
        """How it is trained; refuses what its method has no use for."""
        _, hidden = parse_architecture(self.architecture)
        options: dict[str, Any] = dict(self.options)
        if self.rival:
            options = {k: v for k, v in options.items() if k not in RIVAL_OPTIONS}
            for name in options:
                one_of("option of a network trained by Adam", name, [*USED, *RIVAL_OPTIONS])
        return TrainSettings.from_options(**options | {"hidden": hidden, "seed": self.seed})

    @property
    def rival_settings(self) -> RivalSettings:
        """What is trained by Adam."""
        own = {name: value for name, value in self.options.items() if name in RIVAL_OPTIONS}
        return RivalSettings(body=self.body, **own)

    def describe(self) -> dict[str, Any]:
        """All that decides its result, as JSON gives it back; refuses what cannot be."""
        if self.rival:
            settings = describe_rival(self.rival_settings, self.settings)
        else:
            settings = self.settings.describe()
            if self.body:
                raise InputError(
                    f"{self.method} trains f3nn, lenet and resnet18-bits, not the layers on the "
                    f"body of {self.architecture}."
                )
        content: dict[str, Any] = json.loads(json.dumps(settings | {"noise": self.noise}))
        return content

    def new_record(self) -> dict[str, Any]:
        """The start of its record. Nothing in it tells one run of the cell from another."""
        record = new_record("cell", self.describe(), self.seed)
        del record["date"]
        return record | {"cell": self.key}


def run_cell(cell: Cell, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """Train and score: the record, and the ``seconds`` of each iteration, no part of it."""
    record = cell.new_record()  # first: what is committed meanwhile is not what runs
    split = load_data(cell.data, data_dir=cell.data_dir, label=cell.label)
    arguments: dict[str, Any] = {
        "test": split.test,
        "name": split.name,
        "image": split.shape,
        "callbacks": callbacks,
        "noise": cell.noise,
    }
    if cell.rival:
        _, trained = train_rival(split.X, split.y, cell.rival_settings, cell.settings, **arguments)
    else:
        trained = train(split.X, split.y, cell.settings, **arguments).record
    seconds = _take_seconds(trained)
    record |= _measured(trained)
    record["data"]["digest"] = split.digest()
    if record["status"] == Status.DIVERGED:
        record["status"] = FAILED
    return {"record": record, "seconds": seconds}


def _measured(trained: dict[str, Any]) -> dict[str, Any]:
    """What training adds to a record."""
    names = ("data", "status", "reason", "plan", "n_iter", "objective", "result", "history")
    return {name: trained[name] for name in names}


def _take_seconds(trained: dict[str, Any]) -> list[float]:
    """Remove all times from a record: they differ from run to run."""
    del trained["result"]["seconds"]
    return [entry.pop("seconds") for entry in trained["history"]][1:]
