"""Features on disk: computed once, written completely or not at all, memory-mapped."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.nn.network import Network
from zeroone.training import Callback
from zeroone.utils.checks import InputError
from zeroone.utils.memmap import map_file
from zeroone.utils.storage import remove_leftovers, replacing

Change = Callable[[Tensor], Tensor]


def cached_features(
    path: Path,
    network: Network,
    X: ArrayLike | Tensor,
    callbacks: Sequence[Callback] = (),
    change: Change | None = None,
) -> NDArray[Any]:
    """Read the features of raw inputs from a file, or compute and write them.

    ``change`` augments each batch of raw inputs first.
    """
    backbone = network.backbone
    if backbone is None:
        raise InputError("a network without a backbone has no features.")
    inputs = network.inputs(X)[:]
    shape = (len(inputs), backbone.n_features)
    with FileLock(path.parent / ".features"):  # runs of a matrix may want the same features
        found = _read(path, shape)
        if found is None:
            remove_leftovers(path)
            _compute(path, network, inputs, shape, callbacks, change)
            found = _read(path, shape)
    if found is None:
        raise InputError(f"{path} was written but cannot be read.")
    return found


def _compute(
    path: Path,
    network: Network,
    inputs: Tensor,
    shape: tuple[int, int],
    callbacks: Sequence[Callback],
    change: Change | None,
) -> None:
    dtype = np.float64 if network.dtype == torch.float64 else np.float32
    for callback in callbacks:
        callback.on_start(0, 1)
    with replacing(path) as temporary:
        array = np.lib.format.open_memmap(temporary, mode="w+", dtype=dtype, shape=shape)
        batches = torch.split(torch.arange(len(inputs)), network.batch_rows)
        for done, rows in enumerate(batches, start=1):
            X = inputs[rows] if change is None else change(inputs[rows])
            array[rows] = network.features(network.scaling.apply(X)).cpu().numpy()
            for callback in callbacks:
                callback.on_batch(1, done, len(batches))
        array.flush()


def _read(path: Path, shape: tuple[int, int]) -> NDArray[Any] | None:
    """Return the features, or None if the file is missing or damaged."""
    try:
        array = map_file(path, "c")
    except (InputError, OSError):
        return None
    return array if array.shape == shape and array.dtype.kind == "f" else None
