"""Turn a user's array into a tensor: checked once, with one clear sentence for each fault."""

from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.utils.checks import InputError
from zeroone.utils.memmap import SparseRows

ROWS = 4096  # samples that are checked together
Checked = TypeVar("Checked", Tensor, SparseRows, Tensor | SparseRows)


def as_array(values: ArrayLike | Tensor) -> NDArray[Any]:
    """Return an array; a tensor may be on any device or of a format that numpy lacks."""
    if not isinstance(values, Tensor):
        return np.asarray(values)
    known = values.float() if values.dtype == torch.bfloat16 else values
    array: NDArray[Any] = known.numpy(force=True)
    return array


def check_inputs(X: ArrayLike | Tensor, dtype: torch.dtype) -> Tensor:
    """Require a matrix of finite numbers with at least one row and one column.

    Bytes stay bytes; all else becomes ``dtype``. A memory-mapped array that needs no change stays
    on disk. A flat buffer (``bytes``, ``bytearray``, ``memoryview``) is one sample.
    """
    if isinstance(X, bytes | bytearray | memoryview):
        X = np.atleast_2d(np.asarray(memoryview(X)))
    array = as_array(X)
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
    native = np.dtype(np.float64 if dtype == torch.float64 else np.float32)
    # An array mapped for reading is not copied: nobody else can change it meanwhile.
    mapped = isinstance(X, np.memmap) and array.dtype == native and X.mode == "c"
    with np.errstate(over="ignore"):
        kept = array if mapped else np.array(array, dtype=native, order="C")
    tensor = torch.from_numpy(kept)
    sizes = [float(rows.abs().max()) for rows in torch.split(tensor, ROWS)]
    if not np.isfinite(sizes).all():
        raise InputError("X contains NaN or infinity (or a number too large for the dtype).")
    largest = torch.finfo(dtype).max ** 0.4  # so that its square, summed, is still a number
    if max(sizes) > largest:
        raise InputError(f"X holds numbers beyond {largest:.0e}, too large for {dtype}.")
    return tensor


def check_rows(X: Any, dtype: torch.dtype) -> Tensor | SparseRows:
    """Check inputs as ``check_inputs`` does; a sparse matrix of scipy stays sparse."""
    if not hasattr(X, "tocsr"):
        return check_inputs(X, dtype)
    if min(X.shape) == 0:
        raise InputError(f"X must have samples and features, got a matrix of shape {X.shape}.")
    if X.dtype.kind not in "biuf":
        raise InputError(f"X must hold numbers, got dtype {X.dtype}.")
    rows = SparseRows(X, dtype)
    values = rows.matrix.data
    largest = torch.finfo(dtype).max ** 0.4
    if len(values) and not np.abs(values).max() <= largest:
        raise InputError(f"X contains NaN, infinity or numbers beyond {largest:.0e}.")
    return rows


def check_width(inputs: Checked, n_features: int) -> Checked:
    """Require as many features as the network takes."""
    if inputs.shape[1] != n_features:
        raise InputError(
            f"the network takes {n_features} features, the data have {inputs.shape[1]}."
        )
    return inputs


def check_weights(weights: ArrayLike | Tensor, n_samples: int, *, some: bool = True) -> Tensor:
    """Require a finite weight of at least 0 for each sample; with ``some``, one above 0."""
    array = as_array(weights)
    if array.dtype.kind not in "biuf":
        raise InputError(f"weights of samples must be numbers, got dtype {array.dtype}.")
    if array.shape != (n_samples,):
        raise InputError(f"X has {n_samples} rows but the weights have shape {array.shape}.")
    given = array.astype(np.float64)
    if not np.isfinite(given).all() or (given < 0).any():
        raise InputError("weights of samples must be finite and not negative.")
    if some and not given.any():
        raise InputError("all weights of samples are zero.")
    return torch.tensor(given)
