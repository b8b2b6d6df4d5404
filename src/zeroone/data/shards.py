"""Data in shards: memory-mapped files, of which a rank opens only its own.

A folder with ``shards.json``, and for each shard k the files ``X-k.npy`` and ``y-k.npy``; perhaps
``X-test.npy`` and ``y-test.npy``. Shards may differ in size. Labels are read by all ranks, samples
by one each.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zeroone.data.splits import Split
from zeroone.nn.inputs import as_array, check_inputs
from zeroone.utils.checks import InputError, count
from zeroone.utils.memmap import MappedRows, map_file
from zeroone.utils.parallel import ALONE, Team
from zeroone.utils.storage import make_folder, replacing, write_json

INDEX = "shards.json"
VERSION = 1
ROWS = 65536  # samples that are written at a time


@dataclass(frozen=True)
class Shards:
    """The samples of a sharded data set, not yet opened: a rank takes its own by ``of``."""

    folder: Path
    sizes: list[int]
    n_features: int
    digest: str  # of all samples, taken when they were written

    @property
    def shape(self) -> tuple[int, int]:
        """Of all samples together."""
        return sum(self.sizes), self.n_features

    def __len__(self) -> int:
        return sum(self.sizes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """All of it, for whoever needs it in memory."""
        del copy
        everything = np.concatenate([self._open(k) for k in range(len(self.sizes))])
        return everything if dtype is None else everything.astype(dtype)

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Some rows, read."""
        numbers = torch.as_tensor(np.arange(len(self))[rows])
        return self.of(ALONE)[0][numbers.reshape(-1)].numpy().reshape(*numbers.shape, -1)

    def of(self, team: Team) -> tuple[MappedRows, Tensor | None]:
        """The rows of one rank, and their numbers among all; None where it has all of them.

        Each rank gets neighbouring shards of about as many samples as the others get.
        """
        if team.size == 1:
            return MappedRows([self._open(k) for k in range(len(self.sizes))]), None
        if team.size > len(self.sizes):
            raise InputError(
                f"{self.folder} has {len(self.sizes)} shards for {team.size} ranks: cut it into "
                f"more (zeroone data shard --shards)."
            )
        ends = np.cumsum(self.sizes)
        cuts = share_out(self.sizes, team.size)
        own = range(cuts[team.rank], cuts[team.rank + 1])
        first = int(ends[own[0]]) - self.sizes[own[0]]
        return MappedRows([self._open(k) for k in own]), torch.arange(first, int(ends[own[-1]]))

    def _open(self, k: int) -> NDArray[Any]:
        path = self.folder / f"X-{k}.npy"
        try:
            found = map_file(path)
        except (OSError, ValueError):
            raise InputError(f"{path} is missing or damaged.") from None
        if found.shape != (self.sizes[k], self.n_features):
            raise InputError(f"{path} has another shape than {INDEX} says.")
        return found


def share_out(sizes: list[int], ranks: int) -> list[int]:
    """Where each rank's shards begin, at least one each: as even as neighbours can be."""
    ends, total, cuts = np.cumsum(sizes), sum(sizes), [0]
    for rank in range(1, ranks):
        nearest = int(np.abs(ends - total * rank / ranks).argmin()) + 1
        cuts.append(min(max(nearest, cuts[-1] + 1), len(sizes) - (ranks - rank)))
    return [*cuts, len(sizes)]


def is_sharded(folder: Path) -> bool:
    """Whether ``write_shards`` wrote it."""
    return (folder / INDEX).is_file()


def load_shards(folder: Path) -> Split:
    """Labels are read, samples are not."""
    try:
        about = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        sizes = [count("a shard", size, least=0) for size in about["sizes"]]
        shards = Shards(folder, sizes, count("features", about["features"]), str(about["sha256"]))
        shape = None if about["image"] is None else tuple(map(int, about["image"]))
        names = None if about["names"] is None else tuple(map(str, about["names"]))
        has_test, version = bool(about["test"]), about["version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{folder / INDEX} is not a readable index of shards.") from None
    if version != VERSION:
        raise InputError(f"{folder / INDEX} is of another version of zeroone.")
    y = np.concatenate([_labels(folder, k, size) for k, size in enumerate(sizes)])
    test: tuple[Any, Any] = (None, None)
    if has_test:
        X_test = map_file(folder / "X-test.npy")
        test = np.array(X_test), _labels(folder, "test", len(X_test))
    return Split(folder.name, shards, y, *test, shape=shape, feature_names=names)  # type: ignore[arg-type]


def _labels(folder: Path, which: int | str, size: int) -> NDArray[Any]:
    path = folder / f"y-{which}.npy"
    try:
        labels: NDArray[Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError):
        raise InputError(f"{path} is missing or damaged.") from None
    if labels.shape != (size,):
        raise InputError(f"{path} has another length than {INDEX} says.")
    return labels


def shard(split: Split, folder: Path, shards: int) -> Path:
    """Write a data set as so many shards of about the same size."""
    if count("shards", shards) > len(split.y):
        raise InputError(f"{len(split.y)} samples do not make {shards} shards.")
    cuts = [len(split.y) * k // shards for k in range(shards + 1)]
    pieces = ((split.X[a:b], split.y[a:b]) for a, b in pairwise(cuts))
    return write_shards(
        pieces, folder, test=split.test, image=split.shape, names=split.feature_names
    )


def write_shards(
    pieces: Iterable[tuple[Any, Any]],
    folder: Path,
    *,
    test: tuple[Any, Any] | None = None,
    image: tuple[int, ...] | None = None,
    names: tuple[str, ...] | None = None,
) -> Path:
    """Write each piece (X, y) as a shard, one after the other; the index comes last.

    For data that never were in memory at once, ``pieces`` may be a generator.
    """
    make_folder(folder)
    if any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: take another folder.")
    sizes, width, dtype, digest = [], 0, None, hashlib.sha256()
    for k, (X, y) in enumerate(pieces):
        inputs, labels = _checked(X, y)
        if width and inputs.shape[1] != width:
            raise InputError(f"shard {k} has {inputs.shape[1]} features, those before {width}.")
        if dtype is not None and inputs.dtype != dtype:
            raise InputError(f"shard {k} holds {inputs.dtype} numbers, those before {dtype}.")
        width, dtype = inputs.shape[1], inputs.dtype
        for name, array in ((f"X-{k}.npy", inputs), (f"y-{k}.npy", labels)):
            with replacing(folder / name) as temporary, temporary.open("wb") as file:
                np.save(file, array)
        for rows in _rows(inputs):
            digest.update(rows.tobytes())
        sizes.append(len(labels))
    if not sizes:
        raise InputError("there are no shards to write.")
    if test is not None:
        inputs, labels = _checked(*test)
        for name, array in (("X-test.npy", inputs), ("y-test.npy", labels)):
            with replacing(folder / name) as temporary, temporary.open("wb") as file:
                np.save(file, array)
    about = {
        "version": VERSION,
        "sizes": sizes,
        "features": width,
        "sha256": digest.hexdigest(),
        "test": test is not None,
        "image": image,
        "names": names,
    }
    write_json(folder / INDEX, about)
    return folder


def _checked(X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Bytes or finite float32 numbers, and a label each."""
    inputs, labels = check_inputs(X, torch.float32).numpy(), as_array(y)
    if labels.dtype.kind == "O":
        labels = labels.astype(str)
    if labels.shape != (len(inputs),):
        raise InputError(f"X has {len(inputs)} rows but y has shape {labels.shape}.")
    return inputs, labels


def _rows(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    for k in range(0, len(array), ROWS):
        yield np.ascontiguousarray(array[k : k + ROWS])
