"""Feed damaged and hostile files to every reader; count what ends otherwise than it should.

    make fuzz                                                # 1,000,000 inputs, minutes
    python tests/fuzz/driver.py --inputs 20000 --readers npz,csv --seed 7

Each reader has a process of its own, which is started again if it dies. An input counts as a

- traceback: anything but success or an ``InputError``;
- hang: it takes more than 5 s;
- crash: the process dies;
- allocation: memory grows by more than 64 MB, or ten times the file if that is more.

Input k of a reader depends on the seed and k alone. Inputs that fail are kept in ``--failures``.
"""

import gc
import json
import mmap
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

import numpy as np  # noqa: E402

from benchmarks.measure import begin, finish, parser  # noqa: E402
from fuzz.targets import TARGETS, Target  # noqa: E402
from zeroone.utils.checks import InputError  # noqa: E402

LONGEST = 5.0  # seconds that an input may take
MEMORY, TIMES = 64 * 2**20, 10  # bytes that it may take, or so many times its size
ADDRESSES = 2**30  # bytes of addresses that a process may add
KEPT = 3  # inputs that are kept of each kind of failure
MEMORY_FILES = Path("/dev/shm")
# What a process shares with its parent: numbers, by their place.
INDEX, STARTED, ACCEPTED, REFUSED, SLOWEST, SLOWEST_INPUT, LARGEST = range(7)


def input_of(target: Target, reader: str, seed: int, index: int) -> bytes:
    """Make input number ``index``."""
    return target.make(Random(f"{seed} {reader} {index}"))


def peak_and_now() -> tuple[int, int]:
    """Return the largest and the present memory of this process, in bytes."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return tuple(int(fields[name].split()[0]) * 1024 for name in ("VmHWM", "VmRSS"))


def forget_the_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


@dataclass
class Worker:
    """The process of one reader; ``run`` is what the process does."""

    reader: str
    inputs: int
    seed: int
    folder: Path
    pid: int = 0
    failures: list[dict] = field(default_factory=list)
    began: float = 0.0

    def __post_init__(self) -> None:
        self.target = TARGETS[self.reader](self.folder)
        for seed in self.target.seeds:  # they are read, and import what readers import on demand
            self.target.path.write_bytes(seed)
            self.target.read()
        self.shared = np.frombuffer(mmap.mmap(-1, 8 * 7), np.float64)
        self.log = self.folder / "failures.jsonl"
        self.log.touch()

    def start(self) -> None:
        """Start, or go on after the input that ended the last process."""
        self.shared[STARTED] = time.monotonic()
        self.began = self.began or time.monotonic()
        self.pid = os.fork()
        if not self.pid:
            try:
                self.run()
            finally:
                os._exit(1)

    def run(self) -> None:
        """Read one input after the other; report failures in a file."""
        warnings.simplefilter("ignore")
        sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESSES,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        gc.freeze()  # else the collector's pauses count as time of an input
        for index in range(int(self.shared[INDEX]), self.inputs):
            data = input_of(self.target, self.reader, self.seed, index)
            self.target.path.write_bytes(data)
            self.shared[INDEX], self.shared[STARTED] = index, time.monotonic()
            self._read(index, len(data))
        self.shared[INDEX] = self.inputs
        os._exit(0)

    def _read(self, index: int, size: int) -> None:
        forget_the_peak()
        before = peak_and_now()[1]
        started = time.perf_counter()
        try:
            self.target.read()
            self.shared[ACCEPTED] += 1
        except InputError:
            self.shared[REFUSED] += 1
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            self._report(index, "traceback", f"{type(error).__name__} at {where}: {error}")
        seconds, grown = time.perf_counter() - started, peak_and_now()[0] - before
        if seconds > self.shared[SLOWEST]:
            self.shared[SLOWEST], self.shared[SLOWEST_INPUT] = seconds, index
        self.shared[LARGEST] = max(self.shared[LARGEST], grown)
        if grown > max(MEMORY, TIMES * size):
            self._report(index, "allocation", f"{grown / 2**20:.0f} MB for {size:,} bytes")
        if seconds > LONGEST:
            self._report(index, "hang", f"{seconds:.0f} s")

    def _report(self, index: int, kind: str, what: str) -> None:
        with self.log.open("a") as file:
            file.write(json.dumps({"input": index, "kind": kind, "what": what[:300]}) + "\n")

    def has_ended(self) -> bool:
        """Look after the process; start it again if it died."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        index = int(self.shared[INDEX])
        if not pid:
            if time.monotonic() - self.shared[STARTED] <= 2 * LONGEST:
                return False
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._report(index, "hang", f"more than {2 * LONGEST:.0f} s")
        elif index == self.inputs:
            return True
        else:
            code = os.waitstatus_to_exitcode(status)
            self._report(index, "crash", f"the process ended with {code}")
        self.shared[INDEX] = index + 1
        if index + 1 < self.inputs:
            self.start()
            return False
        return True

    def result(self, kept_in: Path) -> dict:
        """Sum up, and keep inputs of each kind of failure."""
        failures = [json.loads(line) for line in self.log.read_text().splitlines()]
        kinds = Counter(failure["kind"] for failure in failures)
        seen: Counter[tuple[str, str]] = Counter()
        examples = []
        for failure in failures:
            key = failure["kind"], failure["what"].partition(":")[0]
            seen[key] += 1
            if seen[key] <= KEPT:
                examples.append(failure)
                kept_in.mkdir(parents=True, exist_ok=True)
                data = input_of(self.target, self.reader, self.seed, failure["input"])
                (kept_in / f"{self.reader}-{failure['input']}-{failure['kind']}").write_bytes(data)
        return {
            "inputs": self.inputs,
            "accepted": int(self.shared[ACCEPTED]),
            "refused": int(self.shared[REFUSED]),
            "failures": {
                kind: kinds[kind] for kind in ("traceback", "hang", "crash", "allocation")
            },
            "examples": examples,
            "seconds": time.monotonic() - self.began,
            "slowest_ms": 1e3 * self.shared[SLOWEST],
            "slowest_input": int(self.shared[SLOWEST_INPUT]),
            "largest_mb": self.shared[LARGEST] / 2**20,
        }


