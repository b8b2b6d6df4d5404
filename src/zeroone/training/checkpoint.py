"""The folder of a run, and the state of an unfinished one: replaced as a whole, now and then."""

import json
import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zeroone.training.training_data import TrainingData
from zeroone.utils.checks import InputError
from zeroone.utils.parallel import ALONE, Team
from zeroone.utils.storage import (
    STATE,
    locked,
    make_folder,
    read_tensors,
    remove_leftovers,
    write_tensors,
)
from zeroone.version import __version__

STATE_VERSION = 5
FILE, RECORD, MODEL = "state.safetensors", "record.json", "model.safetensors"
INTERVAL = 0.2  # seconds; not every short epoch is worth a write
VERSIONS = {"zeroone": __version__, "torch": torch.__version__}  # other ones give other numbers


@dataclass
class Progress:
    """How far a run has come."""

    history: list[dict[str, Any]]  # one entry per iteration; the first is the untrained network's
    best_error: float | None = None
    best_iteration: int = 0
    resumed: list[int] = field(default_factory=list)  # the iterations after which it was resumed
    best: dict[str, Tensor] = field(default_factory=dict)  # state with the best validation error


class StaleStateError(InputError):
    """The state is damaged, or belongs to other settings or data."""


class Checkpoint:
    """The state file in a run's folder."""

    def __init__(
        self, folder: Path, settings: dict[str, Any], task: TrainingData, *, resume: bool
    ) -> None:
        """Describe the run by all ``settings`` that affect its result, and by its data."""
        self.path, self.resume = folder / FILE, resume
        # Sums, and so the last bits, depend on the number of threads.
        known = VERSIONS | settings | {"image": task.image, "threads": torch.get_num_threads()}
        # Through JSON, as it will be read: tuples become lists.
        self.settings = json.loads(json.dumps(known, default=float))
        self.data = task.digests
        self.written = -math.inf

    @property
    def is_due(self) -> bool:
        """Whether the last state is old enough to write another."""
        return time.monotonic() - self.written >= INTERVAL

    def write(self, progress: Progress, state: dict[str, Tensor]) -> None:
        """Save everything the next iteration depends on."""
        tensors = {f"state.{name}": tensor for name, tensor in state.items()}
        tensors |= {f"best.{name}": tensor for name, tensor in progress.best.items()}
        header = {
            "version": STATE_VERSION,
            "settings": self.settings,
            "data": self.data,
            "progress": {name: x for name, x in vars(progress).items() if name != "best"},
        }
        write_tensors(self.path, STATE, header, tensors)
        self.written = time.monotonic()

    def read(self) -> tuple[Progress, dict[str, Tensor]]:
        """Return what was saved.

        Raises:
            StaleStateError: the state is damaged, or belongs to other settings or data.

        """
        try:
            header, tensors = read_tensors(self.path, STATE, STATE_VERSION)
        except InputError as error:
            raise StaleStateError(str(error)) from None
        begun = f"the run in {self.path.parent} was begun"
        for name, now in self.settings.items():
            then = header["settings"].get(name)
            if then != now:
                raise StaleStateError(
                    f"{begun} with {name}={then!r}, not {now!r}: resume it with the same, or begin "
                    f"it again with --overwrite (overwrite=True)."
                )
        if header["data"] != self.data:
            raise StaleStateError(f"{begun} on other data: take another folder.")
        progress = Progress(**header["progress"], best=_strip(tensors, "best."))
        progress.resumed.append(len(progress.history) - 1)
        return progress, _strip(tensors, "state.")


@contextmanager
def open_checkpoint(
    out: str | Path | None,
    settings: dict[str, Any],
    task: TrainingData,
    *,
    resume: bool,
    overwrite: bool,
    team: Team = ALONE,
) -> Iterator[Checkpoint | None]:
    """Lock a folder and yield its checkpoint; results in it stay until there are new ones."""
    if out is None:
        yield None
        return
    checkpoint = Checkpoint(make_folder(Path(out)), settings, task, resume=resume)
    team.state = checkpoint.path
    with lock_for(team, checkpoint.path.parent) as folder:
        with team.agree():
            if team.is_first:
                for name in (RECORD, MODEL, FILE):
                    remove_leftovers(folder / name)
                check_folder(folder, resume=resume, overwrite=overwrite)
        yield checkpoint


@contextmanager
def lock_for(team: Team, folder: Path) -> Iterator[Path]:
    """Keep other runs out of a folder; the first rank does so for all."""
    with ExitStack() as stack:
        with team.agree():
            if team.is_first:
                stack.enter_context(locked(folder))
        yield folder


def check_folder(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder with nothing to resume, or with a run that a new one would replace."""
    begun = (folder / FILE).exists()
    finished = (folder / RECORD).exists() or (folder / MODEL).exists()
    if resume and overwrite:
        raise InputError("resume continues a run and overwrite replaces it: give one of them.")
    if resume and not begun:
        what = "a finished run" if finished else "no unfinished run"
        raise InputError(f"{folder} holds {what}: there is nothing to resume.")
    if (begun or finished) and not (resume or overwrite):
        what, instead = "a finished run", "take another folder"
        if begun:
            what, instead = "an unfinished run", "continue it with --resume (resume=True)"
        raise InputError(
            f"{folder} holds {what}: {instead}, or replace it with --overwrite (overwrite=True)."
        )


def _strip(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
