"""What the records of a protocol say: rows of means, curves of single runs, what is missing."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from paper.matrix.architectures import Architecture
from paper.matrix.matrix import LOG, STORE, Matrix
from paper.matrix.methods import INITIAL
from paper.matrix.run import FAILED, Cell
from paper.matrix.tables import summarise
from paper.reproduce.protocols import Protocol

RECORDS = "records"


@dataclass(frozen=True)
class Results:
    """A protocol and its records so far."""

    protocol: Protocol
    matrix: Matrix

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One for each architecture and method, see ``summarise``."""
        return summarise(self.matrix, self.protocol.spec.known_methods)

    def row(self, method: str) -> dict[str, Any] | None:
        """The one of a method, if it has a result; of the first architecture."""
        return next((row for row in self.rows if row["method"] == method and row["n"]), None)

    @property
    def rows_done(self) -> list[dict[str, Any]]:
        """Those of methods that have a result; bodies alone are none."""
        return [row for row in self.rows if row["n"] and row["method"] != INITIAL]

    def by_initial_epochs(self, method: str) -> dict[int, dict[str, Any]]:
        """The rows of a method, by the epochs of the initial process below it."""
        rows = {}
        for row in self.rows:
            epochs = Architecture.parse(row["architecture"]).initial_epochs
            if row["method"] == method and epochs is not None:
                rows[epochs] = row
        return rows

    @property
    def planned(self) -> int:
        """Cells in all, not counting bodies."""
        return sum(cell.method != INITIAL for cell in self.matrix.cells)

    def runs(self, architecture: str, method: str) -> list[dict[str, Any]]:
        """The records of all repetitions that have a result."""
        return [
            self.matrix.records[cell]
            for cell in self.matrix.cells
            if (cell.architecture, cell.method) == (architecture, method)
            and self.matrix.records.get(cell, {"status": FAILED})["status"] != FAILED
        ]

    @property
    def lacking(self) -> list[Cell]:
        """Cells without a result, not counting bodies."""
        without = [*self.matrix.missing, *self.matrix.failed]
        return [cell for cell in self.matrix.cells if cell in without and cell.method != INITIAL]

    @property
    def recorded(self) -> int:
        """Cells that have a result, bodies included."""
        return len(self.matrix.records) - len(self.matrix.failed)

    @property
    def commits(self) -> list[str]:
        """Of the code that made the records, with '+' where files differed from it."""
        made_by = {str(record.get("commit")) for record in self.matrix.records.values()}
        return sorted({name[:9] + "+" * name.endswith("+") for name in made_by})

    @property
    def machines(self) -> dict[str, list[int]]:
        """Which repetitions were run on which processor, or on several."""
        processors: dict[int, set[str]] = {}
        for cell, record in self.matrix.records.items():
            name = record.get("machine", {}).get("processor") or "an unknown processor"
            processors.setdefault(cell.repetition, set()).add(name)
        found: dict[str, list[int]] = {}
        for repetition in sorted(processors):
            found.setdefault(" and ".join(sorted(processors[repetition])), []).append(repetition)
        return found

    @property
    def dates(self) -> tuple[str, str] | None:
        """The days of the first and the last run, by the log."""
        days = []
        path = self.matrix.folder / LOG
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
            try:
                days.append(json.loads(line)["date"][:10])
            except (ValueError, KeyError, TypeError):
                continue  # a line cut short by a crash
        return (min(days), max(days)) if days else None


def open_results(
    protocol: Protocol, out: Path, say: Any, data_dir: Path | None, *, strict: bool = True
) -> Results:
    """The records in the folder ``out``; damaged ones are named and do not count.

    Those of other settings are refused if ``strict``: what is to be run would overwrite them.
    """
    cells, folder = protocol.spec.cells(data_dir), out / RECORDS / protocol.name
    return Results(protocol, Matrix.open(cells, folder, say, store=out / STORE, strict=strict))
