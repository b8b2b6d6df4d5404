"""Callbacks observe a training run and may stop it; loggers write its history to files."""

import csv
from pathlib import Path
from typing import Any

from zeroone.utils.checks import InputError
from zeroone.utils.storage import replacing


class Callback:
    """Base class of callbacks: override what you need.

    Attributes:
        optimizer: what trains, from ``on_start`` to the end of the run: ``zeroone.optim.BCD``, or
            the exact solver. Settings that you change apply from the next batch on, and a resumed
            run keeps them: ``self.optimizer.param_groups[0]["move"]``, ``self.optimizer.window``.
            Several ranks must make the same changes.

    """

    optimizer: Any = None

    def check(self) -> None:
        """Raise an error for what cannot work, before the run touches anything."""

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

    def check(self) -> None:
        """Raise an error for a file that is not a log."""
        self._rows()

    def on_start(self, done: int, total: int) -> None:  # noqa: ARG002
        """Start a new file, or keep the lines of the iterations that are done."""
        rows = self._rows()
        if not done:
            self.columns, rows = [], []
        kept = {k: row for row in rows if (k := _number(row.get("iteration"))) <= done}
        self._write([kept[k] for k in sorted(kept)])

    def _write(self, rows: list[dict[str, str]]) -> None:
        """Replace the file by a header and these lines."""
        with replacing(self.path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.columns)
            if self.columns:
                writer.writeheader()
            writer.writerows(rows)

    def _rows(self) -> list[dict[str, str]]:
        """Read the complete lines of an earlier log; raise an error for any other file."""
        if not self.path.exists():
            return []
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            text = "?"
        if text and not text.startswith("iteration,"):
            raise InputError(f"{self.path} is not a log of a training: it is left as it is.")
        reader = csv.DictReader(text.splitlines()[: text.count("\n")])
        self.columns = list(reader.fieldnames or [])
        return [row for row in reader if None not in row and None not in row.values()]

    def on_iteration(self, entry: dict[str, Any], model: Any) -> None:  # noqa: ARG002
        """Append a line; a value with a new name gets a column, empty in earlier lines."""
        numbers = flat_numbers(entry)
        try:
            if new := [name for name in numbers if name not in self.columns]:
                rows = self._rows()
                self.columns += new
                self._write(rows)
            with self.path.open("a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self.columns).writerow(numbers)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}.") from None


class TensorBoardLogger(Callback):
    """Write scalars for TensorBoard, which must be installed: ``pip install tensorboard``."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = str(folder)
        self.writer: Any = None
        _summary_writer()

    def check(self) -> None:
        """Raise an error if the path is a file."""
        if Path(self.folder).exists() and not Path(self.folder).is_dir():
            raise InputError(f"{self.folder} is not a folder.")

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


def _number(text: str | None) -> float:
    try:
        return float(text or "inf")
    except ValueError:
        return float("inf")
