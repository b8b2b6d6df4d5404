"""Data larger than memory: one epoch on shards, and the memory of each rank.

    python benchmarks/larger.py --gigabytes 8 --json results/larger.json

Writes random bytes, whose label is linear in some of them, piece by piece, and trains a small
network on the command line, with one rank and with two. Memory is the peak resident memory of a
process, including mapped files (VmHWM).
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import begin, finish, parser
from zeroone.data.shards import write_shards

FEATURES, CLASSES, ROWS = 1024, 10, 2**18  # rows of a shard
BATCH = 4096


def pieces(n_shards: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    rng = np.random.default_rng(0)
    W = rng.normal(size=(16, CLASSES))
    for _ in range(n_shards):
        X = rng.integers(0, 256, (ROWS, FEATURES), dtype=np.uint8)
        yield X, ((X[:, :16] - 127.5) @ W).argmax(axis=1)


def peaks(launcher: int) -> dict[int, int]:
    """Return the peak resident memory of each rank so far, in bytes."""
    found = {}
    for pid in map(int, Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()):
        try:
            said = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        except OSError:
            continue
        if said:
            found[pid] = 1024 * int(said.group(1))
    return found


def measure(ranks: int, data: Path, out: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["-m", "zeroone", "train", "--data", str(data), "--hidden", "32,32", "--quiet"]
    command += ["--batch", str(BATCH), "--epochs", "1", "--threads", "1", "--out", str(out)]
    begun, most = time.perf_counter(), {}
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    training = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    while training.poll() is None:
        for pid, peak in peaks(training.pid).items():
            most[pid] = max(peak, most.get(pid, 0))
        time.sleep(0.2)
    if training.returncode:
        sys.exit("the training failed")
    record = json.loads((out / "record.json").read_text())
    return {
        "ranks": ranks,
        "resident": sorted(most.values()),
        "seconds": time.perf_counter() - begun,
        "samples": record["data"]["samples"]["train"],
        "error": record["result"]["train_error"],
    }


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=1, threads=1)
    arguments.add_argument("--gigabytes", type=float, default=8.0)
    arguments.add_argument("--ranks", default="1,2")
    options = arguments.parse_args()
    record = begin("larger", options) | {"rows": []}
    n_shards = max(1, round(options.gigabytes * 1e9 / (ROWS * FEATURES)))
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "shards"
        write_shards(pieces(n_shards), data)
        record["bytes"] = sum(path.stat().st_size for path in data.iterdir())
        print(f"{record['bytes'] / 1e9:.2f} GB in {n_shards} shards", flush=True)
        for ranks in map(int, options.ranks.split(",")):
            row = measure(ranks, data, Path(folder) / f"run-{ranks}")
            record["rows"].append(row)
            print(row, flush=True)
    finish(record, options.json)


if __name__ == "__main__":
    main()
