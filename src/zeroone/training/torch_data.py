"""Data sets of torch as the arrays that training takes."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

from zeroone.data.torch_datasets import Samples, is_torch_data, read_samples
from zeroone.nn.operators import Shape
from zeroone.training.settings import TrainSettings
from zeroone.training.stochastic_settings import LEAST_BATCH
from zeroone.training.text_progress import Lines
from zeroone.utils.checks import InputError


class Given(NamedTuple):
    """What ``train`` was given."""

    X: Any
    y: Any
    settings: TrainSettings
    test: Any
    image: Shape | None


def as_arrays(given: Given) -> Given:
    """Read data sets of torch into arrays; a loader may set the size of batches."""
    if is_torch_data(given.test):
        test = _read(given.test, "reading test data")
        given = given._replace(test=(test.X, test.y))
    if not is_torch_data(given.X):
        if given.y is None:
            raise InputError("training needs labels, y, unless X is a data set of torch.")
        return given
    if given.y is not None:
        raise InputError("a data set has labels of its own: train(dataset, None, settings).")
    made = _read(given.X, "reading data")
    s = given.settings.stochastic
    if made.batch is not None and s.batch is None and made.batch >= LEAST_BATCH:
        n = len(made.y) - math.ceil(given.settings.validation * len(made.y))
        s = replace(s, batch=min(made.batch, n))
    settings = replace(given.settings, stochastic=s)
    return Given(made.X, made.y, settings, given.test, given.image or made.image)


def _read(data: Any, label: str) -> Samples:
    """Read a data set; a line appears if that takes longer than half a minute."""
    progress = Lines(label)
    progress.on_start(0, 1)
    return read_samples(data, lambda done, total: progress.on_batch(1, done, total))
