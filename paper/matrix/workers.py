"""Worker processes, one for each task, with their own threads, memory and failures.

A task that raises, runs out of memory or is killed fails alone, with its reason. (The standard
library's ``ProcessPoolExecutor`` would fail all tasks with it, and keep the exit code to itself.)
"""

import os
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import (
    connection,
    get_all_start_methods,
    get_context,
    parent_process,
    resource_tracker,
)
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from zeroone.training import Callback
from zeroone.utils.allocator import keep_freed_memory
from zeroone.utils.checks import InputError

# Forking this process would copy its threads half-way. A server that has imported torch and has no
# threads starts processes at once.
SERVED = "forkserver" in get_all_start_methods()
STARTS: Any = get_context("forkserver" if SERVED else "spawn")
# All that a run imports when it loads embedded data and makes an optimizer.
PRELOADED = ["paper.matrix.run", "sklearn.datasets", "torch._dynamo"]
REPORT_EVERY = 0.5  # seconds
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Work = Callable[[Any, list[Callback]], Any]


@dataclass(frozen=True)
class Progress:
    """How far a task has come."""

    task: Any
    done: float  # share
    error: float | None = None  # of the test part, or of the training part without one


@dataclass(frozen=True)
class Ended:
    """The result of a task, or the reason why there is none."""

    task: Any
    seconds: float
    result: Any = None
    failure: str | None = None
    details: str = ""  # a traceback


class Reporter(Callback):
    """Sends the progress of a task to the parent process."""

    def __init__(self, task: Any, pipe: Connection) -> None:
        self.task, self.pipe, self.sent, self.total, self.error = task, pipe, 0.0, 1, None

    def on_start(self, done: int, total: int) -> None:  # noqa: ARG002, D102
        self.total = total

    def on_batch(self, iteration: int, done: int, total: int) -> None:  # noqa: D102
        self._send((iteration - 1 + done / total) / self.total)

    def on_iteration(self, entry: dict[str, Any], model: Any) -> None:  # noqa: ARG002, D102
        self.error = entry.get("test_error", entry["train_error"])
        self._send(entry["iteration"] / self.total)

    def _send(self, done: float) -> None:
        if time.monotonic() - self.sent >= REPORT_EVERY:
            self.sent = time.monotonic()
            _tell(self.pipe, Progress(self.task, done, self.error))


def _tell(pipe: Connection, event: Any) -> None:
    """Send an event to the parent process; without a listener, end this process silently."""
    try:
        pipe.send(event)
    except OSError:
        os._exit(1)


def _child(work: Work, task: Any, threads: int, pipe: Connection) -> None:
    """Run a task, in a process of its own."""
    import torch

    began = time.monotonic()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _tell(pipe, None)  # it has begun
    # Other code may have started the server, without these variables.
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    torch.set_num_threads(threads)
    keep_freed_memory()
    how: dict[str, Any]
    try:
        how = {"result": work(task, [Reporter(task, pipe)])}
    except Exception as error:
        how = {"failure": _reason(error), "details": traceback.format_exc()}
    _tell(pipe, Ended(task, time.monotonic() - began, **how))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _reason(error: Exception) -> str:
    """Say in one line why a task raised."""
    first = (str(error).splitlines() or [""])[0]
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return f"out of memory: {first}" if first else "out of memory"
    return first if isinstance(error, InputError) else f"{type(error).__name__}: {first}"


def _why_it_died(exit_code: int | None) -> str:
    """Say in one line why a process ended without a result."""
    if exit_code is not None and exit_code < 0:
        known = {s.value: s.name for s in signal.Signals}
        name = known.get(-exit_code, f"signal {-exit_code}")
        hint = ", perhaps for want of memory" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"
    return f"its process ended with exit code {exit_code} and no result"


class _Worker:
    """A task and its process."""

    def __init__(self, work: Work, task: Any, threads: int) -> None:
        self.task, self.began, self.started = task, time.monotonic(), False
        self.pipe, theirs = STARTS.Pipe(duplex=False)
        arguments = (work, task, threads, theirs)
        self.process: BaseProcess = STARTS.Process(target=_child, args=arguments, daemon=True)
        with _starting(threads):
            self.process.start()
        theirs.close()

    def receive(self) -> Progress | Ended | None:
        """Return the next event, None for its start; its end, if it died without a word."""
        event: Progress | Ended | None
        try:
            event = self.pipe.recv()
        except (EOFError, OSError):  # OSError: it died while it sent an event
            self.process.join()
            if not self.started and self.process.exitcode == 1:
                raise InputError(
                    "a process for a run ended before it began; a script that runs matrices does "
                    "so under if __name__ == '__main__':, since the processes import it."
                ) from None
            seconds = time.monotonic() - self.began
            event = Ended(self.task, seconds, failure=_why_it_died(self.process.exitcode))
        self.started = True
        if isinstance(event, Ended):
            self.process.join()
            self.pipe.close()
        return event

    def kill(self) -> None:
        """End the process now."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


@contextmanager
def _starting(threads: int) -> Iterator[None]:
    """Set what a new process (or the server of all) inherits: its threads, and no Ctrl-C.

    Ctrl-C reaches all processes, and the parent decides. The signal is blocked rather than ignored,
    so that the parent gets it afterwards.
    """
    before = dict(os.environ)
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    resource_tracker.ensure_running()  # its start would unblock the signal
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        for name in THREAD_VARIABLES:
            del os.environ[name]
        os.environ.update(before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def run_tasks(
    work: Work, tasks: Iterable[Any], jobs: int, threads: int
) -> Generator[Progress | Ended]:
    """Run ``work(task, callbacks)`` for every task, ``jobs`` at a time; yield what happens.

    Leaving the loop early (an exception, Ctrl-C) ends the processes.
    """
    if SERVED:
        STARTS.set_forkserver_preload(PRELOADED)
    waiting, running = deque(tasks), dict[Any, _Worker]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                task = waiting.popleft()
                try:
                    new = _Worker(work, task, threads)
                except OSError as error:
                    yield Ended(task, 0.0, failure=f"no process for it: {error.strerror}")
                else:
                    running[new.pipe] = new
            for pipe in connection.wait(list(running)) if running else ():
                news = running[pipe].receive()
                if isinstance(news, Ended):
                    del running[pipe]
                if news is not None:
                    yield news
    finally:
        for worker in running.values():
            worker.kill()


def usable_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def fitting_jobs(jobs: int | None, threads: int) -> int:
    """The number of jobs that fit the cores at so many threads each, at most ``jobs``."""
    most = max(1, usable_cores() // threads)
    return most if jobs is None else min(jobs, most)
