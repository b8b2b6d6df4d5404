"""The cost of an epoch of a 0/1 convolutional network: stochastic BCD against STE + Adam.

conv5x5(32)-pool-step-conv5x5(64)-pool-step-500-step-10 on random bytes in the shape of MNIST, or
another network without a backbone (``--architecture``) on other images (``--image``). ``--deep``
compares as deep networks are trained: in bfloat16, with momentum, against STE + BatchNorm + Adam.
Epochs of both take turns, on the same batches. Peak memory is measured in a separate process for
each: the peak of the process, and what training adds to it.
"""

import math
import statistics
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.bench_train import BATCH, OURS, in_turns, make_learners, random_images
from benchmarks.measure import begin, finish, parser
from paper.matrix.architectures import Architecture
from zeroone.utils.allocator import keep_freed_memory

STE, STE_BN = "STE + Adam", "STE + BatchNorm + Adam"


def learner(name, part, image, hidden, deep):
    how = {"bf16": True, "momentum": 0.9} if deep else {}
    return make_learners(part, hidden, image, [name], **how)[name]


def peak_bytes():
    """Return the peak memory of this process; ru_maxrss would include its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def _peak(name, n, image, hidden, deep, threads, pipe):
    torch.set_num_threads(threads)
    keep_freed_memory()
    part = random_images(n, math.prod(image))
    before = peak_bytes()
    learner(name, part, image, hidden, deep).iterate(1)
    pipe.send({"before": before, "peak": peak_bytes()})


def peak_memory(name, *arguments):
    """Measure a fresh process: its bytes with the data loaded, and its peak during an epoch."""
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_peak, args=(name, *arguments, theirs))
    process.start()
    measured = ours.recv()
    process.join()
    return measured


def main():
    arguments = parser(__doc__.splitlines()[0], threads=1)
    arguments.add_argument("--samples", type=int, default=6_400)
    arguments.add_argument("--image", default="1,28,28")
    arguments.add_argument("--architecture", default="lenet")
    arguments.add_argument(
        "--deep", action="store_true", help="bfloat16, momentum 0.9, against STE + BatchNorm"
    )
    options = arguments.parse_args()
    record = begin("conv_cost", options)
    image = tuple(int(side) for side in options.image.split(","))
    architecture = Architecture.parse(options.architecture)
    if architecture.backbone:
        arguments.error(f"{options.architecture} has a backbone")
    hidden = architecture.hidden
    theirs = STE_BN if options.deep else STE
    part = random_images(options.samples, math.prod(image))
    subjects = {name: learner(name, part, image, hidden, options.deep) for name in (OURS, theirs)}
    times = in_turns(subjects, options.repeats)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    ratio = medians[OURS] / medians[theirs]
    print(f"an epoch of {options.samples:,} samples: {medians}, ratio {ratio:.2f}")
    memory = {
        name: peak_memory(name, 5 * BATCH, image, hidden, options.deep, options.threads)
        for name in subjects
    }
    added = {name: m["peak"] - m["before"] for name, m in memory.items()}
    whole = memory[OURS]["peak"] / memory[theirs]["peak"]
    print(
        f"peak memory: {memory}; ratio {whole:.2f}, of what training adds "
        f"{added[OURS] / added[theirs]:.2f}"
    )
    record["result"] = {
        "seconds": times,
        "medians": medians,
        "ratio": ratio,
        "memory": memory,
        "memory_ratio": whole,
        "added_memory_ratio": added[OURS] / added[theirs],
    }
    finish(record, options.json)


if __name__ == "__main__":
    main()
