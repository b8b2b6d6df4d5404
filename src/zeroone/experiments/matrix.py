"""Run a matrix: every cell once, side by side, each with a record of its own.

The folder holds a record a cell (``mnist/f3nn_1000-1000/relu/0.json``), the same to the bit when
the cell is run again on the same machine and code, and ``log.jsonl``: what was run when, and how
long it took.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from zeroone.checks import InputError
from zeroone.experiments.cell import Cell, run_cell
from zeroone.experiments.workers import Ended, Progress, Work, run_tasks
from zeroone.records import read_record, write_record

FAILED = "failed"
LOG = "log.jsonl"
Event = Progress | Ended


@dataclass
class Matrix:
    """Cells and the records that are there."""

    cells: list[Cell]
    folder: Path
    records: dict[Cell, dict[str, Any]]

    @classmethod
    def open(
        cls, cells: Sequence[Cell], folder: Path, say: Callable[[str], None] = print
    ) -> "Matrix":
        """Take up the records of earlier runs; a damaged one is named, and its cell run again."""
        records = {}
        for cell in cells:
            path = folder / cell.path
            if not path.exists():
                continue
            try:
                record = read_record(path)
            except InputError as error:
                say(f"{error} Its cell is run again.")
                continue
            _check_same(cell, record, path)
            records[cell] = record
        return cls(list(cells), folder, records)

    @property
    def failed(self) -> list[Cell]:
        """Those whose record says that there is no result."""
        return [cell for cell, record in self.records.items() if record["status"] == FAILED]

    @property
    def missing(self) -> list[Cell]:
        """Those that have no record."""
        return [cell for cell in self.cells if cell not in self.records]

    def run(
        self,
        cells: Sequence[Cell],
        *,
        jobs: int,
        threads: int = 1,
        work: Work = run_cell,
        watch: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        """Run these cells; each record is on disk before ``watch`` hears that its cell ended."""
        with closing(run_tasks(work, cells, jobs=jobs, threads=threads)) as events:
            for event in events:
                if isinstance(event, Ended):
                    self._keep(event)
                watch(event)

    def _keep(self, ended: Ended) -> None:
        cell, seconds = ended.task, []
        if ended.failure is None:
            record, seconds = ended.result["record"], ended.result["seconds"]
        else:
            record = cell.new_record() | {"status": FAILED, "reason": ended.failure}
            record["traceback"] = ended.details.splitlines()
        path = self.folder / cell.path
        _make_folder(path.parent)
        write_record(path, record)
        self.records[cell] = read_record(path)
        entry = cell.key | {
            "status": record["status"],
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(ended.seconds, 3),
            "iterations": [round(s, 4) for s in seconds],
        }
        with (self.folder / LOG).open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")

    def times(self) -> dict[Cell, float]:
        """The median seconds of an iteration of each cell, by its last run in the log."""
        named = {tuple(cell.key.values()): cell for cell in self.cells}
        times = {}
        path = self.folder / LOG
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            try:
                entry = json.loads(line)
                cell = named[tuple(entry[name] for name in next(iter(named.values())).key)]
                times[cell] = sorted(entry["iterations"])[len(entry["iterations"]) // 2]
            except (ValueError, KeyError, IndexError, TypeError):
                continue  # another matrix's, a failed cell's, or a line cut short by a crash
        return times


def _check_same(cell: Cell, record: dict[str, Any], path: Path) -> None:
    """A record of other settings is not this cell's."""
    then, now = record.get("settings", {}), cell.describe()
    for name in now.keys() | then.keys():
        if then.get(name) != now.get(name):
            raise InputError(
                f"{path} was made with {name}={then.get(name)!r}, not {now.get(name)!r}: take "
                f"another folder, or remove it."
            )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}.") from None
