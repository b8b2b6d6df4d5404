"""What a person sees on the terminal: progress while training, tables afterwards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

Report = Callable[[dict[str, Any]], None]
PARTS = ("train", "validation", "test")


@contextmanager
def progress(label: str, total: int, *, quiet: bool = False) -> Iterator[Report | None]:
    """A bar on a terminal, about ten plain lines elsewhere, nothing if quiet."""
    console = Console(stderr=True)
    if quiet:
        yield None
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[state]}"),
        )
        with Progress(*columns, console=console) as bars:
            task = bars.add_task(label, total=total, state="")
            yield lambda entry: bars.update(task, advance=1, state=_state(entry))
    else:
        every = max(1, total // 10)

        def line(entry: dict[str, Any]) -> None:
            if entry["iteration"] % every == 0 or entry["iteration"] == total:
                text = f"{label}: sweep {entry['iteration']}/{total}, {_state(entry)}"
                console.print(text, highlight=False, markup=False, soft_wrap=True)

        yield line


@contextmanager
def transfers(*, quiet: bool = False) -> Iterator[Callable[[str, int, int | None], None] | None]:
    """A bar a file on a terminal, a line a file elsewhere, nothing if quiet."""
    console = Console(stderr=True)
    if quiet:
        yield None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        with Progress(*columns, TimeRemainingColumn(), console=console) as bars:
            tasks: dict[str, TaskID] = {}

            def report(name: str, done: int, total: int | None) -> None:
                if name not in tasks:
                    tasks[name] = bars.add_task(name)
                bars.update(tasks[name], completed=done, total=total)

            yield report
    else:

        def line(name: str, done: int, total: int | None) -> None:
            if done == total:
                say(f"{name}: {done:,} bytes")

        yield line


def say(sentence: str) -> None:
    """One line about what is going on, on stderr."""
    Console(stderr=True).print(sentence, highlight=False, markup=False, soft_wrap=True)


def _state(entry: dict[str, Any]) -> str:
    errors = [f"{p} error {_percent(entry[f'{p}_error'])}" for p in PARTS if f"{p}_error" in entry]
    return ", ".join([f"F {entry['F']:.4g}", *errors])


def print_results(title: str, records: dict[str, dict[str, Any]]) -> None:
    """A table of finished training runs, one a row."""
    results = [record["result"] for record in records.values()]
    parts = [p for p in PARTS if any(f"{p}_error" in result for result in results)]
    table = Table(title=escape(title), title_justify="left")
    table.add_column("run")
    for heading in (*(f"{p} error" for p in parts), "active units", "parameters", "seconds"):
        table.add_column(heading, justify="right")
    for name, result in zip(records, results, strict=True):
        table.add_row(
            escape(name),
            *(_percent(result.get(f"{p}_error")) for p in parts),
            "-".join(map(str, result["active_units"])) or "none",
            f"{result['parameters']:,}",
            f"{result['seconds']:.1f}",
        )
    Console(width=None if Console().is_terminal else 100).print(table)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}%"
