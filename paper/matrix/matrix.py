"""Run a matrix: every run once, several at a time, each with a record of its own.

The folder holds all records in one file (see ``record_file``). A run that is repeated on the same
machine with the same code has the same record to the bit.
"""

import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from paper.matrix.methods import PRETRAINING
from paper.matrix.record_file import FILE, add_entry, as_json, key_of, read_entries
from paper.matrix.run import FAILED, Run, execute
from paper.matrix.workers import Ended, Progress, Work, run_tasks
from zeroone.data.published import cache_root
from zeroone.training.checkpoint import RECORD
from zeroone.utils.checks import InputError
from zeroone.utils.records import SCHEMA, source
from zeroone.utils.storage import locked, make_folder, remove_leftovers

FIXED = {"exact.step_fraction": 0.99}  # former settings in records, with the value that stayed

STORE = ".store"  # backbones and the states of unfinished runs
Event = Progress | Ended
Record = dict[str, Any]


@dataclass
class Matrix:
    """Runs, and the records they have so far."""

    runs: list[Run]
    folder: Path
    records: dict[Run, Record]
    store: Path | None = None  # None: a folder in ``folder``

    @classmethod
    def open(
        cls,
        runs: Sequence[Run],
        folder: Path,
        say: Callable[[str], None] = print,
        store: Path | None = None,
        *,
        strict: bool = True,
    ) -> "Matrix":
        """Read the records in a folder; ``say`` names those that do not count.

        Raises:
            InputError: A record has other settings than its run, and ``strict`` is set.

        """
        path, records = folder / FILE, {}
        if not path.exists() and any(folder.glob("*/*/*/[0-9]*.json")):
            raise InputError(f"{folder} has records of an earlier version: take another folder.")
        recorded = {key_of(e): e["record"] for e in read_entries(path, say) if "record" in e}
        for run in runs:
            record = recorded.get(tuple(run.key.values()))
            if record is None:
                continue
            fault = _incompleteness(run, record)
            if fault is None and (fault := _other_setting(run, record)) and strict:
                raise InputError(f"{path}: {run} {fault}")
            if fault is None:
                records[run] = record
            else:
                say(f"{path}: {run} {fault} It does not count: its run is missing.")
        for run in _drop_those_on_other_backbones(records):
            say(
                f"{path}: {run} was made on another backbone than that of its repetition. It does "
                f"not count: its run is missing."
            )
        now = (source(), torch.__version__)
        made_by = [(r.get("code"), r.get("machine", {}).get("torch")) for r in records.values()]
        if others := len(records) - made_by.count(now):
            say(
                f"{others} of {len(records)} records in {folder} were made by other code than this "
                f"or another torch; they are kept."
            )
        return cls(list(runs), folder, records, store)

    def check_data(self, data: str, digest: str) -> None:
        """Refuse records that were made from other data than these."""
        for run, record in self.records.items():
            then = record.get("data", {}).get("digest", digest)
            if run.data == data and then != digest:
                raise InputError(
                    f"{self.folder / FILE}: {run} was made when {data} held other data: take "
                    f"another folder, or remove its line."
                )

    @property
    def failed(self) -> list[Run]:
        """Runs whose record says that there is no result."""
        return [run for run in self.runs if self.records.get(run, {}).get("status") == FAILED]

    @property
    def missing(self) -> list[Run]:
        """Runs that have no record."""
        return [run for run in self.runs if run not in self.records]

    def run(
        self,
        runs: Sequence[Run],
        *,
        jobs: int,
        threads: int = 1,
        work: Work = execute,
        watch: Callable[[Event], None] = lambda _event: None,
    ) -> None:
        """Execute these runs, backbones first; ``watch`` hears of an end once it is on disk.

        Where a backbone differs from the recorded one, the other runs on it are repeated.
        """
        stored = [self._in_store(run) for run in runs]
        others = [run for run in stored if run.method != PRETRAINING]
        # A backbone may have a record and yet be gone from the store, or differ from its record.
        lost = [b for run in others if (b := run.backbone_run) and self._has_lost(b)]
        backbones = [run for run in stored if run.method == PRETRAINING] + lost
        with locked(self.folder):
            remove_leftovers(self.folder / FILE)
            self._follow(run_tasks(work, dict.fromkeys(backbones), jobs, threads), watch)
            others += map(self._in_store, _drop_those_on_other_backbones(self.records))
            self._follow(run_tasks(work, dict.fromkeys(others), jobs, threads), watch)

    def _in_store(self, run: Run) -> Run:
        """Set its folders here: worker processes have the environment of their server."""
        store = self.store or self.folder / STORE
        return replace(run, store=store, data_dir=cache_root(run.data_dir))

    def _has_lost(self, backbone: Run) -> bool:
        """Whether the store lacks a backbone, or has another than the recorded one."""
        if not (backbone.backbone_folder / RECORD).exists():
            return True
        recorded = self.records.get(backbone, {}).get("backbone_digest")
        return recorded is not None and recorded != backbone.backbone_digest

    def _follow(self, events: Any, watch: Callable[[Event], None]) -> None:
        with closing(events):
            for event in events:
                if isinstance(event, Ended):
                    self._keep(event)
                watch(event)

    def _keep(self, ended: Ended) -> None:
        """Write the record of a run that ended."""
        run, seconds = ended.task, []
        if ended.failure is None:
            record, seconds = ended.result["record"], ended.result["seconds"]
        else:
            record = run.new_record() | {"status": FAILED, "reason": ended.failure}
            record["traceback"] = ended.details.splitlines()
        record = as_json(record)
        path = make_folder(self.folder) / FILE
        if fault := _incompleteness(run, record):
            raise InputError(f"{path}: {run} {fault}")
        entry = run.key | {
            "status": record["status"],
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(ended.seconds, 3),
            "iterations": [round(s, 4) for s in seconds],
            "record": record,
        }
        add_entry(path, entry)
        self.records[run] = record

    def log(self) -> list[dict[str, Any]]:
        """Which runs ended when, and how long they took, without their records."""
        entries = read_entries(self.folder / FILE)
        return [{name: e[name] for name in e if name != "record"} for e in entries]

    def times(self) -> dict[Run, float]:
        """The median seconds of an iteration of each run, the last time that it ended."""
        named = {tuple(run.key.values()): run for run in self.runs}
        return {
            named[key_of(entry)]: statistics.median(entry["iterations"])
            for entry in self.log()
            if key_of(entry) in named and entry.get("iterations")
        }


