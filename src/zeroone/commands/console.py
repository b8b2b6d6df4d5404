"""What a user sees on the terminal: progress during training, tables afterwards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table

from zeroone.training import Callback
from zeroone.training.text_progress import PARTS, Lines, describe, percent, say
from zeroone.utils.checks import printable


class Bar(Callback):
    """A progress bar that moves with every batch."""

    def __init__(self, bars: Progress, label: str) -> None:
        self.bars = bars
        self.task = bars.add_task(label, total=None, state="", visible=False)

    def on_start(self, done: int, total: int) -> None:
        """Show the bar, with the work done so far."""
        self.bars.update(self.task, completed=done, total=total, visible=True)

    def on_batch(self, iteration: int, done: int, total: int) -> None:
        """Move the bar."""
        self.bars.update(self.task, completed=iteration - 1 + done / total)

    def on_iteration(self, entry: dict[str, Any], model: Any) -> None:  # noqa: ARG002
        """Show how good the model is."""
        self.bars.update(self.task, completed=entry["iteration"], state=_briefly(entry))


@contextmanager
def stages(*labels: str, quiet: bool = False) -> Iterator[list[list[Callback]]]:
    """Give each stage its callbacks: bars on a terminal, lines elsewhere, none if quiet."""
    console = Console(stderr=True)
    if quiet:
        yield [[] for _ in labels]
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=16),
            TextColumn("{task.completed:.1f}/{task.total}", table_column=Column(no_wrap=True)),
            TimeRemainingColumn(),
            TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True, ratio=1)),
        )
        with Progress(*columns, console=console) as bars:
            yield [[Bar(bars, label)] for label in labels]
    else:
        yield [[Lines(label)] for label in labels]


@contextmanager
def counters(*, quiet: bool = False) -> Iterator[Callable[[str, int, int | None], None]]:
    """Report progress by name: a bar each on a terminal, a line at the end elsewhere."""
    console, tasks = Console(stderr=True), dict[str, TaskID]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    shown = console.is_terminal and not quiet
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not shown) as bars:

        def report(name: str, done: int, total: int | None) -> None:
            if shown:
                if name not in tasks:
                    tasks[name] = bars.add_task(escape(name))
                bars.update(tasks[name], completed=done, total=total)
            elif done == total and not quiet:
                say(f"{name}: {done:,} of {total:,}")

        yield report


def _briefly(entry: dict[str, Any]) -> str:
    """Return the error that counts most, or the loss."""
    for part in reversed(PARTS):
        if f"{part}_error" in entry:
            return f"{part} {percent(entry[f'{part}_error'])}"
    return describe(entry)


def print_results(title: str, records: dict[str, dict[str, Any]]) -> None:
    """Print a table of finished training runs, one per row."""
    results = [record["result"] for record in records.values()]
    parts = [p for p in PARTS if any(f"{p}_error" in result for result in results)]
    table = Table(title=escape(printable(title)), title_justify="left")
    table.add_column("run")
    headings = ("active units", "parameters", "seconds")
    for heading in (*(f"{p} error" for p in parts), *headings):
        table.add_column(heading, justify="right")
    for name, result in zip(records, results, strict=True):
        table.add_row(
            escape(printable(name)),
            *(percent(result.get(f"{p}_error")) for p in parts),
            "-".join(map(str, result["active_units"])) or "none",
            f"{result['parameters']:,}",
            f"{result['seconds']:.1f}",
        )
    print_table(table)


def print_table(table: Table, width: int = 100) -> None:
    """Print a table as wide as the terminal, or of a fixed width into a file."""
    Console(width=None if Console().is_terminal else width).print(table)
