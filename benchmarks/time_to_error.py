"""Seconds until BCD reaches the final test error of STE + BatchNorm + Adam.

    python benchmarks/time_to_error.py --seeds 3 --json results/time_to_error.json

Trains 784-1000-1000-10 on MNIST and Fashion-MNIST in plain torch, with the same batches of 256,
label smoothing of 0.1, and the same masks that drop inputs (``--dropout``, each share for both).
Step sizes of both fall over the planned length, so each method is trained for several lengths, and
Adam with two rates. The reference is Adam's best final error after ``--epochs`` epochs. The time of
a method is that of its shortest training with at most that final error. All trainings run side by
side on one thread: one with fewer epochs takes its turns at equal distances, and all end in the
last round.

Seconds cover the training epochs alone: wall time, CPU time, and, for a busy machine, CPU time from
the medians of all epochs of a method.
"""

import statistics
import time
from collections.abc import Callable
from copy import copy
from itertools import pairwise
from typing import Any

import torch
from rich.table import Table
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.measure import begin, finish, parser
from zeroone.baselines.activations import StepSTE
from zeroone.commands.console import print_table
from zeroone.data.load import load_data
from zeroone.nn import Step
from zeroone.optim import BCD

BATCH, SMOOTHING = 256, 0.1
OURS, THEIRS = "BCD", "STE + BatchNorm + Adam"
SAME = 1e-9  # means of equal errors may differ by rounding
CLOCKS = {"seconds": time.perf_counter, "cpu_seconds": time.process_time}


class FallingAdam(torch.optim.Adam):
    """torch's fastest Adam, with a rate that falls linearly to 0."""

    def __init__(self, model: nn.Module, total_steps: int, rate: float) -> None:
        super().__init__(model.parameters(), rate, fused=True)
        self.rate, self.total_steps, self.k = rate, total_steps, 0

    def step(self, *arguments: Any) -> Any:
        self.param_groups[0]["lr"] = self.rate * (1 - self.k / self.total_steps)
        self.k += 1
        return super().step(*arguments)


def network(
    widths: list[int], make_unit: Callable[[int], list[nn.Module]], dropout: float = 0.2
) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Dropout(dropout)]
    for n_in, n_out in pairwise(widths[:-1]):
        layers += [nn.Linear(n_in, n_out), *make_unit(n_out)]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


