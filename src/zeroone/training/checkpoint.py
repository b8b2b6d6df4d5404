"""The state of an unfinished run on disk, replaced as a whole after an iteration."""

import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zeroone.training.training_data import TrainingData
from zeroone.utils.checks import InputError, is_number
from zeroone.utils.schema import Maybe, find_fault, is_count, is_error
from zeroone.utils.storage import STATE, read_tensors, remove_leftovers, write_tensors
from zeroone.version import __version__

STATE_VERSION = 4
FILE = "state.safetensors"
INTERVAL = 0.2  # seconds; not every short epoch is worth a write
VERSIONS = {"zeroone": __version__, "torch": torch.__version__}  # other ones give other numbers
HEADER = {
    "versions": {...: str},
    "settings": dict,
    "data": {...: str},
    "history": [
        {
            "iteration": is_count,
            "seconds": is_number,
            "loss": lambda loss: loss is None or is_number(loss),
        }
    ],
    "best_error": Maybe(is_error),
    "best_iteration": is_count,
    "resumed": [is_count],
}


@dataclass
class Progress:
    """How far a run has come."""

    history: list[dict[str, Any]]  # one entry per iteration; the first is the untrained network's
    best: dict[str, Tensor] = field(default_factory=dict)  # state with the best validation error
    best_error: float | None = None
    best_iteration: int = 0
    resumed: list[int] = field(default_factory=list)  # the iterations after which it was resumed


class StaleStateError(InputError):
    """The state is damaged, or belongs to other settings or data."""


def refuse_both(*, resume: bool, overwrite: bool) -> None:
    """Raise an error for wishes that exclude each other."""
    if resume and overwrite:
        raise InputError("resume continues a run and overwrite replaces it: give one of them.")


def refuse_unfinished(folder: Path) -> None:
    """Raise an error rather than replace a run that could be resumed."""
    if (folder / FILE).exists():
        raise InputError(
            f"{folder} holds an unfinished run: continue it with --resume (resume=True), or "
            f"replace it with --overwrite (overwrite=True)."
        )


class Checkpoint:
    """The state file in a run's folder."""

    def __init__(self, folder: Path, settings: dict[str, Any], task: TrainingData) -> None:
        """Describe the run by all ``settings`` that affect its result, and by its data."""
        self.path = folder / FILE
        # Sums, and so the last bits, depend on the number of threads.
        counts = settings | {"image": task.image, "threads": torch.get_num_threads()}
        # Through JSON, as it will be read: tuples become lists.
        self.identity = json.loads(
            json.dumps({"settings": counts, "data": task.digests}, default=float)
        )
        self.written = -math.inf

    @property
    def is_due(self) -> bool:
        """Whether the last state is old enough to write another."""
        return time.monotonic() - self.written >= INTERVAL

    def write(self, progress: Progress, state: dict[str, Tensor]) -> None:
        """Save everything the next iteration depends on."""
        header = {
            "version": STATE_VERSION,
            "versions": VERSIONS,
            **self.identity,
            "history": progress.history,
            "best_error": progress.best_error,
            "best_iteration": progress.best_iteration,
            "resumed": progress.resumed,
        }
        tensors = {f"state.{name}": tensor for name, tensor in state.items()}
        tensors |= {f"best.{name}": tensor for name, tensor in progress.best.items()}
        write_tensors(self.path, STATE, header, tensors)
        self.written = time.monotonic()

    def read(self) -> tuple[Progress, dict[str, Tensor]]:
        """Return what was saved.

        Raises:
            StaleStateError: the state is damaged, or belongs to other settings or data.

        """
        try:
            header, tensors = read_tensors(self.path, STATE, STATE_VERSION)
            self._check(header)
        except InputError as error:
            raise StaleStateError(str(error)) from None
        history, best = header["history"], _strip(tensors, "best.")
        numbers, best_iteration = (
            [entry["iteration"] for entry in history],
            header["best_iteration"],
        )
        whole = numbers and numbers == list(range(len(history))) and best_iteration in numbers
        if not whole or bool(best) != (header.get("best_error") is not None):
            raise StaleStateError(f"{self.path} is damaged: its history is not whole.")
        resumed = [*header["resumed"], numbers[-1]]
        progress = Progress(history, best, header.get("best_error"), best_iteration, resumed)
        return progress, _strip(tensors, "state.")

    def _check(self, header: dict[str, Any]) -> None:
        folder = self.path.parent
        if header["version"] != STATE_VERSION:
            raise InputError(
                f"the run in {folder} was begun by an earlier version: begin it again with "
                f"--overwrite (overwrite=True)."
            )
        if (fault := find_fault(header, HEADER)) is not None:
            raise InputError(f"{self.path} is damaged: {fault} is missing or of another form.")
        for name, version in VERSIONS.items():
            if header["versions"].get(name) != version:
                raise InputError(
                    f"the run in {folder} was begun by {name} {header['versions'].get(name)}, not "
                    f"{version}, and would end differently: resume it with that version, or begin "
                    f"it again with --overwrite (overwrite=True)."
                )
        for name, now in self.identity["settings"].items():
            then = header["settings"].get(name)
            if then != now:
                raise InputError(
                    f"the run in {folder} was begun with {name}={then!r}, not {now!r}: resume it "
                    f"with the same settings or take another folder."
                )
        for part, digest in self.identity["data"].items():
            if header["data"].get(part) != digest:
                raise InputError(
                    f"the run in {folder} was begun on other data: its {part} part differs."
                )
        if set(header["data"]) != set(self.identity["data"]):
            raise InputError(f"the run in {folder} was begun on other parts of the data.")

    def remove(self) -> None:
        """Delete the state of a run whose results are written."""
        self.path.unlink(missing_ok=True)
        remove_leftovers(self.path)


def _strip(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
