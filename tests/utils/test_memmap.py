"""Matrices that stay on disk."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from zeroone.utils.checks import InputError
from zeroone.utils.memmap import MappedRows, map_file, split_rows


def saved(path, array):
    np.save(path, array)
    return map_file(path)


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_rows_of_files(dtype, on_disk, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (50, 7)).astype(dtype)
    files = [X[:20], X[20:20], X[20:21], X[21:]]
    if on_disk:
        files = [saved(tmp_path / f"{k}.npy", file) for k, file in enumerate(files)]
    rows, all_rows = MappedRows(files), torch.from_numpy(X)
    numbers = torch.tensor([49, 0, 20, 19, 21, 0])
    assert rows.shape == (50, 7)
    assert rows.dtype == all_rows.dtype
    assert torch.equal(rows[numbers], all_rows[numbers])
    assert torch.equal(rows[:], all_rows)
    assert torch.equal(rows[3:30:4], all_rows[3:30:4])
    some = rows.select(torch.arange(10, 40))
    assert torch.equal(some[torch.tensor([0, 29])], all_rows[[10, 39]])
    assert torch.equal(torch.cat(list(split_rows(some, 7))), all_rows[10:40])
    assert torch.equal(some.select(torch.tensor([1, 2]))[:], all_rows[11:13])
    assert len(rows[torch.empty(0, dtype=torch.long)]) == 0


def test_what_was_read_is_let_go(tmp_path):
    file = saved(tmp_path / "X.npy", np.ones((30_000, 1000), np.uint8))
    rows, before = MappedRows([file]), resident()
    for part in split_rows(rows, 1000):
        assert bool((part == 1).all())
    assert resident() - before < 12_000_000  # of the 30 MB that were read
    for _ in range(30):
        some = torch.randint(30_000, (1000,))
        assert bool((rows[some] == 1).all())
    assert resident() - before < 12_000_000  # of as much, here and there


def test_no_file_stays_open(tmp_path):
    X = np.arange(80).reshape(8, 10)
    rows = MappedRows([saved(tmp_path / f"{k}.npy", X[k : k + 1]) for k in range(8)])
    before = len(list(Path("/proc/self/fd").iterdir()))
    for part in (rows, rows.select(torch.arange(8)), rows.select(torch.tensor([5, 1, 7]))):
        wanted = torch.arange(len(part))
        assert torch.equal(part[wanted], part[:])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    del rows, part
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
    rows = MappedRows([saved(tmp_path / "gone.npy", X)])
    (tmp_path / "gone.npy").unlink()
    with pytest.raises(InputError, match="cannot read"):
        rows[torch.tensor([0])]


def test_a_file_that_becomes_shorter_is_named(tmp_path):
    rows = MappedRows([saved(tmp_path / "X.npy", np.ones((100, 1000), np.uint8))])
    os.truncate(tmp_path / "X.npy", 50_000)
    with pytest.raises(InputError, match=r"X\.npy has become shorter"):
        rows[torch.tensor([3, 90])]


def resident():
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
