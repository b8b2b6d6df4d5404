"""The cost of an epoch of a 0/1 convolutional network: stochastic BCD against STE + Adam.

conv5x5(32)-pool-step-conv5x5(64)-pool-step-500-step-10 on random bytes in the shape of MNIST (or
another network on other images: ``--image``, ``--hidden``). Epochs of both take turns, on the same
batches. Peak memory is measured in a separate process for each: the peak of the process, and what
training adds to it.
"""

import statistics
from multiprocessing import get_context
from pathlib import Path

import torch

from benchmarks.bench_train import in_turns
from benchmarks.measure import begin, finish, parser
from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import BaselineSettings
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network
from zeroone.nn.scaling import Scaling
from zeroone.training import StochasticSettings, TrainSettings
from zeroone.training.baselines import AdamTrainer
from zeroone.training.epochs import BatchPlan, Epochs
from zeroone.training.trainers import BCDTrainer
from zeroone.training.training_data import Subset

BATCH = 256
BCD, STE = "stochastic BCD", "STE + Adam"


def random_images(n, image):
    rng = torch.Generator().manual_seed(0)
    size = torch.Size(image).numel()
    X = torch.randint(0, 256, (n, size), dtype=torch.uint8, generator=rng)
    return Subset(X, torch.randint(0, 10, (n,), generator=rng))


def learner(name, part, image, hidden):
    scaling = Scaling.fit(part.X)
    given = TrainSettings.from_options(epochs=100, batch=BATCH, input_dropout=0.0)
    plan = BatchPlan.make(part, given)
    if name == BCD:
        plans = [LayerPlan.parse(text) for text in hidden]
        network = Network.build(image, plans, 10, SoftmaxCE(), scaling=scaling)
        probe = scaling.apply(part.X[:1000])
        rule = BCDTrainer(network, StochasticSettings(), plan.total, probe)
    else:
        settings = BaselineSettings("ste")
        network = FloatNetwork([part.X.shape[1], *hidden, 10], settings, scaling, image)
        rule = AdamTrainer(network, settings, plan.total)
    return Epochs(rule, part, scaling, plan)


def peak_bytes():
    """Return the peak memory of this process; ru_maxrss would include its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def _peak(name, n, image, hidden, threads, pipe):
    torch.set_num_threads(threads)
    part = random_images(n, image)
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
    part = random_images(options.samples, image)
    subjects = {name: learner(name, part, image, hidden) for name in (BCD, STE)}
    times = in_turns(subjects, options.repeats)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    ratio = medians[BCD] / medians[STE]
    print(f"an epoch of {options.samples:,} samples: {medians}, ratio {ratio:.2f}")
    memory = {
        name: peak_memory(name, 5 * BATCH, image, hidden, options.threads) for name in subjects
    }
    added = {name: m["peak"] - m["before"] for name, m in memory.items()}
    whole = memory[BCD]["peak"] / memory[STE]["peak"]
    print(
        f"peak memory: {memory}; ratio {whole:.2f}, of what training adds "
        f"{added[BCD] / added[STE]:.2f}"
    )
    record["result"] = {
        "seconds": times,
        "medians": medians,
        "ratio": ratio,
        "memory": memory,
        "memory_ratio": whole,
        "added_memory_ratio": added[BCD] / added[STE],
    }
    finish(record, options.json)


if __name__ == "__main__":
    main()
