"""``zeroone bench train``: the cost of an epoch of stochastic BCD beside that of baselines.

Epochs take turns, on the same batches with the same dropout. The data are random bytes: seconds do
not depend on what a network learns. Adam is torch's fused one, its fastest.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import BaselineSettings
from zeroone.commands.checks import check_output, numbers, set_threads
from zeroone.commands.console import print_table
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network
from zeroone.nn.operators import Shape
from zeroone.nn.scaling import Scaling
from zeroone.training import StochasticSettings, TrainSettings
from zeroone.training.baselines import AdamTrainer
from zeroone.training.epochs import BatchPlan, Epochs
from zeroone.training.text_progress import say
from zeroone.training.trainers import BCDTrainer
from zeroone.training.training_data import Subset
from zeroone.utils.checks import count
from zeroone.utils.records import new_record, write_record

BATCH, N_FEATURES, N_CLASSES = 256, 784, 10
OURS = "stochastic BCD"
BASELINES = {
    "STE + Adam": BaselineSettings("ste"),
    "STE + BatchNorm + Adam": BaselineSettings("ste", batch_norm=True),
    "ReLU + Adam": BaselineSettings("relu"),
}


def random_images(n: int, n_features: int = N_FEATURES) -> Subset:
    """Make random bytes, in the shape of MNIST unless told, with random classes."""
    rng = torch.Generator().manual_seed(0)
    X = torch.randint(0, 256, (n, n_features), dtype=torch.uint8, generator=rng)
    return Subset(X, torch.randint(0, N_CLASSES, (n,), generator=rng))


def make_learners(
    part: Subset,
    hidden: Sequence[int | str],
    image: Shape | None = None,
    names: Sequence[str] = (OURS, *BASELINES),
    *,
    bf16: bool = False,
    momentum: float = 0.0,
) -> dict[str, Epochs]:
    """Make learners on the same batches; those of images drop no inputs.

    ``momentum`` is that of stochastic BCD.
    """
    scaling, n = Scaling.fit(part.X), part.X.shape[1]
    dropout = 0.0 if image else 0.2
    given = TrainSettings.from_options(epochs=100, batch=BATCH, input_dropout=dropout)
    plan = BatchPlan.make(part, given)
    learners = {}
    for name in names:
        trainer: BCDTrainer | AdamTrainer
        if name == OURS:
            plans = [LayerPlan.parse(layer) for layer in hidden]
            network = Network.build(image or (n,), plans, N_CLASSES, SoftmaxCE(), scaling=scaling)
            probe = scaling.apply(part.X[:1000])
            ours = StochasticSettings(bf16=bf16, momentum=momentum)
            trainer = BCDTrainer(network, ours, plan.total, probe)
        else:
            theirs = replace(BASELINES[name], bf16=bf16)
            baseline = FloatNetwork([n, *hidden, N_CLASSES], theirs, scaling, image)
            trainer = AdamTrainer(baseline, theirs, plan.total)
        learners[name] = Epochs(trainer, part, scaling, plan)
    return learners


def in_turns(
    subjects: Mapping[str, Epochs], repeats: int, *, quiet: bool = True
) -> dict[str, list[float]]:
    """Return the seconds of each epoch, interleaved, after one epoch to warm up."""
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for epoch in range(1, repeats + 2):
        if not quiet:
            say(f"round {epoch} of {repeats + 1}, the first to warm up")
        for name, learner in subjects.items():
            taken = learner.iterate(epoch)[0]["seconds"]
            if epoch > 1:
                times[name].append(taken)
    return times


def compare_epochs(
    part: Subset, hidden: Sequence[int], repeats: int, *, quiet: bool = True
) -> dict[str, Any]:
    """Return all seconds, their medians, and the ratio of ours to STE + Adam."""
    times = in_turns(make_learners(part, hidden), repeats, quiet=quiet)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    return {"seconds": times, "medians": medians, "ratio": medians[OURS] / medians["STE + Adam"]}


def measure_training(
    hidden: Sequence[int], samples: int, repeats: int, *, quiet: bool = False
) -> dict[str, Any]:
    """Measure and print a table; return the record."""
    settings = {"hidden": list(hidden), "samples": samples, "repeats": repeats, "batch": BATCH}
    record = new_record("bench train", settings, seed=0)
    result = compare_epochs(random_images(samples), hidden, repeats, quiet=quiet)
    table = Table()
    for heading in ("method", "s/epoch", "fastest", "slowest", "times STE + Adam"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, median in result["medians"].items():
        taken = result["seconds"][name]
        ratio = median / result["medians"]["STE + Adam"]
        row = (f"{median:.3g}", f"{min(taken):.3g}", f"{max(taken):.3g}", f"{ratio:.2f}")
        table.add_row(name, *row)
    widths = "-".join(map(str, (N_FEATURES, *hidden, N_CLASSES)))
    threads = torch.get_num_threads()
    print(
        f"{samples:,} samples, {widths}, batches of {BATCH}, {threads} threads, median of {repeats}"
    )
    print_table(table)
    return record | {"result": result}


def as_widths(text: str) -> list[int]:
    """Read the widths of hidden layers."""
    widths = numbers("--hidden", text, "widths such as 300,300", int)
    return [count("every width", width, most=10**6) for width in widths]


def bench_train(
    *,
    hidden: str = "1000,1000",
    samples: int = 12_800,
    repeats: int = 3,
    threads: int | None = None,
    json: Path | None = None,
    quiet: bool = False,
) -> None:
    """Time an epoch of stochastic BCD, of STE + Adam and of ReLU + Adam, in turns.

    Example: zeroone bench train --hidden 500,500 --threads 1 --json cost.json

    Args:
        hidden: widths of the hidden layers, such as 300,300.
        samples: random samples per epoch.
        repeats: timed epochs of each.
    """
    set_threads(threads)
    check_output(json)
    count("samples", samples, least=256)
    record = measure_training(as_widths(hidden), samples, count("repeats", repeats), quiet=quiet)
    if json is not None:
        write_record(json, record)
