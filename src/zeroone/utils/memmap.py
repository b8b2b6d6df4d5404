"""Matrices that stay on disk or sparse: their rows become dense tensors when they are asked for."""

import math
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zeroone.utils.checks import InputError, check_file


class MappedRows:
    """A matrix in memory-mapped files, one sample a row.

    ``files`` are arrays of the same width and dtype, one below the other; ``chosen`` are the
    numbers of the rows that make up the matrix, None for all. Rows are read from the files, not
    through the mapping: a page that is touched brings its neighbours along, and all of them count
    as memory of the process.
    """

    def __init__(self, files: Sequence[NDArray[Any]], chosen: Tensor | None = None) -> None:
        self.files, self.chosen = list(files), chosen
        if len({file.dtype for file in self.files}) > 1:
            raise InputError("some of the files hold bytes, others do not: write them alike.")
        self._starts = np.cumsum([0, *(len(file) for file in files)])
        n = int(self._starts[-1]) if chosen is None else len(chosen)
        self.shape = (n, self.files[0].shape[1])
        self.dtype = torch.from_numpy(np.empty(0, self.files[0].dtype)).dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Read rows, in the order in which they are asked for."""
        if isinstance(rows, slice):
            numbers = torch.arange(*rows.indices(len(self)))
        else:
            numbers = rows.nonzero().flatten() if rows.dtype == torch.bool else rows
        wanted = (numbers if self.chosen is None else self.chosen[numbers]).numpy()
        found = np.empty((len(wanted), self.shape[1]), self.files[0].dtype)
        of_file = np.searchsorted(self._starts, wanted, side="right") - 1
        for k in np.unique(of_file).tolist():
            places = np.flatnonzero(of_file == k)
            _read(self.files[k], wanted[places] - self._starts[k], places, found)
        return torch.from_numpy(found)

    def select(self, rows: Tensor) -> "MappedRows":
        """Choose rows without reading them."""
        return MappedRows(self.files, rows if self.chosen is None else self.chosen[rows])


def _read(file: Any, rows: NDArray[Any], places: NDArray[Any], found: NDArray[Any]) -> None:
    """Read rows of a file, each into its place in ``found``."""
    if not isinstance(getattr(file, "base", None), mmap.mmap):  # an array, or a part of a file
        found[places] = file[rows]
        return
    size = file.strides[0]
    try:
        # Without a buffer, which would bring a row's neighbours along.
        with open(file.filename, "rb", buffering=0) as opened:  # noqa: PTH123
            for row, place in zip(rows.tolist(), places.tolist(), strict=True):
                opened.seek(file.offset + row * size)
                if opened.readinto(found[place]) != size:
                    raise InputError(f"{file.filename} has become shorter while it was read.")
    except OSError as error:
        raise InputError(f"cannot read {file.filename}: {error.strerror}.") from None


class SparseRows:
    """A sparse matrix of scipy's, one sample a row, whose rows become dense when asked for."""

    def __init__(self, matrix: Any, dtype: torch.dtype) -> None:
        self.dtype = dtype
        native = np.float64 if dtype == torch.float64 else np.float32
        self.matrix = matrix.tocsr().astype(native)
        self.shape: tuple[int, int] = self.matrix.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Make rows dense, in the order in which they are asked for."""
        chosen = rows if isinstance(rows, slice) else rows.numpy()
        return torch.from_numpy(self.matrix[chosen].toarray())

    def select(self, rows: Tensor) -> "SparseRows":
        """Choose rows, still sparse."""
        return SparseRows(self.matrix[rows.numpy()], self.dtype)


Rows = Tensor | MappedRows | SparseRows


def split_rows(X: Rows, size: int) -> Iterator[Tensor]:
    """Read a matrix some rows at a time; without rows, it is one empty piece."""
    for k in range(0, max(1, len(X)), size):
        yield X[k : k + size]


def select_rows(X: Any, rows: Any) -> Any:
    """Choose rows: a copy of a tensor's; of other matrices without reading them."""
    return X[rows] if isinstance(X, Tensor) else X.select(rows)


def map_file(path: Path, mode: Literal["r", "c"] = "r") -> NDArray[Any]:
    """Map a ``.npy`` file, row by row; of an empty one there is nothing to map."""
    try:
        with check_file(path, "array").open("rb") as file:
            version = "{}_{}".format(*np.lib.format.read_magic(file))
            read_header = getattr(np.lib.format, f"read_array_header_{version}")
            shape, in_columns, dtype = read_header(file)
            offset = file.tell()
        # numpy itself divides by an item's size, and takes the length from the file if it is -1.
        n_bytes = math.prod(shape) * dtype.itemsize
        whole = dtype.itemsize and min(shape) >= 0 and offset + n_bytes <= path.stat().st_size
        if in_columns or dtype.hasobject or not whole:
            raise ValueError
        if not n_bytes:
            return np.empty(shape, dtype)
        return np.memmap(path, dtype, mode, offset, shape)
    except Exception:  # a damaged header can fail in any way at all
        raise InputError(f"{path} is missing or damaged: it is no array, row by row.") from None
