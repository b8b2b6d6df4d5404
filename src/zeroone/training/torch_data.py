"""Data sets of torch as the arrays that training takes."""

import math
from dataclasses import replace
from typing import Any

from zeroone.data.torch_datasets import Samples, is_torch_data, read_samples
from zeroone.nn.operators import Shape
from zeroone.training.settings import TrainSettings
from zeroone.training.stochastic_settings import LEAST_BATCH
from zeroone.training.text_progress import Lines
from zeroone.utils.checks import InputError


def as_arrays(
    X: Any, y: Any, settings: TrainSettings, test: Any, image: Shape | None
) -> tuple[Any, Any, TrainSettings, Any, Shape | None]:
    """Read data sets of torch into arrays; a loader may set the size of batches."""
    if is_torch_data(test):
        read = _read(test, "reading test data")
        test = (read.X, read.y)
    if not is_torch_data(X):
        if y is None:
            raise InputError("training needs labels, y, unless X is a data set of torch.")
        return X, y, settings, test, image
    if y is not None:
        raise InputError("a data set has labels of its own: train(dataset, None, settings).")
    read, s = _read(X, "reading data"), settings.stochastic
    if read.batch is not None and s.batch is None and read.batch >= LEAST_BATCH:
        n = len(read.y) - math.ceil(settings.validation * len(read.y))
        settings = replace(settings, stochastic=replace(s, batch=min(read.batch, n)))
    return read.X, read.y, settings, test, image or read.image


def _read(data: Any, label: str) -> Samples:
    """Read a data set; a line appears if that takes longer than half a minute."""
    progress = Lines(label)
    progress.on_start(0, 1)
    return read_samples(data, lambda done, total: progress.on_batch(1, done, total))
