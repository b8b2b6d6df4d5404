"""Small stand-ins for everything that makes a printed command long: data, networks, repetitions.

``shrink`` changes what the commands work on; their words stay as printed.
"""

import argparse
import importlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import nn

from benchmarks import bench_train, calibration, other_targets, pareto_models, small_data, speech
from paper.matrix import architectures, matrix
from paper.matrix.architectures import Architecture
from paper.matrix.spec import Spec
from paper.matrix.workers import Ended
from zeroone.data.registry import REGISTRY, DataSet
from zeroone.data.splits import Split
from zeroone.nn.backbones import BACKBONES, BITS

SHAPES = {
    "digits": (1, 8, 8),
    "mnist": (1, 28, 28),
    "fashion-mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
    "cifar100": (3, 32, 32),
}
SAMPLES = 160
LARGEST = {  # of a benchmark's options, printed or not
    "epochs": 1,
    "memory_epochs": 3,
    "seeds": 1,
    "repeats": 1,
    "runs": 1,
    "samples": 300,
    "width": 8,
    "seconds": 0.2,
    "workers": 2,
    "processes": 1,
    "gigabytes": 2e-4,
}
SMALL_WIDTHS = {"as_widths": lambda text: [8] * len(text.split(","))}
INSTEAD = {  # widths that are an option's default
    "500,500": "8,8",
    "784,1000,1000,10": "16,8,8,10",
}


@dataclass(frozen=True)
class FewImages(DataSet):
    """Random images of ten classes."""

    name: str
    n: int  # for training; 40 more are for the test

    def load(self, data_dir=None):
        rng = np.random.default_rng(0)
        shape, total = SHAPES[self.name], self.n + 40
        X = rng.integers(0, 256, (total, int(np.prod(shape))), dtype=np.uint8)
        y = np.arange(total) % 10
        return Split(self.name, X[: self.n], y[: self.n], X[self.n :], y[self.n :], shape)


def shrink_data(monkeypatch, n=SAMPLES):
    """Give every data set a few samples, and every training few batches."""
    monkeypatch.setattr("zeroone.training.epochs.LEAST_EPOCHS", 1)
    monkeypatch.setattr("zeroone.training.epochs.LEAST_BATCHES", 1)
    monkeypatch.setattr("zeroone.training.epochs.SAMPLES_A_BATCH", 10**6)
    for name in SHAPES:
        monkeypatch.setitem(REGISTRY, name, FewImages(name, n))


def shrink_matrices(monkeypatch):
    """Run one repetition of small networks, in this process."""
    for name in BACKBONES:
        monkeypatch.setitem(BACKBONES, name, replace(BACKBONES[name], build=two_filters))
        monkeypatch.setitem(BITS, name, ("conv3x3:2:stride8",))
    parse, post_init = Architecture.parse, Spec.__post_init__

    def few_runs(spec):
        object.__setattr__(spec, "seeds", 1)
        tables = (spec.train, spec.baselines, spec.bcd, spec.pretraining, *spec.variants.values())
        for options in tables:
            if "batch" in options:
                options["batch"] = min(options["batch"], SAMPLES)
        post_init(spec)

    monkeypatch.setattr(architectures, "ARCHITECTURES", _few_units(architectures.ARCHITECTURES))
    monkeypatch.setattr(Architecture, "parse", lambda text: narrow(parse(text)))
    monkeypatch.setattr(Spec, "__post_init__", few_runs)
    monkeypatch.setattr(matrix, "run_tasks", in_this_process)


def two_filters(channels, activation):
    convolution = nn.Conv2d(channels, 2, 3, stride=4, padding=1)
    return nn.Sequential(convolution, activation(2), nn.Flatten())


def narrow(architecture):
    """Keep the kinds of layers, with few units."""
    hidden = tuple(6 if isinstance(layer, int) else layer for layer in architecture.hidden)
    return replace(architecture, hidden=hidden)


def _few_units(known):
    def few(layer):
        return re.sub(r"(x\d+):\d+", r"\1:2", layer) if isinstance(layer, str) else layer

    return {name: (backbone, tuple(map(few, hidden))) for name, (backbone, hidden) in known.items()}


def in_this_process(work, tasks, _jobs, _threads):
    for task in tasks:
        yield Ended(task, 0.1, work(task, []))


def shrink_options(monkeypatch):
    """Limit what the options of benchmarks say."""
    parse = argparse.ArgumentParser.parse_args

    def few(self, *words):
        options = parse(self, *words)
        for name, value in vars(options).items():
            if name == "samples" and value is None:
                options.samples = 60
            elif name in LARGEST and isinstance(value, int | float):
                setattr(options, name, min(value, LARGEST[name]))
            elif isinstance(value, str):
                setattr(options, name, INSTEAD.get(value, value))
        return options

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", few)


def first(entries, n):
    return dict(list(entries.items())[:n])


def few_rows(entry):
    """Let a benchmark's data have few samples."""
    load, models = entry
    return lambda: tuple(part[:60] for part in load()), models


def shrink_benchmarks(monkeypatch):
    """Replace the constants of benchmarks that no option sets."""
    images, learners = bench_train.random_images, bench_train.make_learners
    few = {"random_images": lambda n, *size: images(min(n, 300), *size)}
    narrow_ones = {
        "make_learners": lambda part, hidden, *kind, **how: learners(
            part, hidden if kind else (8, 8), *kind, **how
        )
    }
    constants = {
        "bench_inference": {"BATCHES": (1, 16), "LEAST_SECONDS": 0.0} | SMALL_WIDTHS,
        "bench_train": SMALL_WIDTHS | few | narrow_ones,
        "calibration": {"IMAGES": 80, "SMALL": first(calibration.SMALL, 1)},
        "deploy": {"HIDDEN": (8, 8), "PAGES": ()},
        "other_targets": {"DATA": {"diabetes": few_rows(other_targets.DATA["diabetes"])}},
        "small_data": {"SUITES": {"small": first(small_data.SUITES["small"], 2)}},
        "larger": {"ROWS": 64, "BATCH": 32},
        "pareto": {"BATCHES": (16, 256), "SINGLES": 2, "IN_BATCHES": 256, "user_cache_path": Path},
        "pareto_models": {
            "FORMS": first(pareto_models.FORMS, 2),
            "RELU": (4, 8),
            "DROPOUTS": (0.0,),
        },
        "predict_many": {"OPENING": 4, "MOST_GROWTH": 2**40},
        "speech": {"BATCH": 16, "TRIALS": {k: v[:1] for k, v in speech.TRIALS.items()}},
        "torture": {"ORDER": ["mlp"]},
        "train_cost": few | narrow_ones,
    }
    for name, values in constants.items():
        module = importlib.import_module(f"benchmarks.{name}")
        for constant, value in values.items():
            monkeypatch.setattr(module, constant, value)
