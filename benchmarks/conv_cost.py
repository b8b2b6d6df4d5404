"""The cost of an epoch of a 0/1 convolutional network: stochastic BCD against STE + Adam.

conv5x5(32)-pool-step-conv5x5(64)-pool-step-500-step-10 on random bytes in the shape of MNIST (or
another network on other images: ``--image``, ``--hidden``). Epochs of both take turns, on the same
batches. Peak memory is measured in a separate process for each: the peak of the process, and what
training adds to it.
"""

import math
import statistics
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.bench_train import BATCH, OURS, in_turns, make_learners, random_images
from benchmarks.measure import begin, finish, parser

STE = "STE + Adam"


def learner(name, part, image, hidden):
    return make_learners(part, hidden, image, [name])[name]


def peak_bytes():
    """Return the peak memory of this process; ru_maxrss would include its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def _peak(name, n, image, hidden, threads, pipe):
    torch.set_num_threads(threads)
    part = random_images(n, math.prod(image))
    before = peak_bytes()
    learner(name, part, image, hidden).iterate(1)
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
    arguments.add_argument("--hidden", default="conv5x5:32:max2,conv5x5:64:max2,500")
    options = arguments.parse_args()
    record = begin("conv_cost", options)
    image = tuple(int(side) for side in options.image.split(","))
    hidden = [int(x) if x.isdigit() else x for x in options.hidden.split(",")]
    part = random_images(options.samples, math.prod(image))
    subjects = {name: learner(name, part, image, hidden) for name in (OURS, STE)}
    times = in_turns(subjects, options.repeats)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    ratio = medians[OURS] / medians[STE]
    print(f"an epoch of {options.samples:,} samples: {medians}, ratio {ratio:.2f}")
    memory = {
        name: peak_memory(name, 5 * BATCH, image, hidden, options.threads) for name in subjects
    }
    added = {name: m["peak"] - m["before"] for name, m in memory.items()}
    whole = memory[OURS]["peak"] / memory[STE]["peak"]
    print(
        f"peak memory: {memory}; ratio {whole:.2f}, of what training adds "
        f"{added[OURS] / added[STE]:.2f}"
    )
    record["result"] = {
        "seconds": times,
        "medians": medians,
        "ratio": ratio,
        "memory": memory,
        "memory_ratio": whole,
        "added_memory_ratio": added[OURS] / added[STE],
    }
    finish(record, options.json)


if __name__ == "__main__":
    main()
