"""The cost of an epoch of a baseline in our loop, against a hand-written torch loop.

Both take random bytes in the shape of MNIST (seconds do not depend on what a network learns), scale
them batch by batch, drop 20% of the inputs, take a step of torch's fused Adam on the cross entropy
with label smoothing, count loss and errors, and score 10,000 samples afterwards. Epochs take turns.
A third loop is leaner than ours can be: its inputs are scaled beforehand, it drops none, and it
counts and scores nothing.
"""

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from benchmarks.bench_train import random_images
from benchmarks.measure import begin, finish, interleaved, parser
from zeroone.analysis.counts import active_units
from zeroone.analysis.metrics import error_rate
from zeroone.baselines.activations import StepSTE
from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import BaselineSettings
from zeroone.nn.scaling import Scaling
from zeroone.training import TrainSettings
from zeroone.training.baselines import AdamTrainer
from zeroone.training.epochs import BatchPlan, Epochs
from zeroone.training.training_data import Subset

BATCH, EPOCHS, CLASSES, SCORED = 256, 10**6, 10, 10_000


def our_epoch(X, y, width, activation):
    part, scaling = Subset(X, y), Scaling.fit(X)
    given = TrainSettings.from_options(epochs=EPOCHS, batch=BATCH, input_dropout=0.2)
    plan = BatchPlan.make(part, given)
    settings = BaselineSettings(activation)
    model = FloatNetwork([784, width, width, CLASSES], settings, scaling)
    learner = Epochs(AdamTrainer(model, settings, plan.total), part, scaling, plan)
    epochs = iter(range(1, EPOCHS))

    def epoch():
        learner.iterate(next(epochs))
        model.eval()
        return error_rate(model, X[:SCORED], y[:SCORED]), active_units(model)  # as the loop does

    return epoch


def sequential(width, activation):
    make = nn.ReLU if activation == "relu" else partial(StepSTE, width)
    layers = [nn.Linear(784, width), make(), nn.Linear(width, width), make()]
    model = nn.Sequential(*layers, nn.Linear(width, CLASSES))
    return model, torch.optim.Adam(model.parameters(), 1e-3, fused=True)


def hand_written_epoch(X, y, width, activation):
    model, adam = sequential(width, activation)
    mean = X.float().mean(dim=0)
    std = (X.float() - mean).std()

    def epoch():
        loss_sum, wrong = 0.0, 0
        for rows in torch.randperm(len(y)).split(BATCH):
            inputs = functional.dropout((X[rows].float() - mean) / std, 0.2)
            scores = model(inputs)
            loss = functional.cross_entropy(scores, y[rows], label_smoothing=0.1)
            adam.zero_grad()
            loss.backward()
            adam.step()
            loss_sum += float(loss.detach()) * len(rows)
            wrong += int((scores.argmax(dim=1) != y[rows]).sum())
        with torch.no_grad():
            scored = (X[:SCORED].float() - mean) / std
            error = sum(
                int((model(rows).argmax(dim=1) != labels).sum())
                for rows, labels in zip(scored.split(4096), y[:SCORED].split(4096), strict=True)
            )
        return loss_sum / len(y), wrong / len(y), error

    return epoch


def lean_epoch(X, y, width, activation):
    model, adam = sequential(width, activation)
    inputs = X.float()
    inputs = (inputs - inputs.mean(dim=0)) / inputs.std()

    def epoch():
        for rows in torch.randperm(len(y)).split(BATCH):
            loss = functional.cross_entropy(model(inputs[rows]), y[rows], label_smoothing=0.1)
            adam.zero_grad()
            loss.backward()
            adam.step()

    return epoch


def main():
    arguments = parser(__doc__.splitlines()[0], threads=1)
    arguments.add_argument("--samples", type=int, default=20_000)
    arguments.add_argument("--width", type=int, default=1000)
    options = arguments.parse_args()
    record = begin("rival-cost", options)
    part = random_images(options.samples)
    record["result"] = {}
    for activation in ("relu", "ste"):
        given = (part.X, part.y, options.width, activation)
        loops = {
            "ours": our_epoch(*given),
            "hand-written": hand_written_epoch(*given),
            "lean": lean_epoch(*given),
        }
        seconds = interleaved(loops, options.repeats)
        ours = seconds["ours"]["median"]
        ratios = {name: ours / seconds[name]["median"] for name in ("hand-written", "lean")}
        record["result"][activation] = {"seconds": seconds, "ratios": ratios}
        print(
            f"{activation}: an epoch of ours takes {ratios['hand-written']:.3f}x the seconds of "
            f"the hand-written loop, {ratios['lean']:.3f}x those of the lean one"
        )
    finish(record, options.json)


if __name__ == "__main__":
    main()
