"""A pool of processes, one for each task: its threads, memory and failures are its own.

A task that raises, runs out of memory or is killed fails alone, with its reason.
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
    current_process,
    get_all_start_methods,
    get_context,
    parent_process,
    resource_tracker,
)
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from zeroone.training import Callback
from zeroone.utils.checks import InputError
from zeroone.utils.malloc import keep_freed_memory

# A forked child would inherit the parent's threads half-way; those of a server that has none, but
# has imported torch, start at once.
SERVED = "forkserver" in get_all_start_methods()
STARTS: Any = get_context("forkserver" if SERVED else "spawn")
# What a cell would import, besides itself, when it loads embedded data and makes an optimizer.
PRELOADED = ["paper.matrix.run", "sklearn.datasets", "torch._dynamo"]
REPORT_EVERY = 0.5  # seconds
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Work = Callable[[Any, list[Callback]], Any]


@dataclass(frozen=True)
class Progress:
    """How far a task has come."""

    task: Any
    done: float  # share
    error: float | None = None  # of the test or else the training part, so far


@dataclass(frozen=True)
class Ended:
    """A task's result, or why there is none."""

    task: Any
    seconds: float
    result: Any = None
    failure: str | None = None
    details: str = ""  # a traceback


class Reporter(Callback):
    """Sends the progress of training to the parent. If that is gone, so is the reason to go on."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.sent, self.total, self.error = pipe, 0.0, 1, None

    def on_start(self, done: int, total: int) -> None:  # noqa: ARG002, D102
        self.total = total

    def on_batch(self, iteration: int, done: int, total: int) -> None:  # noqa: D102
        self._send((iteration - 1 + done / total) / self.total)

    def on_iteration(self, entry: dict[str, Any], model: Any) -> None:  # noqa: ARG002, D102
        self.error = entry.get("test_error", entry["train_error"])
        self._send(entry["iteration"] / self.total)

    def _send(self, done: float) -> None:
        if time.monotonic() - self.sent < REPORT_EVERY:
            return
        self.sent = time.monotonic()
        _tell(self.pipe, "progress", (done, self.error))


def _tell(pipe: Connection, kind: str, content: Any) -> None:
    """Say it to the parent; if that listens no more, it is over, and there is nothing to say."""
    try:
        pipe.send((kind, content))
    except OSError:
        os._exit(1)


def _child(work: Work, task: Any, threads: int, pipe: Connection) -> None:
    """Run in a process of its own."""
    import torch

    threading.Thread(target=_end_with_parent, daemon=True).start()
    _tell(pipe, "started", None)
    # A server that something else has started knows no such variables.
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    torch.set_num_threads(threads)
    keep_freed_memory()
    try:
        _tell(pipe, "result", work(task, [Reporter(pipe)]))
    except Exception as error:
        _tell(pipe, "failure", (_reason(error), traceback.format_exc()))


def _end_with_parent() -> None:
    """What nobody waits for need not be finished."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _reason(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return f"out of memory: {first}" if first else "out of memory"
    return first if isinstance(error, InputError) else f"{type(error).__name__}: {first}"


def _why_it_died(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        known = {s.value: s.name for s in signal.Signals}
        name = known.get(-exit_code, f"signal {-exit_code}")
        hint = ", perhaps for want of memory" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"
    return f"its process ended with exit code {exit_code} and no result"


class _Running:
    """A task and its process."""

    def __init__(self, work: Work, task: Any, threads: int) -> None:
        self.task, self.began, self.started = task, time.monotonic(), False
        self.pipe, theirs = STARTS.Pipe(duplex=False)
        arguments = (work, task, threads, theirs)
        self.process: BaseProcess = STARTS.Process(target=_child, args=arguments, daemon=True)
        with _thread_variables(threads), _deaf_to_interrupts():
            self.process.start()
        theirs.close()

    def receive(self) -> Progress | Ended | None:
        """The next thing that it says (None for its start); its end, if it says nothing more."""
        try:
            kind, content = self.pipe.recv()
        except (EOFError, OSError):  # OSError: it died in the middle of a sentence
            self.process.join()
            if not self.started and self.process.exitcode == 1:
                raise InputError(
                    "a process for a cell ended before it began; a script that runs matrices does "
                    "so under if __name__ == '__main__':, since the processes import it."
                ) from None
            return self._ended(failure=_why_it_died(self.process.exitcode))
        if kind == "started":
            self.started = True
            return None
        if kind == "progress":
            return Progress(self.task, *content)
        self.process.join()
        if kind == "result":
            return self._ended(result=content)
        return self._ended(failure=content[0], details=content[1])

    def _ended(self, **how: Any) -> Ended:
        self.pipe.close()
        return Ended(self.task, time.monotonic() - self.began, **how)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """A process starts deaf if its parent is: Ctrl-C reaches all of them, the parent decides.

    The signal is blocked, not ignored, and one that another thread takes is put off: what comes
    meanwhile is heard afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Ctrl-C matters in the main thread only
        return
    resource_tracker.ensure_running()  # its start would end our blocking
    heard: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)  # what has waited is heard here
        signal.signal(signal.SIGINT, handler)
        if heard:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _thread_variables(threads: int) -> Iterator[None]:
    """Libraries read them when a process (or the server of all) starts."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run_tasks(
    work: Work, tasks: Iterable[Any], *, jobs: int, threads: int
) -> Generator[Progress | Ended]:
    """Run ``work(task, callbacks)`` for every task, ``jobs`` at a time; yields what happens.

    Leaving the loop early (an exception, Ctrl-C) ends the processes.
    """
    if getattr(current_process(), "_inheriting", False):
        raise InputError("processes for cells begin under if __name__ == '__main__':.")
    if SERVED:
        STARTS.set_forkserver_preload(PRELOADED)
    waiting, running = deque(tasks), dict[Any, _Running]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                task = waiting.popleft()
                try:
                    new = _Running(work, task, threads)
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
        for left in running.values():
            left.process.kill()
            left.process.join()
            left.pipe.close()


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def fitting_jobs(jobs: int | None, threads: int) -> int:
    """As many as the cores carry with so many threads each, or fewer if fewer were asked for."""
    most = max(1, usable_cores() // threads)
    return most if jobs is None else min(jobs, most)
