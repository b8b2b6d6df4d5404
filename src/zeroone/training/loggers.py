"""Callbacks that write the history of a training where other tools read it."""

import csv
from pathlib import Path
from typing import Any

from zeroone.checks import InputError
from zeroone.training.callbacks import Callback


def flat_numbers(entry: dict[str, Any]) -> dict[str, float]:
    """The numbers of a line of the history; those of layers as ``flipped/1``, ``flipped/2``, ..."""
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
    """One line an iteration, written at once; a resumed run goes on with the same file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.columns: list[str] = []

    def on_start(self, done: int, total: int) -> None:  # noqa: ARG002
        """Begin, or keep the lines of what is done."""
        rows: list[dict[str, str]] = []
        if done and self.path.is_file():
            with self.path.open(newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                self.columns = list(reader.fieldnames or [])
                rows = [row for row in reader if _number(row.get("iteration")) <= done]
        try:
            with self.path.open("w", newline="", encoding="utf-8") as file:
                if self.columns:
                    writer = csv.DictWriter(file, self.columns)
                    writer.writeheader()
                    writer.writerows(rows)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}.") from None

    def on_iteration(self, entry: dict[str, Any], model: Any) -> None:  # noqa: ARG002
        """One line."""
        numbers = flat_numbers(entry)
        first = not self.columns
        self.columns = self.columns or list(numbers)
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.columns, extrasaction="ignore")
            if first:
                writer.writeheader()
            writer.writerow(numbers)


class TensorBoardLogger(Callback):
    """Scalars for TensorBoard, which must be installed: ``pip install tensorboard``."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError(
                "logging for TensorBoard needs its package: pip install tensorboard."
            ) from None
        self.writer: Any = SummaryWriter(str(folder))

    def on_iteration(self, entry: dict[str, Any], model: Any) -> None:  # noqa: ARG002
        """One point in every chart."""
        for name, value in flat_numbers(entry).items():
            if name != "iteration":
                self.writer.add_scalar(name, value, entry["iteration"])
        self.writer.flush()


def _number(text: str | None) -> float:
    try:
        return float(text or "inf")
    except ValueError:
        return float("inf")
