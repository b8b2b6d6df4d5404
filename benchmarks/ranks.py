"""Several ranks against one: seconds an epoch, what the sums cost, and the traffic they make.

    python benchmarks/ranks.py --json results/ranks.json

Each measurement is a training of MNIST (784-1000-1000-10) by the command line, under torchrun with
one thread a rank; one rank and several take turns. The first epoch warms up, the second counts.
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

from measure import begin, finish, parser

WIDTHS = (784, 1000, 1000, 10)
OBSERVED = 10  # batches: so often second moments travel, and in each of the first ten


def bytes_a_batch(
    ranks: int, batch: float, through: str, widths: tuple[int, ...] = WIDTHS
) -> tuple[int, int]:
    """What a rank hands over in a batch, and what it adds where second moments are observed.

    Sums of the W blocks, n_out (n_in + 1) numbers, and of their solutions the rows that this rank
    has multiplied (where there are at least as many samples as units above); two for each hidden
    unit, whose spread they give; two for each hidden layer, which set its flips. Moments travel as
    triangles, and through memory as squares.
    """
    layers = list(pairwise(widths))
    sums = sum(n_out * (n_in + 1) for n_in, n_out in layers)
    sums += sum(-(-n_out // ranks) * n_in for n_in, n_out in layers if n_out <= batch)
    spreads, flips = 2 * sum(widths[1:-1]), 2 * (len(layers) - 1)
    moments = sum(
        (n_in + 1) ** 2 if through == "memory" else (n_in + 1) * (n_in + 2) // 2
        for n_in, _ in layers
    )
    return 4 * (sums + spreads + flips), 4 * moments


def sent() -> int:
    """Bytes that the loopback device has carried so far."""
    return int(Path("/sys/class/net/lo/statistics/tx_bytes").read_text())


def measure(ranks: int, batch: int, words: list[str], folder: Path) -> dict[str, Any]:
    out = folder / f"{ranks}-{batch}"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["-m", "zeroone", "train", "--data", "mnist", "--hidden", "1000,1000", "--quiet"]
    command += ["--batch", str(batch), "--epochs", "2", "--threads", "1", "--out", str(out)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    before = sent()
    subprocess.run([*command, *words], check=True, env=environment, capture_output=True)
    carried = sent() - before
    record = json.loads((out / "record.json").read_text())
    (out / "record.json").unlink()
    batches = record["plan"]["batches"] * record["plan"]["epochs"]
    said = {"bytes_sent": 0, "bytes_shared": 0, "waited": 0.0} | record["ranks"]
    through = "memory" if said["bytes_shared"] else "group"
    each, moments = bytes_a_batch(ranks, 60_000 / record["plan"]["batches"], through)
    observed = min(batches, OBSERVED) + len(range(OBSERVED, batches, OBSERVED))
    return {
        "ranks": ranks,
        "batch": batch,
        "seconds": record["history"][-1]["seconds"],
        "waited": said["waited"] / 2,  # an epoch
        "bytes_sent": said["bytes_sent"],
        "bytes_shared": said["bytes_shared"],
        "expected": (batches * each + observed * moments) if ranks > 1 else 0,
        "carried": carried,
        "error": record["result"]["test_error"],
    }


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=3, threads=1)
    arguments.add_argument("--ranks", default="1,2", help="numbers of ranks that take turns")
    arguments.add_argument("--batches", default="2048,256")
    arguments.add_argument("--half-sums", action="store_true")
    arguments.add_argument("--group", action="store_true", help="sums through the group, always")
    options = arguments.parse_args()
    record = begin("ranks", options)
    words = ["--half-sums"] if options.half_sums else []
    if options.group:
        os.environ["ZEROONE_SHARED_MEMORY"] = "0"
    counts = [int(n) for n in options.ranks.split(",")]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        for batch in map(int, options.batches.split(",")):
            for _ in range(options.repeats):
                for ranks in counts:
                    rows.append(measure(ranks, batch, words, Path(name)))
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
