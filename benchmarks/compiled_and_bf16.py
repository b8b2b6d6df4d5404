"""Test errors of one module trained eagerly, under torch.compile, and in bfloat16 autocast.

    python benchmarks/compiled_and_bf16.py --seeds 3 --json results/compiled_and_bf16.json

784-1000-1000-10 on MNIST by BCD, with the same start, batches and dropout seeds for every way to
run it. Each finished training is written to the record at once.
"""

import statistics
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.measure import begin, finish, parser
from benchmarks.time_to_error import BATCH, SMOOTHING, Data, network
from zeroone.nn import Step
from zeroone.optim import BCD

WAYS = ("eager", "compile", "bf16")


def make_model(way: str, width: int, seed: int) -> nn.Module:
    """The module as it is called in training."""
    torch.manual_seed(seed)
    model: nn.Module = network([784, width, width, 10], lambda _: [Step()])
    return torch.compile(model) if way == "compile" else model  # type: ignore[return-value]


def precision(way: str) -> AbstractContextManager[Any]:
    """The context of a forward pass."""
    return torch.autocast("cpu", torch.bfloat16) if way == "bf16" else nullcontext()


@torch.no_grad()
def test_error(model: nn.Module, data: Data, way: str) -> float:
    """The share of wrong test images, predicted in the precision of the training."""
    model.eval()
    with precision(way):
        predicted = torch.cat([model(X).argmax(dim=1) for X in data.X_test.split(BATCH)])
    model.train()
    return float((predicted != data.y_test).float().mean())


def train(way: str, data: Data, width: int, epochs: int, seed: int) -> dict[str, Any]:
    """One training; gives its entry of the record."""
    model = make_model(way, width, seed)
    bcd = BCD(model, total_steps=epochs * data.batches)
    errors, began = [], time.process_time()
    for epoch in range(epochs):
        torch.manual_seed(1000 * (seed + 1) + epoch)
        for rows in torch.randperm(len(data.X)).tensor_split(data.batches):
            bcd.zero_grad()
            with precision(way):
                scores = model(data.X[rows])
            cross_entropy(scores.float(), data.y[rows], label_smoothing=SMOOTHING).backward()
            bcd.step()
        errors.append(test_error(model, data, way))
        print(f"{way}, seed {seed}, epoch {epoch + 1}: {errors[-1]:.2%}", flush=True)
    spent = time.process_time() - began
    return {"way": way, "seed": seed, "test_errors": errors, "cpu_seconds": spent}


def main() -> None:
    arguments = parser(__doc__.splitlines()[0], repeats=None, threads=1)
    arguments.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ...")
    arguments.add_argument("--epochs", type=int, default=10)
    arguments.add_argument("--width", type=int, default=1000, help="of both hidden layers")
    arguments.add_argument("--samples", type=int, help="only so many, of both parts of the data")
    arguments.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    options = arguments.parse_args()
    record = begin("compiled_and_bf16", options)
    record["result"], record["runs"] = {}, []
    data = Data("mnist", options.samples)
    for seed in range(options.seeds):
        for way in options.ways:
            run = train(way, data, options.width, options.epochs, seed)
            record["runs"].append(run)
            finals = [r["test_errors"][-1] for r in record["runs"] if r["way"] == way]
            record["result"][way] = {"test_error": statistics.mean(finals), "test_errors": finals}
            finish(record, options.json, quiet=True)
    for way, found in record["result"].items():
        listed = ", ".join(f"{error:.2%}" for error in found["test_errors"])
        print(f"{way}: {found['test_error']:.2%} ({listed})")
    finish(record, options.json)


if __name__ == "__main__":
    main()
