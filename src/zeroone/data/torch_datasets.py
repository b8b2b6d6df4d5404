"""Data sets of torch, read once into one tensor: samples are (input, label) pairs.

A training needs every sample many times and in an order of its own, and its state names the data
by a digest. So a map-style ``Dataset`` is read once, in order, into rows of its own dtype (bytes
stay bytes). Random transforms would be frozen in that; they belong into ``augment``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
    default_convert,
)

from zeroone.nn.operators import Shape
from zeroone.utils.checks import InputError, first_line

AT_ONCE = 256  # samples that a worker reads and sends together
ASKED_TWICE = 8  # samples that must be the same each time
Report = Callable[[int, int], None]  # samples done, all samples


@dataclass(frozen=True)
class Samples:
    """What a data set holds: flat inputs, labels, and the shape of a sample that is an image."""

    X: Tensor
    y: list[Any]
    image: Shape | None
    batch: int | None  # of a loader


def is_torch_data(data: Any) -> bool:
    """Tell whether this is a data set or a loader of torch."""
    return isinstance(data, Dataset | DataLoader)


def read_samples(data: Any, report: Report) -> Samples:
    """Read a data set, with the workers of its loader if it comes in one.

    Raises:
        InputError: it has no length or no labels, its samples differ in shape or from one time to
            the next, or its loader does more than to shuffle and stack them.

    """
    dataset, batch, how = data, None, dict[str, Any]()
    if isinstance(data, DataLoader):
        dataset, batch = data.dataset, data.batch_size
        names = ("num_workers", "worker_init_fn", "multiprocessing_context")
        how = {name: getattr(data, name) for name in names}
    _check(dataset, data)
    n = len(dataset)
    # A generator of its own: the reader would draw from that of the user.
    reader = DataLoader(dataset, AT_ONCE, collate_fn=_stack, generator=torch.Generator(), **how)
    X, y = torch.empty(n), list[Any]()
    for read in reader:
        if isinstance(read, InputError):
            raise read
        rows, labels = read
        if not y:
            X = rows.new_empty(n, *rows.shape[1:])
        if (rows.shape[1:], rows.dtype) != (X.shape[1:], X.dtype):
            shapes = [f"{tuple(x.shape)} ({x.dtype})" for x in (X[0], rows[0])]
            raise InputError(
                f"all samples must be alike: the first is {shapes[0]}, another {shapes[1]}."
            )
        X[len(y) : len(y) + len(rows)] = rows
        y += labels
        if any(np.shape(label) != np.shape(y[0]) for label in labels):
            raise InputError("all labels must be alike: some are longer than others.")
        report(len(y), n)
    return Samples(X.reshape(n, -1), y, tuple(X.shape[1:]) if X.ndim == 4 else None, batch)


def _check(dataset: Any, data: Any) -> None:
    """Refuse samples that have no numbers or change, and a loader that picks or changes samples."""
    name = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise InputError(
            f"{name} gives samples one after the other: training needs a map-style data set, with "
            f"a length, or arrays."
        )
    if not len(dataset):
        raise InputError(f"{name} has no samples.")
    if isinstance(data, DataLoader):
        sampler: Any = data.sampler
        drawn = isinstance(sampler, RandomSampler) and not sampler.replacement
        whole = (drawn or isinstance(sampler, SequentialSampler)) and len(sampler) == len(dataset)
        if not whole or type(data.batch_sampler) not in (BatchSampler, type(None)):
            raise InputError(
                "training draws its own batches: in place of a sampler, give a Subset of the data "
                "set, or sample_weight."
            )
        if data.collate_fn not in (default_collate, default_convert):
            raise InputError(
                "training stacks samples itself: let the data set do what collate_fn does."
            )
    for i in range(min(len(dataset), ASKED_TWICE)):
        once, again = (_stack([dataset[i]]) for _ in range(2))
        if isinstance(once, InputError) or isinstance(again, InputError):
            return  # the reading says so
        if not np.array_equal(once[0], again[0], equal_nan=True):
            raise InputError(
                f"sample {i} is another one each time it is read: leave random transforms out of "
                f"the data set, and give them to the training as augment."
            )


def _stack(samples: Sequence[Any]) -> tuple[Tensor, list[Any]] | InputError:
    """Stack samples; a fault is returned, since a worker that raises adds its traceback."""
    if any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in samples):
        return InputError("samples must be pairs (input, label).")
    if len({getattr(x, "dtype", None) for x, _ in samples}) > 1:
        return InputError("all samples must be alike: their inputs differ in dtype.")
    try:
        X, y = default_collate(list(samples))
    except (TypeError, ValueError, RuntimeError) as error:
        why = first_line(error)
        return InputError(f"all samples must be tensors, arrays or numbers, and alike: {why}.")
    if not isinstance(X, Tensor):
        return InputError(
            "inputs must be tensors, arrays or numbers: convert them in the data set's transform."
        )
    if isinstance(y, Tensor):
        y = (y.flatten() if y.numel() == len(y) else y).tolist()
    return X, list(y)
