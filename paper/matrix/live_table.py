"""What a person sees of a run matrix while it runs: a live table, or a line a cell."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from paper.matrix.matrix import Event, Matrix
from paper.matrix.run import FAILED, Cell
from paper.matrix.workers import Ended, Progress
from zeroone.training.text_progress import say


@contextmanager
def live_table(
    matrix: Matrix, n_planned: int, *, quiet: bool = False
) -> Iterator[Callable[[Event], None]]:
    """What watches a matrix: a live table on a terminal, plain lines elsewhere, or nothing."""
    console = Console(stderr=True)
    if quiet:
        yield lambda _event: None
    elif console.is_terminal:
        running: dict[Cell, Progress] = {}
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
    result = record["result"]
    part = "test" if "test_error" in result else "train"
    return f"{part} error {100 * result[f'{part}_error']:.2f}%"


def _table(matrix: Matrix, running: dict[Cell, Progress]) -> Table:
    """Methods down, data and architectures across; finished cells, running ones, failures."""
    columns = list(dict.fromkeys((cell.data, cell.architecture) for cell in matrix.cells))
    done = sum(cell in matrix.records for cell in matrix.cells)
    table = Table(title=f"{done} of {len(matrix.cells)} cells", title_justify="left")
    table.add_column("method")
    for data, architecture in columns:
        table.add_column(escape(f"{data}\n{architecture}"), justify="right")
    for method in dict.fromkeys(cell.method for cell in matrix.cells):
        groups = [
            [c for c in matrix.cells if (c.data, c.architecture, c.method) == (*column, method)]
            for column in columns
        ]
        table.add_row(escape(method), *(_entry(matrix, running, group) for group in groups))
    return table


def _entry(matrix: Matrix, running: dict[Cell, Progress], cells: list[Cell]) -> str:
    records = [matrix.records[cell] for cell in cells if cell in matrix.records]
    errors = [
        r["result"].get("test_error", r["result"].get("train_error"))
        for r in records
        if r["status"] != FAILED
    ]
    parts = [f"{100 * sum(errors) / len(errors):.2f}% ({len(errors)})"] if errors else []
    failed = len(records) - len(errors)
    parts += [f"[red]{failed} failed[/red]"] if failed else []
    for cell in cells:
        if cell in running:
            error = running[cell].error
            so_far = "" if error is None else f" {100 * error:.2f}%"
            parts.append(f"[dim]{100 * running[cell].done:.0f}%{so_far}[/dim]")
    return " ".join(parts) or "."
