"""A cell of a run matrix: data, architecture, method, repetition -> one JSON record."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from zeroone.baselines.settings import RivalSettings
from zeroone.baselines.train import train_rival
from zeroone.checks import InputError, one_of
from zeroone.data.arrays import Split
from zeroone.data.files import load_data
from zeroone.metrics import Model, noise_errors
from zeroone.records import new_record
from zeroone.training import Callback, TrainSettings, train
from zeroone.training.parts import Part, known_part

# The body of each architecture, and the hidden widths of the dense layers on it.
ARCHITECTURES: dict[str, tuple[str | None, tuple[int, ...]]] = {
    "f3nn": (None, (2000, 2000)),
    "convnet": ("small", (2000, 2000)),
    "resnet18": ("resnet18", (1500, 1500)),
    "resnet18-3x3": ("resnet18-3x3", (1500, 1500)),
}
RIVAL_OPTIONS = {f.name for f in fields(RivalSettings)} - {"body"}  # that is the architecture's


def parse_architecture(text: str) -> tuple[str | None, tuple[int, ...]]:
    """Body and hidden widths of ``f3nn``, ``f3nn:1000-1000``, ``convnet``, ``resnet18`` ..."""
    name, colon, widths = str(text).partition(":")
    body, hidden = ARCHITECTURES[one_of("architecture", name, ARCHITECTURES)]
    if colon:
        if not re.fullmatch(r"\d+(-\d+)*", widths):
            raise InputError(f"architectures are written like {name}:1000-1000, got {text!r}.")
        hidden = tuple(int(width) for width in widths.split("-"))
    return body, hidden


class DivergedError(Exception):
    """Training ended without a network that could be used."""


@dataclass(frozen=True)
class Cell:
    """One training run of a matrix: the four that name it, and all else that decides its result.

    ``options``: of training, and of ``RivalSettings`` if the method is a ``rival``.
    """

    data: str
    architecture: str
    method: str
    repetition: int
    rival: bool = False
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    noise: tuple[float, ...] = ()
    data_dir: Path | None = None

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
        return int.from_bytes(digest[:4])

    @property
    def path(self) -> Path:
        """Where its record goes in the matrix's folder."""
        parts = (self.data, self.architecture, self.method)
        return Path(*(re.sub(r"[^\w.-]+", "_", p) for p in parts), f"{self.repetition}.json")

    @property
    def settings(self) -> TrainSettings:
        """How it is trained."""
        _, hidden = parse_architecture(self.architecture)
        own = RIVAL_OPTIONS if self.rival else set()
        options: dict[str, Any] = {"hidden": hidden, "seed": self.seed}
        options |= {name: value for name, value in self.options.items() if name not in own}
        return TrainSettings.from_options(**options)

    @property
    def rival_settings(self) -> RivalSettings:
        """What is trained by Adam."""
        body, _ = parse_architecture(self.architecture)
        own = {name: value for name, value in self.options.items() if name in RIVAL_OPTIONS}
        return RivalSettings(body=body, **own)

    def describe(self) -> dict[str, Any]:
        """All that decides its result, as JSON gives it back; refuses what cannot be."""
        body, _ = parse_architecture(self.architecture)
        if body and not self.rival:
            raise InputError(
                f"{self.method} trains fully connected networks (f3nn), not {self.architecture}."
            )
        rival = asdict(self.rival_settings) if self.rival else None
        settings = self.settings.describe() | {"rival": rival, "noise": self.noise}
        content: dict[str, Any] = json.loads(json.dumps(settings))
        return content

    def new_record(self) -> dict[str, Any]:
        """The start of its record. Nothing in it tells one run of the cell from another."""
        record = new_record("cell", self.describe(), self.settings.seed)
        del record["date"]
        return record | {"cell": self.key}


def run_cell(cell: Cell, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """Train and score: the record, and ``seconds`` an epoch, which are no part of it."""
    split = load_data(cell.data, data_dir=cell.data_dir)
    arguments: dict[str, Any] = {"test": split.test, "name": split.name, "callbacks": callbacks}
    model: Model
    if cell.rival:
        model, trained = train_rival(
            split.X, split.y, cell.rival_settings, cell.settings, image=split.shape, **arguments
        )
    else:
        run = train(split.X, split.y, cell.settings, **arguments)
        model, trained = run.network, run.record
    if trained["status"] == "diverged":
        raise DivergedError(trained["reason"])
    if cell.noise:
        part = _scored_part(split, model, trained["data"]["classes"])
        trained["result"]["noise"] = noise_errors(model, part.X, part.y, cell.noise)
    seconds = _take_seconds(trained)
    return {"record": cell.new_record() | _measured(trained), "seconds": seconds}


def _scored_part(split: Split, model: Model, classes: list[Any]) -> Part:
    """The test part, or all there is."""
    X, y = split.test or (split.X, split.y)
    centre = model.scaling.centre
    return known_part(X, y, classes, len(centre), centre.dtype)


def _measured(trained: dict[str, Any]) -> dict[str, Any]:
    """What training adds to a record."""
    names = ("data", "status", "reason", "plan", "n_iter", "objective", "result", "history")
    return {name: trained[name] for name in names}


def _take_seconds(trained: dict[str, Any]) -> list[float]:
    """Remove all times from a record: they differ from run to run."""
    del trained["result"]["seconds"]
    return [entry.pop("seconds") for entry in trained["history"]][1:]
