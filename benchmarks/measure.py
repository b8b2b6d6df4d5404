"""Interleaved timing and the record format of all benchmarks."""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from zeroone.utils.allocator import keep_freed_memory
from zeroone.utils.records import new_record, write_record


def interleaved(tasks: dict[str, Callable[[], Any]], repeats: int) -> dict[str, dict[str, Any]]:
    """Run the tasks in turn, ``repeats`` times after a warm-up; return medians and all seconds."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for repeat in range(repeats + 1):
        for name, task in tasks.items():
            started = time.perf_counter()
            task()
            if repeat:
                seconds[name].append(time.perf_counter() - started)
    return {
        name: {"median": statistics.median(times), "all": times} for name, times in seconds.items()
    }


def parser(
    description: str, *, repeats: int | None = 5, threads: int | None = 2
) -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--json", type=Path, help="write the record here")
    if repeats is not None:
        arguments.add_argument("--repeats", type=int, default=repeats)
    if threads is not None:
        arguments.add_argument("--threads", type=int, default=threads)
    return arguments


def begin(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(getattr(options, "threads", 1))
    keep_freed_memory()
    hidden = ("json", "models", "resume", "only_failed")
    settings = {name: value for name, value in vars(options).items() if name not in hidden}
    return new_record(kind, settings, seed=0)


def finish(record: dict[str, Any], path: Path | None, *, quiet: bool = False) -> None:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_record(path, record)
        if not quiet:
            print(f"record: {path}")
