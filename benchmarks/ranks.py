"""Several ranks against one: seconds per epoch, and their traffic.

    python benchmarks/ranks.py --json results/ranks.json

Each measurement trains on MNIST (784-1000-1000-10) on the command line, under torchrun with one
thread per rank; one rank and several take turns. The first epoch warms up, the second counts.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.measure import begin, finish, parser

WIDTHS = (784, 1000, 1000, 10)


def bytes_of_gradients(widths: tuple[int, ...] = WIDTHS) -> int:
    """Return the bytes that a rank sends per batch: the gradients of all weights and biases."""
    return 4 * sum(n_out * (n_in + 1) for n_in, n_out in pairwise(widths))


def sent() -> int:
    """Return the bytes that the loopback device has sent so far."""
    return int(Path("/sys/class/net/lo/statistics/tx_bytes").read_text())


def measure(ranks: int, batch: int, folder: Path) -> dict[str, Any]:
    out = folder / f"{ranks}-{batch}"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["-m", "zeroone", "train", "--data", "mnist", "--hidden", "1000,1000", "--quiet"]
    command += ["--batch", str(batch), "--epochs", "2", "--threads", "1"]
    command += ["--out", str(out), "--overwrite"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    before = sent()
    subprocess.run(command, check=True, env=environment, capture_output=True)
    carried = sent() - before
    record = json.loads((out / "record.json").read_text())
    batches = record["plan"]["batches"] * record["plan"]["epochs"]
    return {
        "ranks": ranks,
        "batch": batch,
        "seconds": record["history"][-1]["seconds"],
        "gradients": batches * bytes_of_gradients() if ranks > 1 else 0,
        "carried": carried,
        "error": record["result"]["test_error"],
    }


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=3, threads=1)
    arguments.add_argument("--ranks", default="1,2", help="numbers of ranks that take turns")
    arguments.add_argument("--batches", default="2048,256")
    options = arguments.parse_args()
    record = begin("ranks", options)
    counts = [int(n) for n in options.ranks.split(",")]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        for batch in map(int, options.batches.split(",")):
            for _ in range(options.repeats):
                for ranks in counts:
                    rows.append(measure(ranks, batch, Path(name)))
                    print(rows[-1], flush=True)
            taken = {
                n: [r["seconds"] for r in rows if (r["batch"], r["ranks"]) == (batch, n)]
                for n in counts
            }
            for ranks in counts[1:]:
                ratios = [a / b for a, b in zip(taken[counts[0]], taken[ranks], strict=True)]
                ratio = statistics.median(ratios)
                print(f"batch {batch}: {ranks} ranks are {ratio:.2f} times as fast")
                record.setdefault("ratios", []).append(
                    {"batch": batch, "ranks": ranks, "each": ratios, "median": ratio}
                )
    finish(record | {"rows": rows}, options.json)


if __name__ == "__main__":
    main()
