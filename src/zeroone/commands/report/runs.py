"""Reads the runs to report on: the folder of a training run, or a record alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeroone.commands.report.evaluation import Evaluation, evaluate, strongest_inputs
from zeroone.commands.report.images import weight_images
from zeroone.data.load import load_data
from zeroone.data.splits import Split, stratified_cut
from zeroone.nn.network import Network
from zeroone.nn.network_file import load
from zeroone.training.checkpoint import MODEL, RECORD
from zeroone.training.training_data import Subset, known_part
from zeroone.utils.checks import InputError
from zeroone.utils.records import read_record


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
    model = record_path.with_name(MODEL)
    if record_path.name != RECORD or not model.is_file():
        return Run(str(path), record, "There is no model beside the record.")
    network = load(model)
    if not network.targets.one_class:
        return Run(str(path), record, "Its network does not choose one class per sample.")
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


def _part_of_the_run(record: dict[str, Any], network: Network, split: Split) -> tuple[str, Subset]:
    """Find the run's test part by its fingerprint, or else its validation or training part."""
    digests = record["data"].get("sha256") or {}
    held_out = record["settings"].get("validation")
    for name, labelled in (("test", split.test), ("train", (split.X, split.y))):
        if labelled is None or name not in digests:
            continue
        part = known_part(*labelled, network.classes, network.n_features, network.dtype)
        if name == "train" and held_out:
            _, cut = stratified_cut(part.y.numpy(), held_out, record["seed"])
            name, part = "validation", part.rows(cut)  # noqa: PLW2901
        if part.digest == digests.get(name):
            return name, part
    raise InputError(f"{split.name} holds other samples or labels than those of the run.")
