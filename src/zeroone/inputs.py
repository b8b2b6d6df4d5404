"""From a user's array to a tensor: checked once, with one clear sentence for each fault."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from zeroone.checks import InputError


def check_inputs(X: ArrayLike | Tensor, dtype: torch.dtype) -> Tensor:
    """A matrix of finite numbers with at least one row and one column.

    Bytes stay bytes, and on disk if they are memory-mapped; all else becomes ``dtype``.
    """
    array = X.numpy(force=True) if isinstance(X, Tensor) else np.asarray(X)
    if array.ndim != 2:
        raise InputError(
            f"X must be a matrix with one sample a row, got an array of shape {array.shape}."
        )
    if array.shape[0] == 0:
        raise InputError("X has no samples (0 rows).")
    if array.shape[1] == 0:
        raise InputError("X has no features (0 columns).")
    if array.dtype.kind not in "biuf":
        raise InputError(f"X must hold numbers, got dtype {array.dtype}.")
    if array.dtype == np.uint8:
        usable = array.flags.writeable and array.flags.c_contiguous
        return torch.from_numpy(array if usable else array.copy())
    native = np.float64 if dtype == torch.float64 else np.float32
    with np.errstate(over="ignore"):
        tensor = torch.from_numpy(np.array(array, dtype=native, order="C"))
    if not bool(torch.isfinite(tensor).all()):
        raise InputError("X contains NaN or infinity (or a number too large for the dtype).")
    largest = torch.finfo(dtype).max ** 0.4  # so that its square, summed, is still a number
    if float(tensor.abs().max()) > largest:
        raise InputError(f"X holds numbers beyond {largest:.0e}, too large for {dtype}.")
    return tensor


def check_width(inputs: Tensor, n_features: int) -> Tensor:
    """Require as many features as the network takes."""
    if inputs.shape[1] != n_features:
        raise InputError(
            f"the network takes {n_features} features, the data have {inputs.shape[1]}."
        )
    return inputs
