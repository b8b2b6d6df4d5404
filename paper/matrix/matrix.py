"""Run a matrix: every cell once, side by side, each with a record of its own.

The folder holds a record a cell (``mnist/f3nn_1000-1000/relu/0.json``), the same to the bit when
the cell is run again on the same machine and code, and ``log.jsonl``: what was run when, and how
long it took.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from paper.matrix.methods import INITIAL
from paper.matrix.run import FAILED, Cell, run_cell
from paper.matrix.workers import Ended, Progress, Work, run_tasks
from zeroone.data.cache import cache_root
from zeroone.training.runs import RECORD
from zeroone.utils.checks import InputError
from zeroone.utils.records import code, read_record, write_record
from zeroone.utils.storage import make_folder

LOG, LOCK, STORE = "log.jsonl", ".lock", ".store"  # the last: bodies, and states to go on from
Event = Progress | Ended


@dataclass
class Matrix:
    """Cells and the records that are there."""

    cells: list[Cell]
    folder: Path
    records: dict[Cell, dict[str, Any]]
    store: Path | None = None  # of bodies and unfinished states; None is a place in the folder

    @classmethod
    def open(
        cls,
        cells: Sequence[Cell],
        folder: Path,
        say: Callable[[str], None] = print,
        store: Path | None = None,
        *,
        strict: bool = True,
    ) -> "Matrix":
        """Take up the records of earlier runs; a damaged one is named, and its cell is missing.

        One of other settings is refused, or, unless ``strict``, named and passed over, too.
        """
        records = {}
        for cell in cells:
            path = folder / cell.path
            if not path.exists():
                continue
            try:
                record = _read(path, cell)
            except InputError as error:
                say(f"{error} It does not count: its cell is missing.")
                continue
            try:
                _check_same(cell, record, path)
            except InputError as error:
                if strict:
                    raise
                say(f"{error} It does not count: its cell is missing.")
                continue
            records[cell] = record
        for cell in _drop_those_on_other_bodies(records):
            say(
                f"{folder / cell.path} was made on another body than that of its repetition. It "
                f"does not count: its cell is missing."
            )
        if others := sum(_made_by(record) != _made_by() for record in records.values()):
            say(
                f"{others} of {len(records)} records in {folder} were made by other code than this "
                f"or another torch; they are kept."
            )
        return cls(list(cells), folder, records, store)

    def check_data(self, data: str, digest: str) -> None:
        """Refuse records that were made from other data than these."""
        for cell, record in self.records.items():
            then = record.get("data", {}).get("digest", digest)
            if cell.data == data and then != digest:
                raise InputError(
                    f"{self.folder / cell.path} was made when {data} held other data: take another "
                    f"folder, or remove it."
                )

    @property
    def failed(self) -> list[Cell]:
        """Those whose record says that there is no result."""
        return [c for c in self.cells if self.records.get(c, {}).get("status") == FAILED]

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
        """Run these cells, bodies first; a record is on disk before ``watch`` hears of its end.

        Where a body turns out to be another than it was, the cells on it are run again, too.
        """
        make_folder(self.folder)
        stored = [self._in_store(cell) for cell in cells]
        others = [cell for cell in stored if cell.method != INITIAL]
        # Also those that have a record, if the bodies themselves are gone or not the recorded ones.
        lost = [cell.below for cell in others if cell.below and self._has_lost(cell.below)]
        bodies = dict.fromkeys([cell for cell in stored if cell.method == INITIAL] + lost)
        try:
            with FileLock(self.folder / LOCK, timeout=0):
                with closing(run_tasks(work, bodies, jobs=jobs, threads=threads)) as events:
                    self._follow(events, watch)
                others += map(self._in_store, _drop_those_on_other_bodies(self.records))
                wave = list(dict.fromkeys(others))
                with closing(run_tasks(work, wave, jobs=jobs, threads=threads)) as events:
                    self._follow(events, watch)
        except Timeout:
            raise InputError(f"another run is at work in {self.folder}.") from None

    def _in_store(self, cell: Cell) -> Cell:
        """With its folders, resolved here: processes know the environment of their server."""
        store = self.store or self.folder / STORE
        return replace(cell, store=store, data_dir=cache_root(cell.data_dir))

    def _has_lost(self, body: Cell) -> bool:
        """Whether the store has no such body, or another than the record here is of."""
        if not (body.body_folder / RECORD).exists():
            return True
        recorded = self.records.get(body, {}).get("body_digest")
        return recorded is not None and recorded != body.body_digest

    def _follow(self, events: Iterable[Event], watch: Callable[[Event], None]) -> None:
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
        make_folder(path.parent)
        write_record(path, record)
        self.records[cell] = _read(path, cell)
        self._log(ended, record["status"], seconds)

    def _log(self, ended: Ended, status: str, seconds: list[float]) -> None:
        entry = ended.task.key | {
            "status": status,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(ended.seconds, 3),
            "iterations": [round(s, 4) for s in seconds],
        }
        path = self.folder / LOG
        try:
            with path.open("a", encoding="utf-8") as log:
                log.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}.") from None

    def times(self) -> dict[Cell, float]:
        """The median seconds of an iteration of each cell, by its last run in the log."""
        named = {tuple(cell.key.values()): cell for cell in self.cells}
        times = {}
        path = self.folder / LOG
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
            try:
                entry = json.loads(line)
                name = tuple(entry[k] for k in ("data", "architecture", "method", "repetition"))
                times[named[name]] = statistics.median(entry["iterations"])
            except (ValueError, KeyError, TypeError):
                continue  # another matrix's, a failed cell's, or a line cut short by a crash
        return times


def _read(path: Path, cell: Cell) -> dict[str, Any]:
    """The record of a cell; refuses what it cannot have written."""
    record = read_record(path)
    if not cell.can_have_written(record):
        raise InputError(f"{path} is not the whole record of a cell.")
    return record


def _drop_those_on_other_bodies(records: dict[Cell, dict[str, Any]]) -> list[Cell]:
    """Methods are compared on one body: if it was lost and trained again, it may be another."""
    dropped = []
    for cell in list(records):
        below = records.get(cell.below, {}) if cell.below else {}
        mine, its = records[cell].get("body_digest"), below.get("body_digest")
        if None not in (mine, its) and mine != its:
            del records[cell]
            dropped.append(cell)
    return dropped


def _made_by(record: dict[str, Any] | None = None) -> Any:
    """The code and the torch that made a record, or that would make one now."""
    if record is None:
        return code(), torch.__version__
    return record.get("code"), record.get("machine", {}).get("torch")


def _check_same(cell: Cell, record: dict[str, Any], path: Path) -> None:
    """A record of other settings is not this cell's."""
    then, now = _flat(record["settings"]), _flat(cell.describe())
    for name in sorted(now.keys() | then.keys()):
        if then.get(name) != now.get(name):
            raise InputError(
                f"{path} was made with {name}={then.get(name)!r}, not {now.get(name)!r}: take "
                f"another folder, or remove it."
            )


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings of settings by names such as rival.learning_rate."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        nested = isinstance(value, dict)
        flat |= _flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat
