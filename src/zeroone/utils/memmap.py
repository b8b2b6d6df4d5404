"""Samples that stay on disk: a matrix in memory-mapped files, read where it is asked for.

In their order rows come through the mapping. Here and there they are read one by one: with each
page that is touched the system maps all that it holds around it, hundreds of times a row.
"""

import math
import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zeroone.utils.checks import InputError

MOST_MAPPED = 2**27  # bytes of files that may be in memory before they are let go
MOST_OPEN = 64


class MappedRows:
    """Looks like a matrix, one sample a row; rows are read when they are asked for.

    ``files``: arrays of the same width and dtype, one below the other. ``chosen``: the rows of them
    that are meant, by number; None is for all.
    """

    def __init__(
        self,
        files: Sequence[NDArray[Any]],
        chosen: Tensor | None = None,
        opened: "Opened | None" = None,
    ) -> None:
        self.files, self.chosen = list(files), chosen
        if len({file.dtype for file in self.files}) > 1:
            raise InputError("some of the files hold bytes, others do not: write them alike.")
        self._opened = opened or Opened()
        self.starts = torch.tensor([0, *np.cumsum([len(file) for file in files]).tolist()])
        self._mapped = 0

    @property
    def shape(self) -> tuple[int, int]:
        """As of a matrix."""
        n = int(self.starts[-1]) if self.chosen is None else len(self.chosen)
        return n, self.files[0].shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Of the rows that are read."""
        return torch.from_numpy(np.empty(0, self.files[0].dtype)).dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Read rows, in the order in which they are asked for."""
        numbers = torch.arange(len(self))[rows] if isinstance(rows, slice) else rows
        if numbers.dtype == torch.bool:
            numbers = numbers.nonzero().flatten()
        wanted = (numbers if self.chosen is None else self.chosen[numbers]).numpy()
        in_order = isinstance(rows, slice) and self.chosen is None
        found = np.empty((len(wanted), self.shape[1]), self.files[0].dtype)
        of_file = np.searchsorted(self.starts.numpy(), wanted, side="right") - 1
        for k in np.unique(of_file).tolist():
            there, numbers_there = of_file == k, wanted[of_file == k] - int(self.starts[k])
            if in_order or not _can_be_opened(self.files[k]):
                found[there] = self.files[k][numbers_there]
            else:
                self._read(k, numbers_there, there.nonzero()[0], found)
        self._mapped += found.nbytes if in_order else 0
        if self._mapped > MOST_MAPPED:
            self._let_go()
        return torch.from_numpy(found)

    def _read(self, k: int, rows: NDArray[Any], places: NDArray[Any], found: NDArray[Any]) -> None:
        """Read rows of file k, each into its place."""
        file: Any = self.files[k]
        handle, size = self._opened.handle(file.filename), file.strides[0]
        memory = found.reshape(-1).view(np.uint8).data
        for row, place in zip(rows.tolist(), places.tolist(), strict=True):
            own = memory[place * size : (place + 1) * size]
            if os.preadv(handle, [own], file.offset + row * size) != size:
                raise InputError(f"{file.filename} has become shorter while it was read.")

    def select(self, rows: Tensor) -> "MappedRows":
        """These rows, still on disk."""
        chosen = rows if self.chosen is None else self.chosen[rows]
        return MappedRows(self.files, chosen, self._opened)

    def split(self, size: int) -> Iterator[Tensor]:
        """Rows by rows, in their order."""
        in_order = self.chosen is None
        if in_order:
            self._advise("MADV_SEQUENTIAL")  # then the system reads ahead
        for k in range(0, max(1, len(self)), size):  # of no rows one empty piece, as of a tensor
            yield self[slice(k, k + size)]
        if in_order:
            self._advise("MADV_RANDOM")

    def _let_go(self) -> None:
        """Pages that were read count as the process's memory until it says it is done with them."""
        self._advise("MADV_DONTNEED")
        self._mapped = 0

    def _advise(self, how: str) -> None:
        """Tell the system what will be read, where it wants to know."""
        for file in self.files:
            mapping = getattr(file, "_mmap", None)
            if mapping is not None and hasattr(mmap, how):
                mapping.madvise(getattr(mmap, how))


class Opened:
    """Files that are open to be read at any place: not all of them, since a process has a limit."""

    def __init__(self) -> None:
        self._handles: dict[str, int] = {}  # the one that was used last comes last
        weakref.finalize(self, _close, self._handles)

    def handle(self, path: str) -> int:
        """Of that file."""
        handle = self._handles.pop(path, None)
        if handle is None:
            if len(self._handles) >= MOST_OPEN:
                os.close(self._handles.pop(next(iter(self._handles))))
            try:
                handle = os.open(path, os.O_RDONLY)
            except OSError as error:
                raise InputError(f"cannot read {path}: {error.strerror}.") from None
        self._handles[path] = handle
        return handle


def _close(handles: dict[str, int]) -> None:
    for handle in handles.values():
        os.close(handle)


def _can_be_opened(file: NDArray[Any]) -> bool:
    """Whether it is a whole file of rows, on a system that reads at any place."""
    whole = isinstance(file, np.memmap) and isinstance(file.base, mmap.mmap)
    return whole and file.flags.c_contiguous and hasattr(os, "preadv")


class SparseRows:
    """A sparse matrix, one sample a row, of which rows become dense when they are asked for."""

    def __init__(self, matrix: Any, dtype: torch.dtype) -> None:
        """``matrix``: any of scipy's sparse matrices or arrays."""
        self.dtype = dtype
        native = np.float64 if dtype == torch.float64 else np.float32
        self.matrix = matrix.tocsr().astype(native)

    @property
    def shape(self) -> tuple[int, int]:
        """As of a matrix."""
        rows, columns = self.matrix.shape
        return rows, columns

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """Dense rows, in the order in which they are asked for."""
        chosen = rows if isinstance(rows, slice) else rows.numpy()
        return torch.from_numpy(self.matrix[chosen].toarray())

    def select(self, rows: Tensor) -> "SparseRows":
        """These rows, still sparse."""
        return SparseRows(self.matrix[rows.numpy()], self.dtype)

    def split(self, size: int) -> Iterator[Tensor]:
        """Rows by rows, in their order."""
        for k in range(0, max(1, len(self)), size):
            yield self[slice(k, k + size)]


Rows = Tensor | MappedRows | SparseRows


def split_rows(X: Rows, size: int) -> Iterator[Tensor]:
    """A matrix some rows at a time."""
    yield from X.split(size)


def select_rows(X: Any, rows: Any) -> Any:
    """These rows: of a tensor a copy, of files still on disk, of a sparse matrix still sparse."""
    return X[rows] if isinstance(X, Tensor) else X.select(rows)


def map_file(path: Any) -> NDArray[Any]:
    """A ``.npy`` file, mapped for reading here and there."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    mapping = getattr(array, "_mmap", None)
    if mapping is not None and hasattr(mmap, "MADV_RANDOM"):
        mapping.madvise(mmap.MADV_RANDOM)  # else a whole neighbourhood is read with each row
    return np.asarray(array) if not math.prod(array.shape) else array
