"""Runs to report on: a folder of ``zeroone train``, or a record alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeroone.checks import InputError
from zeroone.data.arrays import Split
from zeroone.data.files import load_data
from zeroone.network import Network, load
from zeroone.records import read_record
from zeroone.report.looks import Looks, look, strongest_inputs, weight_images
from zeroone.training.parts import known_part
from zeroone.training.run import MODEL, RECORD


@dataclass(frozen=True)
class Reported:
    """A run: its record and, if its model and data are there, what it does on them.

    ``lacking`` says why something is not shown.
    """

    name: str
    record: dict[str, Any]
    lacking: str | None = None
    looks: Looks | None = None
    weights: tuple[str, ...] = ()
    inputs: tuple[tuple[int, float], ...] = ()

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry an iteration."""
        return list(self.record["history"])

    @property
    def iteration(self) -> str:
        """What an iteration is called."""
        return "sweep" if "F" in self.history[-1] else "epoch"


def read_run(path: Path, *, data: str | None, data_dir: Path | None, label: str | None) -> Reported:
    """Of a folder with a record and a model, or of a record's file."""
    record_path = path / RECORD if path.is_dir() else path
    if not record_path.is_file():
        raise InputError(f"there is no record {record_path}: give the folder of a finished run.")
    record = read_record(record_path)
    if not isinstance(record.get("history"), list) or not record["history"]:
        raise InputError(f"{record_path} is not the record of a training run.")
    model = record_path.parent / MODEL
    if not path.is_dir() or not model.is_file():
        return Reported(str(path), record, "There is no model beside the record.")
    network = load(model)
    try:
        split = _load(record, data, data_dir, label)
    except InputError as error:
        if data is not None:
            raise
        return Reported(str(path), record, f"The data are not there: {error}")
    return _looked_at(str(path), record, network, split)


def _load(
    record: dict[str, Any], data: str | None, data_dir: Path | None, label: str | None
) -> Split:
    name = data or record["data"]["name"]
    if name is None:
        raise InputError("the record does not name its data; --data does.")
    return load_data(name, data_dir=data_dir, label=label)


def _looked_at(name: str, record: dict[str, Any], network: Network, split: Split) -> Reported:
    part_name = "test" if split.test else "train"
    X, y = split.test or (split.X, split.y)
    part = known_part(X, y, network.classes, network.n_features, network.dtype)
    then = record["data"]["sha256"].get(part_name)
    if split.test and then is not None and then != part.digest():
        raise InputError(f"{split.name} is not what {name} was tested on: other samples or labels.")
    return Reported(
        name,
        record,
        looks=look(network, part, split, part_name),
        weights=tuple(weight_images(network, split.shape)),
        inputs=() if split.shape else tuple(strongest_inputs(network)),
    )
