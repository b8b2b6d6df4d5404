"""The cost of an epoch of stochastic BCD against 0/1 + STE + Adam on the same cores.

Epochs of both take turns, on the same batches with the same dropout. The data are random bytes in
the shape of MNIST: seconds do not depend on what a network learns. Adam is torch's fused one, its
fastest. Also measures seconds for 15,000, 30,000 and 60,000 samples, and resident memory after
every epoch.
"""

import resource
import statistics
from pathlib import Path

import torch

from benchmarks.bench_train import (
    OURS,
    compare_epochs,
    in_turns,
    make_learners,
    random_images,
)
from benchmarks.measure import begin, finish, parser


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def grow(sizes, width, repeats):
    """Return the seconds per epoch for each number of samples."""
    subjects = {str(n): make_learners(random_images(n), (width, width))[OURS] for n in sizes}
    return {n: statistics.median(taken) for n, taken in in_turns(subjects, repeats).items()}


def memory(width, epochs):
    """Return the resident bytes after each epoch of one run."""
    learner = make_learners(random_images(5_000), (width, width))[OURS]
    sizes = []
    for epoch in range(1, epochs + 1):
        learner.iterate(epoch)
        sizes.append(resident_bytes())
    return sizes


def main():
    arguments = parser(__doc__.splitlines()[0])
    arguments.add_argument("--samples", type=int, default=12_800)
    arguments.add_argument("--memory-epochs", type=int, default=12)
    options = arguments.parse_args()
    record = begin("train_cost", options)
    result = {"widths": {}}
    part = random_images(options.samples)
    for width in (1000, 2000):
        for threads in (1, 2):
            torch.set_num_threads(threads)
            measured = compare_epochs(part, (width, width), options.repeats)
            result["widths"][f"{width}, {threads} threads"] = measured
            listed = ", ".join(f"{k} {v:.2f} s" for k, v in measured["medians"].items())
            print(f"width {width}, {threads} threads: {listed}; ratio {measured['ratio']:.2f}")
    torch.set_num_threads(options.threads)
    result["samples"] = grow((15_000, 30_000, 60_000), 1000, repeats=2)
    print("seconds per epoch: " + ", ".join(f"{n}: {s:.1f}" for n, s in result["samples"].items()))
    result["resident_bytes"] = memory(1000, options.memory_epochs)
    growth = result["resident_bytes"][-1] / result["resident_bytes"][1]
    print(f"resident memory after epoch {options.memory_epochs} / after epoch 2: {growth:.3f}")
    record["result"] = result
    finish(record, options.json)


if __name__ == "__main__":
    main()
