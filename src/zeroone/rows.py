"""Samples that stay on disk: a matrix in memory-mapped files, read where it is asked for."""

import math
import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MOST_MAPPED = 2**27  # bytes of files that may be in memory before they are let go


class MappedRows:
    """Looks like a matrix, one sample a row; rows are read when they are asked for.

    ``files``: arrays of the same width and dtype, one below the other. ``chosen``: the rows of them
    that are meant, by number; None is for all.
    """

    def __init__(self, files: Sequence[NDArray[Any]], chosen: Tensor | None = None) -> None:
        self.files, self.chosen = list(files), chosen
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
        found = np.empty((len(wanted), self.shape[1]), self.files[0].dtype)
        of_file = np.searchsorted(self.starts.numpy(), wanted, side="right") - 1
        for k in np.unique(of_file):
            there = of_file == k
            found[there] = self.files[k][wanted[there] - int(self.starts[k])]
        self._mapped += max(found.nbytes, len(wanted) * mmap.PAGESIZE)
        if self._mapped > MOST_MAPPED:
            self._let_go()
        return torch.from_numpy(found)

    def select(self, rows: Tensor) -> "MappedRows":
        """These rows, still on disk."""
        return MappedRows(self.files, rows if self.chosen is None else self.chosen[rows])

    def split(self, size: int) -> Iterator[Tensor]:
        """Rows by rows, in their order."""
        in_order = self.chosen is None
        if in_order:
            self._advise("MADV_SEQUENTIAL")  # then the system reads ahead
        for k in range(0, len(self), size):
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


Rows = Tensor | MappedRows


def split_rows(X: Rows, size: int) -> Iterator[Tensor]:
    """A matrix some rows at a time."""
    yield from X.split(size)


def select_rows(X: Any, rows: Any) -> Any:
    """These rows: of a tensor a copy, of files still on disk."""
    return X.select(rows) if isinstance(X, MappedRows) else X[rows]


def map_file(path: Any) -> NDArray[Any]:
    """A ``.npy`` file, mapped for reading here and there."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    mapping = getattr(array, "_mmap", None)
    if mapping is not None and hasattr(mmap, "MADV_RANDOM"):
        mapping.madvise(mmap.MADV_RANDOM)  # else a whole neighbourhood is read with each row
    return np.asarray(array) if not math.prod(array.shape) else array
