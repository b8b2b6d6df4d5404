"""What an epoch of stochastic BCD costs, against 0/1 + STE + Adam on the same cores in one run.

Epochs of both take turns, from the same batches with the same dropout, on random bytes in the shape
of MNIST: seconds do not depend on what is learned. Adam is torch's fused one, its fastest. Also:
seconds for 15,000, 30,000 and 60,000 samples, and resident memory after every epoch.
"""

import resource
import statistics
from pathlib import Path

import torch

from measure import begin, finish, parser
from zeroone.baselines.adam import AdamRule
from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import RivalSettings
from zeroone.heads import SoftmaxCE
from zeroone.network import Network
from zeroone.scaling import Scaling
from zeroone.solvers.stochastic import StochasticBCD, StochasticSettings
from zeroone.training.epochs import BatchPlan, Epochs
from zeroone.training.parts import Part
from zeroone.training.rule import StochasticRule

BATCH = 256


def random_images(n):
    rng = torch.Generator().manual_seed(0)
    X = torch.randint(0, 256, (n, 784), dtype=torch.uint8, generator=rng)
    return Part(X, torch.randint(0, 10, (n,), generator=rng))


def learners(part, width):
    scaling, widths = Scaling.fit(part.X), [784, width, width, 10]
    plan = BatchPlan.make(part, 100, BATCH, 0.2, seed=0)
    network = Network.dense(widths, SoftmaxCE(), scaling=scaling)
    solver = StochasticBCD(network, StochasticSettings(), plan.total)
    rules = {
        "stochastic BCD": StochasticRule(solver, scaling.apply(part.X[:1000])),
        "STE + Adam": adam(widths, scaling, plan, batch_norm=False),
        "STE + BatchNorm + Adam": adam(widths, scaling, plan, batch_norm=True),
    }
    return {name: Epochs(rule, part, scaling, plan) for name, rule in rules.items()}


def adam(widths, scaling, plan, *, batch_norm):
    settings = RivalSettings("ste", batch_norm)
    return AdamRule(FloatNetwork(widths, settings, scaling), settings, plan.total)


def in_turns(subjects, repeats):
    """Seconds an epoch of each, interleaved, after one epoch to warm up."""
    times = {name: [] for name in subjects}
    for epoch in range(1, repeats + 2):
        for name, learner in subjects.items():
            taken = learner.iterate(epoch).entry["seconds"]
            if epoch > 1:
                times[name].append(taken)
    return times


def compare(part, width, repeats):
    """Stochastic BCD against the rivals, and the ratio to STE + Adam."""
    times = in_turns(learners(part, width), repeats)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    ratio = medians["stochastic BCD"] / medians["STE + Adam"]
    return {"seconds": times, "medians": medians, "ratio": ratio}


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def grow(sizes, width, repeats):
    """Seconds an epoch for each number of samples."""
    subjects = {str(n): learners(random_images(n), width)["stochastic BCD"] for n in sizes}
    return {n: statistics.median(taken) for n, taken in in_turns(subjects, repeats).items()}


def memory(width, epochs):
    """Resident bytes after each epoch of one run."""
    learner = learners(random_images(5_000), width)["stochastic BCD"]
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
            measured = compare(part, width, options.repeats)
            result["widths"][f"{width}, {threads} threads"] = measured
            listed = ", ".join(f"{k} {v:.2f} s" for k, v in measured["medians"].items())
            print(f"width {width}, {threads} threads: {listed}; ratio {measured['ratio']:.2f}")
    torch.set_num_threads(options.threads)
    result["samples"] = grow((15_000, 30_000, 60_000), 1000, repeats=2)
    print("seconds an epoch: " + ", ".join(f"{n}: {s:.1f}" for n, s in result["samples"].items()))
    result["resident_bytes"] = memory(1000, options.memory_epochs)
    growth = result["resident_bytes"][-1] / result["resident_bytes"][1]
    print(f"resident memory after epoch {options.memory_epochs} / after epoch 2: {growth:.3f}")
    record["result"] = result
    finish(record, options.json)


if __name__ == "__main__":
    main()
