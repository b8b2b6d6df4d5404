"""Reads the runs to report on: the folder of a training run, or a record alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeroone.commands.report.evaluation import Evaluation, evaluate
from zeroone.commands.report.weights import strongest_inputs, weight_images
from zeroone.data.load import load_data
from zeroone.data.splits import Split
from zeroone.nn.network import Network, load
from zeroone.training.runs import MODEL, RECORD
from zeroone.training.training_data import Subset, known_part
from zeroone.utils.checks import InputError
from zeroone.utils.records import is_errors, read_record

Types = Mapping[str, type]
# The entries of a record that the page shows.
ENTRIES: Types = {
    "history": list,
    **dict.fromkeys(("result", "settings", "machine", "data"), dict),
    **dict.fromkeys(("status", "reason"), str),
}
SIZES: Types = {"parameters": int, "active_units": list, "operations": dict}
OPERATIONS: Types = {"macs": int, "additions": int}
NOISE: Types = {"part": str, "levels": list, "errors": list}
PRETRAINING: Types = {"result": dict, "settings": dict, "n_iter": int}


@dataclass(frozen=True)
class Run:
    """A run's record and, if its model and data are there, what the network does on them.

    ``missing`` says why the page does not show the latter.
    """

    name: str
    record: dict[str, Any]
    missing: str | None = None
    evaluation: Evaluation | None = None
    weights: tuple[str, ...] = ()
    inputs: tuple[tuple[str, float], ...] = ()

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry for each iteration."""
        return list(self.record["history"])

    @property
    def pretraining(self) -> dict[str, Any] | None:
        """The record of the pretraining of its backbone, if there was one."""
        recorded: dict[str, Any] | None = self.record.get("initial")
        return recorded

    @property
    def iteration(self) -> str:
        """What an iteration is called."""
        return "sweep" if "F" in self.history[-1] else "epoch"


def read_run(path: Path, *, data: str | None, data_dir: Path | None, label: str | None) -> Run:
    """Read a run from its folder, or from the file of its record.

    Raises:
        InputError: The record is missing or incomplete, or ``data`` are not those of the run.
    """
    record_path = path / RECORD if path.is_dir() else path
    if not record_path.is_file():
        raise InputError(f"there is no record {record_path}: give the folder of a finished run.")
    record = read_record(record_path)
    if not _is_whole(record):
        raise InputError(f"{record_path} is not the whole record of a training run.")
    model = record_path.with_name(MODEL)
    if record_path.name != RECORD or not model.is_file():
        return Run(str(path), record, "There is no model beside the record.")
    network = load(model)
    try:
        name = data or record["data"].get("name")
        if name is None:
            raise InputError("the record does not name them; use --data.")
        split = load_data(name, data_dir=data_dir, label=label)
        part_name, part = _part_of_the_run(record, network, split)
    except InputError as error:
        if data is not None:
            raise
        return Run(str(path), record, f"Its data were not found: {error}")
    return Run(
        str(path),
        record,
        evaluation=evaluate(network, part, split, part_name),
        weights=tuple(weight_images(network, split.shape)),
        inputs=() if split.shape else tuple(strongest_inputs(network)),
    )


def _is_whole(record: dict[str, Any]) -> bool:
    """Whether a record has every entry that the page shows."""
    if not _has(record, ENTRIES) or not record["history"] or not _has_sizes(record["result"]):
        return False
    pretraining, noise = record.get("initial"), record["result"].get("noise")
    if pretraining is not None and not (
        _has(pretraining, PRETRAINING) and _has_sizes(pretraining["result"])
    ):
        return False
    if noise is not None and not (
        _has(noise, NOISE)
        and noise["part"] in record["data"].get("samples", {})
        and is_errors(noise["errors"], noise["levels"])
    ):
        return False
    return all(isinstance(entry, dict) and "iteration" in entry for entry in record["history"])


def _has(entries: Any, types: Types) -> bool:
    return isinstance(entries, dict) and all(isinstance(entries.get(k), types[k]) for k in types)


def _has_sizes(result: dict[str, Any]) -> bool:
    return _has(result, SIZES) and _has(result["operations"], OPERATIONS)


def _part_of_the_run(record: dict[str, Any], network: Network, split: Split) -> tuple[str, Subset]:
    """Find the run's test part by its fingerprint, or else its training part."""
    digests = record["data"].get("sha256") or {}
    for name, labelled in (("test", split.test), ("train", (split.X, split.y))):
        if labelled is None or name not in digests:
            continue
        part = known_part(*labelled, network.classes, network.n_features, network.dtype)
        if part.digest() == digests[name]:
            return name, part
    raise InputError(f"{split.name} holds other samples or labels than those of the run.")
