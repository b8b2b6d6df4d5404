"""Many threads and processes predict from one model: every answer exact, no memory lost.

python benchmarks/predict_many.py --json results/predict_many.json
python benchmarks/predict_many.py --seconds 2

Eight threads share one model. Four processes, forked before any engine has run, share another.
Each takes the engines in turn, on batches of several sizes, and compares every score with those
of a single call before: the float network's with its own, the integers' with numpy's. The memory of
a process may grow while engines are opened, and not after that.
"""

import argparse
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import begin, finish, parser
from zeroone.deploy import IntegerModel, quantise
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.network import Network

WIDTHS = (64, 256, 128, 10)
BATCHES = (1, 17, 64, 400)
OPENING = 60  # calls of every thread that open the engines, with batches of every size
MOST_GROWTH = 8 * 2**20  # bytes; allocators keep some for every thread

Score = Callable[[NDArray[Any]], NDArray[Any]]


def engines(network: Network, model: IntegerModel) -> dict[str, Score]:
    """Return the engines that are here; each opens what it needs on its first call."""
    found: dict[str, Score] = {
        "float": lambda X: network.scores(X).numpy(),
        "numpy": model.network.scores,
        "chosen": model.scores,
    }
    if model.has_session:
        found["onnxruntime"] = lambda X: model.session.run(["scores"], {"inputs": X})[0]
    if model.native is not None:
        found["kernels"] = model.native.scores
    return found


def memory() -> int:
    """Return the memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Task:
    """A model, batches, and the scores that they must have."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 256, (sum(BATCHES), WIDTHS[0])).astype(np.uint8)
        n_in, *hidden, n_classes = WIDTHS
        self.network = Network.build((n_in,), hidden, n_classes, SoftmaxCE(), seed=seed)
        self.model = IntegerModel(quantise(self.network, X), threads=1)
        ends = np.cumsum(BATCHES)
        self.batches = [X[end - n : end] for n, end in zip(BATCHES, ends, strict=True)]
        self.of_floats = [self.network.scores(batch).numpy() for batch in self.batches]
        self.of_integers = [self.model.network.scores(batch) for batch in self.batches]

    def repeat(
        self, first: int, stop: threading.Event, calls: Counter[str], wrong: Counter[str]
    ) -> None:
        """Predict until told to stop, beginning with engine number ``first``."""
        known = engines(self.network, self.model)
        names = list(known)
        for k in count(first):
            if stop.is_set():
                return
            name, i = names[k % len(names)], k // len(names) % len(BATCHES)
            wanted = (self.of_floats if name == "float" else self.of_integers)[i]
            wrong[name] += not np.array_equal(known[name](self.batches[i]), wanted)
            calls[name] += 1

    def run(self, threads: int, seconds: float) -> dict[str, Any]:
        """Predict in so many threads; count the calls, and watch the memory once all is open."""
        stop = threading.Event()
        counts = [(Counter[str](), Counter[str]()) for _ in range(threads)]
        running = [
            threading.Thread(target=self.repeat, args=(k, stop, *counts[k]), daemon=True)
            for k in range(threads)
        ]
        for thread in running:
            thread.start()
        while min(sum(calls.values()) for calls, _ in counts) < OPENING:
            if not all(thread.is_alive() for thread in running):
                sys.exit("a thread died")
            time.sleep(0.01)
        opened, began = memory(), time.monotonic()
        time.sleep(seconds)
        ended, alive = memory(), sum(thread.is_alive() for thread in running)
        stop.set()
        for thread in running:
            thread.join()
        calls, wrong = (sum(part, Counter[str]()) for part in zip(*counts, strict=True))
        return {
            "calls": dict(calls),
            "wrong": {name: wrong[name] for name in calls},
            "alive": alive,
            "seconds": time.monotonic() - began,
            "mb_opened": opened / 2**20,
            "mb_ended": ended / 2**20,
            "grew": ended - opened > MOST_GROWTH,
        }


def predict_many(threads: int, processes: int, seconds: float) -> dict[str, Any]:
    """Run threads in this process, and one thread in each of several others, at once."""
    shared, copied = Task(0), Task(1)
    context = multiprocessing.get_context("fork")
    found = context.Queue()
    children = [
        context.Process(target=lambda: found.put(copied.run(1, seconds))) for _ in range(processes)
    ]
    for child in children:
        child.start()
    ours = shared.run(threads, seconds)
    theirs = [found.get(timeout=seconds + 120) for _ in children]
    for child in children:
        child.join()
    everyone = [ours, *theirs]
    return {
        "threads": ours,
        "processes": theirs,
        "calls": sum(sum(part["calls"].values()) for part in everyone),
        "wrong": sum(sum(part["wrong"].values()) for part in everyone),
        "grew": any(part["grew"] for part in everyone),
        "died": threads + processes - sum(part["alive"] for part in everyone),
    }


def main() -> int:
    arguments: argparse.ArgumentParser = parser(__doc__ or "", repeats=None, threads=None)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--workers", type=int, default=8, help="threads that share a model")
    arguments.add_argument("--processes", type=int, default=4)
    options = arguments.parse_args()
    record = begin("predict-many", options)
    result = predict_many(options.workers, options.processes, options.seconds)
    record["result"] = result
    print(f"{result['calls']:,} calls, {result['wrong']:,} wrong")
    for part in (result["threads"], *result["processes"]):
        print(f"{part['mb_opened']:.1f} MB once opened, {part['mb_ended']:.1f} MB at the end")
    finish(record, options.json)
    return int(result["wrong"] > 0 or result["grew"] or result["died"] > 0)


if __name__ == "__main__":
    sys.exit(main())