def _incompleteness(run: Run, record: Any) -> str | None:
    """Say why the run cannot have written a record, if so."""
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        return "has no record of this version of zeroone."
    return None if run.can_have_written(record) else "is not the whole record of a run."


def _other_setting(run: Run, record: Record) -> str | None:
    """Say in which setting a record differs from its run, if so."""
    then, now = _flat(record["settings"]), _flat(run.describe())
    for name in sorted(now.keys() | then.keys()):
        if (name not in then and not now[name]) or (
            name in FIXED and then.get(name) == FIXED[name]
        ):
            continue  # older than the setting, which is off; or a setting that is fixed by now
        if then.get(name) != now.get(name):
            return (
                f"was made with {name}={then.get(name)!r}, not {now.get(name)!r}: take another "
                f"folder, or remove its line."
            )
    return None


def _drop_those_on_other_backbones(records: dict[Run, Record]) -> list[Run]:
    """Methods are compared on one backbone; one that was lost and trained again may differ."""
    dropped = []
    for run in list(records):
        backbone = records.get(run.backbone_run, {}) if run.backbone_run else {}
        mine, its = records[run].get("backbone_digest"), backbone.get("backbone_digest")
        if None not in (mine, its) and mine != its:
            del records[run]
            dropped.append(run)
    return dropped


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Name nested settings as in ``rival.learning_rate``."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        nested = isinstance(value, dict)
        flat |= _flat(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat
