"""Show a run matrix while it runs: a live table on a terminal, else a line for each run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from paper.matrix.matrix import Event, Matrix
from paper.matrix.run import FAILED, Run
from paper.matrix.workers import Ended, Progress
from zeroone.training.text_progress import say


@contextmanager
def live_table(
    matrix: Matrix, n_planned: int, *, quiet: bool = False
) -> Iterator[Callable[[Event], None]]:
    """Yield a function that shows the events of a matrix; it shows nothing if ``quiet``."""
    console = Console(stderr=True)
    if quiet:
        yield lambda _event: None
    elif console.is_terminal:
        running: dict[Run, Progress] = {}
        with Live(_table(matrix, running), console=console, refresh_per_second=4) as live:

            def refresh(event: Event) -> None:
                if isinstance(event, Progress):
                    running[event.task] = event
                else:
                    running.pop(event.task, None)
                live.update(_table(matrix, running))

            yield refresh
    else:
        ended = 0

        def line(event: Event) -> None:
            nonlocal ended
            if isinstance(event, Ended):
                ended += 1
                outcome = _outcome(matrix.records[event.task])
                say(f"{ended}/{n_planned} {event.task} ({event.seconds:.0f} s): {outcome}")

        yield line


def _outcome(record: dict[str, Any]) -> str:
    if record["status"] == FAILED:
        return f"failed: {record['reason']}"
    part = "test" if "test_error" in record["result"] else "train"
    return f"{part} error {100 * record['result'][f'{part}_error']:.2f}%"


def _table(matrix: Matrix, running: dict[Run, Progress]) -> Table:
    """Arrange methods in rows, data and architectures in columns."""
    groups: dict[tuple[str, str], dict[str, list[Run]]] = {}
    for run in matrix.runs:
        groups.setdefault((run.data, run.architecture), {}).setdefault(run.method, []).append(run)
    done = sum(run in matrix.records for run in matrix.runs)
    table = Table(title=f"{done} of {len(matrix.runs)} runs", title_justify="left")
    table.add_column("method")
    for data, architecture in groups:
        table.add_column(escape(f"{data}\n{architecture}"), justify="right")
    for method in dict.fromkeys(run.method for run in matrix.runs):
        entries = [_entry(matrix, running, group.get(method, [])) for group in groups.values()]
        table.add_row(escape(method), *entries)
    return table


def _entry(matrix: Matrix, running: dict[Run, Progress], runs: list[Run]) -> str:
    """Sum up the repetitions: the mean error so far, failures, progress of those that run."""
    records = [matrix.records[run] for run in runs if run in matrix.records]
    results = [record["result"] for record in records if record["status"] != FAILED]
    errors = [result.get("test_error", result.get("train_error")) for result in results]
    parts = [f"{100 * sum(errors) / len(errors):.2f}% ({len(errors)})"] if errors else []
    if failed := len(records) - len(errors):
        parts.append(f"[red]{failed} failed[/red]")
    for progress in (running[run] for run in runs if run in running):
        so_far = "" if progress.error is None else f" {100 * progress.error:.2f}%"
        parts.append(f"[dim]{100 * progress.done:.0f}%{so_far}[/dim]")
    return " ".join(parts) or "."