def fuzz(readers: dict[str, int], seed: int, jobs: int, kept_in: Path) -> dict[str, dict]:
    """Give each reader so many inputs, ``jobs`` readers at a time."""
    results: dict[str, dict] = {}
    waiting, running = list(readers), list[tuple[Worker, tempfile.TemporaryDirectory]]()
    where = MEMORY_FILES if MEMORY_FILES.is_dir() else None
    while waiting or running:
        while waiting and len(running) < jobs:
            reader = waiting.pop(0)
            folder = tempfile.TemporaryDirectory(dir=where, prefix="fuzz-")
            worker = Worker(reader, readers[reader], seed, Path(folder.name))
            worker.start()
            running.append((worker, folder))
        for worker, folder in [pair for pair in running if pair[0].has_ended()]:
            results[worker.reader] = worker.result(kept_in)
            folder.cleanup()
            running = [pair for pair in running if pair[0] is not worker]
            print(describe(worker.reader, results[worker.reader]), flush=True)
        time.sleep(0.02)
    return {reader: results[reader] for reader in readers}


def describe(reader: str, result: dict) -> str:
    failures = ", ".join(f"{n:,} {kind}s" for kind, n in result["failures"].items() if n)
    return (
        f"{reader:14} {result['inputs']:>9,} inputs, {result['accepted']:>8,} accepted, "
        f"{result['refused']:>8,} refused, {failures or 'no failures'}; "
        f"{1e3 * result['seconds'] / result['inputs']:.2f} ms each, slowest "
        f"{result['slowest_ms']:.0f} ms, {result['largest_mb']:.0f} MB"
    )


def main() -> int:
    arguments = parser("Fuzz every reader of files.", repeats=None, threads=None)
    arguments.add_argument("--inputs", type=int, default=1_000_000, help="over all readers")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--readers", default=",".join(TARGETS))
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--failures", default="build/fuzz", help="where inputs that fail go")
    options = arguments.parse_args()
    names = options.readers.split(",")
    record = begin("fuzz", options) | {"seed": options.seed}
    each, rest = divmod(options.inputs, len(names))
    readers = {name: each + (k < rest) for k, name in enumerate(names)}
    record["result"] = fuzz(readers, options.seed, options.jobs, Path(options.failures))
    failures = sum(sum(r["failures"].values()) for r in record["result"].values())
    record["failures"] = failures
    finish(record, options.json)
    print(f"{options.inputs:,} inputs, {failures:,} failures")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
