"""Runs to report on: a folder of ``zeroone train``, or a record alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeroone.data.load import load_data
from zeroone.data.splits import Split
from zeroone.nn.network import Network, load
from zeroone.report.analysis import Looks, look, strongest_inputs, weight_images
from zeroone.training.runs import MODEL, RECORD
from zeroone.training.training_data import Subset, known_part
from zeroone.utils.checks import InputError
from zeroone.utils.records import is_errors, read_record


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
    inputs: tuple[tuple[str, float], ...] = ()

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry an iteration."""
        return list(self.record["history"])

    @property
    def initial(self) -> dict[str, Any] | None:
        """What is recorded of the initial process that trained its body, if there was one."""
        recorded: dict[str, Any] | None = self.record.get("initial")
        return recorded

    @property
    def settings(self) -> dict[str, Any]:
        """Its own, then those of the initial process."""
        own: dict[str, Any] = self.record["settings"]
        return own | ({"initial": self.initial["settings"]} if self.initial else {})

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
    if not _is_of_training(record):
        raise InputError(f"{record_path} is not the whole record of a training run.")
    model = record_path.with_name(MODEL)
    if record_path.name != RECORD or not model.is_file():
        return Reported(str(path), record, "There is no model beside the record.")
    network = load(model)
    try:
        split = _load(record, data, data_dir, label)
        part_name, part = _part_of_the_run(record, network, split)
    except InputError as error:
        if data is not None:
            raise
        return Reported(str(path), record, f"Its data were not found: {error}")
    return Reported(
        str(path),
        record,
        looks=look(network, part, split, part_name),
        weights=tuple(weight_images(network, split.shape)),
        inputs=() if split.shape else tuple(strongest_inputs(network)),
    )


def _is_of_training(record: dict[str, Any]) -> bool:
    """Whether all is there that the page shows."""
    history, result = record.get("history"), record.get("result")
    if not isinstance(history, list) or not history or not isinstance(result, dict):
        return False
    return (
        all(isinstance(entry, dict) and "iteration" in entry for entry in history)
        and _has_sizes(result)
        and _is_initial(record.get("initial"))
        and all(isinstance(record.get(name), dict) for name in ("settings", "machine", "data"))
        and all(isinstance(record.get(name), str) for name in ("status", "reason"))
        and _can_be_drawn(result.get("noise"), record["data"])
    )


def _has_sizes(result: dict[str, Any]) -> bool:
    """What a line of the summary shows, besides errors."""
    return (
        isinstance(result.get("parameters"), int)
        and isinstance(result.get("active_units"), list)
        and isinstance(result.get("operations"), dict)
        and {"macs", "additions"} <= result["operations"].keys()
    )


def _is_initial(initial: Any) -> bool:
    """What a record says of an initial process, if there was one."""
    if initial is None:
        return True
    return (
        isinstance(initial, dict)
        and isinstance(initial.get("result"), dict)
        and _has_sizes(initial["result"])
        and isinstance(initial.get("settings"), dict)
        and type(initial.get("n_iter")) is int
    )


def _can_be_drawn(noise: Any, data: dict[str, Any]) -> bool:
    """Errors in noise, if there are any: one a level, of a part whose samples are counted."""
    if noise is None:
        return True
    if not isinstance(noise, dict) or noise.get("part") not in data.get("samples", {}):
        return False
    return isinstance(noise.get("levels"), list) and is_errors(noise.get("errors"), noise["levels"])


def _load(
    record: dict[str, Any], data: str | None, data_dir: Path | None, label: str | None
) -> Split:
    name = data or record["data"].get("name")
    if name is None:
        raise InputError("the record does not name them; --data does.")
    return load_data(name, data_dir=data_dir, label=label)


def _part_of_the_run(record: dict[str, Any], network: Network, split: Split) -> tuple[str, Subset]:
    """The test part, or else the training part, if it is what the run had: by its fingerprint."""
    digests = record["data"].get("sha256") or {}
    for name, labelled in (("test", split.test), ("train", (split.X, split.y))):
        if labelled is None or name not in digests:
            continue
        part = known_part(*labelled, network.classes, network.n_features, network.dtype)
        if part.digest() == digests[name]:
            return name, part
    raise InputError(f"{split.name} holds other samples or labels than those of the run.")
