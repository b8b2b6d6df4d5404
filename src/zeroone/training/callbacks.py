"""Callbacks observe a training run and may stop it; loggers write its history to files."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zeroone.utils.checks import InputError


class Callback:
    """Base class of callbacks: override what you need.

    Attributes:
        optimizer: what trains, from ``on_start`` to the end of the run: ``zeroone.optim.BCD``, or
            the exact solver. Settings that you change apply from the next batch on, and a resumed
            run keeps them: ``self.optimizer.param_groups[0]["move"]``, ``self.optimizer.window``.
            Several ranks must make the same changes.
        history: the entries of all iterations so far, from that of the untrained network on.

    """

    optimizer: Any = None
    history: Sequence[dict[str, Any]] = ()

    def on_start(self, done: int, total: int) -> None:
        """Training starts or resumes: ``done`` of ``total`` iterations are complete."""

    def on_batch(self, iteration: int, done: int, total: int) -> None:
        """``done`` of the ``total`` batches of this iteration (from 1) are complete."""

    def on_iteration(self, entry: dict[str, Any], model: Any) -> bool | None:
        """An iteration is complete.

        Args:
            entry: its entry of the history. Numbers and words that you add stay in the record,
                and loggers after this callback write them down.
            model: the network.

        Returns:
            True to stop training.

        """


def flat_numbers(entry: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a history entry; those of layers become ``flipped/1`` and so on."""
    numbers: dict[str, float] = {}
    for name, value in entry.items():
        if isinstance(value, int | float):
            numbers[name] = value
        elif isinstance(value, list) and all(isinstance(v, int | float) for v in value):
            numbers |= {f"{name}/{layer}": v for layer, v in enumerate(value, start=1)}
        elif isinstance(value, dict):
            numbers |= {f"{name}/{key}": v for key, v in flat_numbers(value).items()}
    return numbers


class CSVLogger(Callback):
    """Write one CSV line per iteration, at once; a resumed run continues the same file.

    A file that is not such a log is left alone.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.columns: list[str] = []
        if self.path.exists() and not _is_log(self.path):
            raise InputError(f"{self.path} is not a log of a training: it is left as it is.")

    def on_start(self, done: int, total: int) -> None:  # noqa: ARG002
        """Have the next line begin the file anew, with the lines of what was done before."""
        self.columns = []

    def on_iteration(self, entry: dict[str, Any], model: Any) -> None:  # noqa: ARG002
        """Append a line; a value with a new name gets a column, empty in earlier lines."""
        rows = [flat_numbers(entry)]
        anew = not rows[0].keys() <= set(self.columns)
        if anew:
            rows = [flat_numbers(entry) for entry in self.history[1:]]
            self.columns = list(dict.fromkeys(name for row in rows for name in row))
        try:
            with self.path.open("w" if anew else "a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, self.columns)
                if anew:
                    writer.writeheader()
                writer.writerows(rows)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}.") from None


def _is_log(path: Path) -> bool:
    return path.is_file() and path.read_bytes()[:10] in (b"", b"iteration,")


class TensorBoardLogger(Callback):
    """Write scalars for TensorBoard, which must be installed: ``pip install tensorboard``."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)
        self.writer: Any = None
        _summary_writer()
        if Path(folder).is_file():
            raise InputError(f"{folder} is not a folder.")

    def on_start(self, done: int, total: int) -> None:  # noqa: ARG002
        """Open the log; drop what a resumed run is about to write again."""
        try:
            self.writer = _summary_writer()(self.folder, purge_step=done + 1 if done else None)
        except OSError as error:
            raise InputError(f"cannot write to {self.folder}: {error.strerror}.") from None

    def on_iteration(self, entry: dict[str, Any], model: Any) -> None:  # noqa: ARG002
        """Add a point to every chart."""
        for name, value in flat_numbers(entry).items():
            if name != "iteration":
                self.writer.add_scalar(name, value, entry["iteration"])
        self.writer.flush()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open file: estimators are copied with their callbacks."""
        return self.__dict__ | {"writer": None}


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError(
            "logging for TensorBoard needs its package: pip install tensorboard."
        ) from None
    return SummaryWriter
