"""The records of a protocol: rows of means, single records, what is missing."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from paper.matrix.architectures import Architecture
from paper.matrix.matrix import STORE, Matrix
from paper.matrix.methods import PRETRAINING
from paper.matrix.run import FAILED, Run
from paper.matrix.tables import Row, summarise
from paper.reproduce.protocols import Protocol

RECORDS = "records"


@dataclass(frozen=True)
class Results:
    """A protocol and its records so far."""

    protocol: Protocol
    matrix: Matrix

    @cached_property
    def rows(self) -> list[Row]:
        """A row for each architecture and method, see ``summarise``."""
        return summarise(self.matrix, self.protocol.spec.known_methods)

    def row(self, method: str) -> Row | None:
        """The row of a method on the first architecture where it has a result."""
        return next((row for row in self.rows if row["method"] == method and row["n"]), None)

    @property
    def rows_done(self) -> list[Row]:
        """The rows of methods that have a result; backbones alone are none."""
        return [row for row in self.rows if row["n"] and row["method"] != PRETRAINING]

    def by_pretraining_epochs(self, method: str) -> dict[int, Row]:
        """The rows of a method, by the epochs of pretraining of its backbone."""
        rows = {}
        for row in self.rows:
            epochs = Architecture.parse(row["architecture"]).pretraining_epochs
            if row["method"] == method and epochs is not None:
                rows[epochs] = row
        return rows

    def records(self, architecture: str, method: str) -> list[dict[str, Any]]:
        """The records of all repetitions that have a result."""
        found = (
            self.matrix.records.get(run, {"status": FAILED})
            for run in self.matrix.runs
            if (run.architecture, run.method) == (architecture, method)
        )
        return [record for record in found if record["status"] != FAILED]

    @property
    def planned(self) -> int:
        """The number of all runs, without those of backbones."""
        return sum(run.method != PRETRAINING for run in self.matrix.runs)

    @property
    def lacking(self) -> list[Run]:
        """Runs without a result, without those of backbones."""
        without = {*self.matrix.missing, *self.matrix.failed}
        return [run for run in self.matrix.runs if run in without and run.method != PRETRAINING]

    @property
    def recorded(self) -> int:
        """The number of runs that have a result, with those of backbones."""
        return len(self.matrix.records) - len(self.matrix.failed)

    @property
    def commits(self) -> list[str]:
        """Commits that made the records, with '+' where files differed from them."""
        made_by = {str(record.get("commit")) for record in self.matrix.records.values()}
        return sorted({name[:9] + "+" * name.endswith("+") for name in made_by})

    @property
    def machines(self) -> dict[str, list[int]]:
        """The repetitions by the processor, or processors, that ran them."""
        processors: dict[int, set[str]] = {}
        for run, record in self.matrix.records.items():
            name = record.get("machine", {}).get("processor") or "an unknown processor"
            processors.setdefault(run.repetition, set()).add(name)
        found: dict[str, list[int]] = {}
        for repetition in sorted(processors):
            found.setdefault(" and ".join(sorted(processors[repetition])), []).append(repetition)
        return found

    @property
    def dates(self) -> tuple[str, str] | None:
        """The days on which the first and the last run ended."""
        days = [entry["date"][:10] for entry in self.matrix.log() if "date" in entry]
        return (min(days), max(days)) if days else None


def open_results(
    protocol: Protocol,
    out: Path,
    say: Callable[[str], None],
    data_dir: Path | None,
    *,
    strict: bool = True,
) -> Results:
    """Open the records of a protocol in the folder ``out``, see ``Matrix.open``."""
    runs, folder = protocol.spec.runs(data_dir), out / RECORDS / protocol.name
    return Results(protocol, Matrix.open(runs, folder, say, store=out / STORE, strict=strict))