class Data:
    """A data set, scaled by the training part: the mean of each pixel, one scale for all."""

    def __init__(self, name: str, samples: int | None) -> None:
        split = load_data(name)
        X, X_test = (torch.tensor(A).flatten(1).float() for A in (split.X, split.X_test))
        mean, spread = X.mean(dim=0), (X - X.mean(dim=0)).square().mean().sqrt()
        self.X, self.X_test = ((A[:samples] - mean) / spread for A in (X, X_test))
        self.y, self.y_test = (torch.tensor(A[:samples]).long() for A in (split.y, split.y_test))

    def few(self, n: int) -> "Data":
        """Return the first training samples only."""
        some = copy(self)
        some.X, some.y = self.X[:n], self.y[:n]
        return some

    @property
    def batches(self) -> int:
        """Count the batches of an epoch."""
        return -(-len(self.X) // BATCH)


class Training:
    """A method with a planned length, timed and scored after each epoch."""

    def __init__(
        self,
        method: str,
        length: int,
        rate: float | None,
        dropout: float,
        data: Data,
        widths: list[int],
        seed: int,
    ) -> None:
        self.dropout = dropout
        self.method, self.length, self.rate, self.data, self.seed = method, length, rate, data, seed
        torch.manual_seed(seed)
        total = length * data.batches
        self.optimizer: torch.optim.Optimizer
        if rate is None:
            self.model = network(widths, lambda _: [Step()], dropout)
            self.optimizer = BCD(self.model, total)
        else:
            self.model = network(widths, lambda n: [nn.BatchNorm1d(n), StepSTE(n)], dropout)
            self.optimizer = FallingAdam(self.model, total, rate)
        self.taken: dict[str, list[float]] = {clock: [] for clock in CLOCKS}
        self.errors: list[float] = []

    @property
    def name(self) -> str:
        rate = "" if self.rate is None else f", {self.rate:g}"
        return f"{self.method}{rate}"

    def is_due(self, turn: int, turns: int) -> bool:
        """Return whether this training has a turn in the round ``turn`` of ``turns``."""
        done = len(self.errors)
        return done < self.length and turn * self.length >= (done + 1) * turns

    def epoch(self) -> None:
        """Train for one pass over the data, in the same order and with the same masks as others."""
        data, optimizer = self.data, self.optimizer
        torch.manual_seed(1000 * (self.seed + 1) + len(self.errors))
        began = {clock: read() for clock, read in CLOCKS.items()}
        self.model.train()
        for rows in torch.randperm(len(data.X)).tensor_split(data.batches):
            optimizer.zero_grad()
            loss = cross_entropy(self.model(data.X[rows]), data.y[rows], label_smoothing=SMOOTHING)
            loss.backward()
            optimizer.step()
        for clock, read in CLOCKS.items():
            self.taken[clock].append(read() - began[clock])
        self.errors.append(self.test_error())

    @torch.no_grad()
    def test_error(self) -> float:
        self.model.eval()
        parts = zip(self.data.X_test.split(1000), self.data.y_test.split(1000), strict=True)
        wrong = sum(int((self.model(X).argmax(dim=1) != y).sum()) for X, y in parts)
        return wrong / len(self.data.y_test)

    def entry(self) -> dict[str, Any]:
        shown = {"method": self.method, "length": self.length, "rate": self.rate}
        shown["dropout"] = self.dropout
        return shown | {"seed": self.seed, "test_errors": self.errors, "epochs": self.taken}


def run(trainings: list[Training], turns: int) -> list[dict[str, Any]]:
    """Run all trainings side by side; the order alternates from round to round."""
    for turn in range(1, turns + 1):
        for training in trainings if turn % 2 else reversed(trainings):
            if training.is_due(turn, turns):
                training.epoch()
        full = [t for t in trainings if t.length == turns]
        listed = ", ".join(f"{t.name} {t.errors[-1]:.2%}" for t in full)
        print(f"round {turn} of {turns}: {listed}", flush=True)
    return [training.entry() for training in trainings]


def typical_seconds(entries: list[dict[str, Any]], method: str, length: int) -> float:
    """Estimate CPU time from medians over a method; BCD observes more in its first epoch."""
    taken = [e["epochs"]["cpu_seconds"] for e in entries if e["method"] == method]
    first = statistics.median(seconds[0] for seconds in taken)
    later = [s for seconds in taken for s in seconds[1:]]
    return first + (length - 1) * (statistics.median(later) if later else first)


def curve(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Average final errors and seconds over the seeds, by method, rate and length."""
    points = []
    kinds = [(e["method"], e["rate"], e["dropout"], e["length"]) for e in entries]
    for kind in dict.fromkeys(kinds):
        same = [e for e, own in zip(entries, kinds, strict=True) if own == kind]
        method, rate, dropout, length = kind
        point = {"method": method, "rate": rate, "dropout": dropout, "length": length}
        finals = [e["test_errors"][-1] for e in same]
        point |= {"test_error": statistics.mean(finals), "test_errors": finals}
        for clock in CLOCKS:
            point[clock] = statistics.mean(sum(e["epochs"][clock]) for e in same)
        points.append(point | {"typical_cpu_seconds": typical_seconds(entries, method, length)})
    return points


def time_to_error(entries: list[dict[str, Any]], epochs: int) -> dict[str, Any]:
    """Find the reference and when each method reaches it, by mean errors over the seeds."""
    points = curve(entries)
    baselines = [p for p in points if p["method"] == THEIRS]
    reference = min((p for p in baselines if p["length"] == epochs), key=lambda p: p["test_error"])
    reached: dict[str, Any] = {}
    for method in (OURS, THEIRS):
        enough = [
            p
            for p in points
            if p["method"] == method and p["test_error"] <= reference["test_error"] + SAME
        ]
        reached[method] = min(enough, key=lambda p: p["typical_cpu_seconds"], default=None)
    result = {"curve": points, "reference": reference, "reached": reached}
    clocks = (*CLOCKS, "typical_cpu_seconds")
    ours, theirs = reached[OURS], reached[THEIRS]
    if ours is not None:
        # Against the reference as it was trained, and against Adam's shortest training as good.
        result["share_of_reference"] = {c: ours[c] / reference[c] for c in clocks}
        result["share_of_shortest"] = {c: ours[c] / theirs[c] for c in clocks}
    return result


def by_seed(entries: list[dict[str, Any]], epochs: int) -> list[dict[str, Any]]:
    """Repeat the comparison for each seed alone, to show the influence of chance."""
    found = []
    for seed in sorted({e["seed"] for e in entries}):
        own = time_to_error([e for e in entries if e["seed"] == seed], epochs)
        del own["curve"]
        found.append({"seed": seed, **own})
    return found


def show(data: str, found: dict[str, Any]) -> None:
    table = Table("method", title=data)
    for heading in ("rate", "dropout", "epochs", "test error", "wall s", "CPU s", "by medians"):
        table.add_column(heading, justify="right")
    for p in found["curve"]:
        rate = "" if p["rate"] is None else f"{p['rate']:g}"
        seconds = [f"{p[c]:.1f}" for c in (*CLOCKS, "typical_cpu_seconds")]
        chosen = (rate, f"{p['dropout']:g}", str(p["length"]))
        table.add_row(p["method"], *chosen, f"{p['test_error']:.2%}", *seconds)
    print_table(table, width=110)
    reference, ours = found["reference"], found["reached"][OURS]
    print(
        f"{data}: {THEIRS} ends with {reference['test_error']:.2%} after {reference['length']} "
        f"epochs at {reference['rate']:g}, {reference['cpu_seconds']:.1f} CPU s"
    )
    if ours is None:
        print("  no length of BCD that was tried ends with as little")
    else:
        whole, least = (found[key] for key in ("share_of_reference", "share_of_shortest"))
        print(
            f"  BCD has {ours['test_error']:.2%} after {ours['length']} epochs, "
            f"{ours['cpu_seconds']:.1f} CPU s: {whole['cpu_seconds']:.2f} of its time "
            f"({whole['seconds']:.2f} by wall time, "
            f"{whole['typical_cpu_seconds']:.2f} by medians), {least['cpu_seconds']:.2f} of "
            f"that of its shortest training as good"
        )
    if len(found["by_seed"]) > 1:
        lengths = [own["reached"][OURS] for own in found["by_seed"]]
        listed = ", ".join("never" if p is None else str(p["length"]) for p in lengths)
        print(f"  seed by seed, against its own reference, after so many epochs: {listed}")


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=None, threads=1)
    data_sets = ["mnist", "fashion-mnist"]
    arguments.add_argument("--data", nargs="+", choices=data_sets, default=data_sets)
    arguments.add_argument("--seeds", type=int, default=1, help="seeds 0, 1, ...")
    arguments.add_argument("--epochs", type=int, default=10, help="of the reference")
    arguments.add_argument(
        "--lengths",
        type=int,
        nargs="+",
        default=[3, 4, 5, 7, 10],
        help="of BCD: --epochs is always one, the longest",
    )
    arguments.add_argument(
        "--rival-lengths", type=int, nargs="+", default=[5, 7, 10], help="of Adam, likewise"
    )
    arguments.add_argument("--rates", type=float, nargs="+", default=[1e-3, 3e-3], help="of Adam")
    arguments.add_argument(
        "--dropout", type=float, nargs="+", default=[0.2], help="shares of inputs dropped, for all"
    )
    arguments.add_argument("--width", type=int, default=1000, help="of both hidden layers")
    arguments.add_argument(
        "--samples", type=int, help="use only so many samples of both parts of the data"
    )
    options = arguments.parse_args()
    record = begin("time_to_error", options)
    record["result"] = result = {}
    record["runs"] = runs = {}
    widths = [784, options.width, options.width, 10]
    plans: list[tuple[str, int, float | None, float]] = []
    for method, lengths, rates in (
        (OURS, options.lengths, [None]),
        (THEIRS, options.rival_lengths, options.rates),
    ):
        shorter = sorted(length for length in set(lengths) if length < options.epochs)
        planned = (*shorter, options.epochs)
        plans += [
            (method, n, rate, drop) for rate in rates for drop in options.dropout for n in planned
        ]
    for name in options.data:
        data = Data(name, options.samples)
        for plan in plans:  # torch's own set-up must not count as a first epoch
            if plan[1] == options.epochs:
                Training(*plan, data.few(2 * BATCH), widths, seed=0).epoch()
        runs[name] = []
        for seed in range(options.seeds):
            trainings = [Training(*plan, data, widths, seed) for plan in plans]
            runs[name] += run(trainings, options.epochs)
            result[name] = time_to_error(runs[name], options.epochs)
            result[name]["by_seed"] = by_seed(runs[name], options.epochs)
            finish(record, options.json, quiet=True)
        show(name, result[name])
    finish(record, options.json)


if __name__ == "__main__":
    main()
