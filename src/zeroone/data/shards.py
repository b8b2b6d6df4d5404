"""Data in shards: matrices on disk, of which each rank opens only its own.

A folder holds ``shards.json`` and, for each shard k, ``X-k.npy`` and ``y-k.npy``; perhaps
``X-test.npy`` and ``y-test.npy``. Shards may differ in size. Every rank reads all labels. The index
holds a checksum of each file, which is compared before anything is learnt from the file.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zeroone.data.splits import Split
from zeroone.nn.inputs import as_array, check_inputs
from zeroone.nn.labels import is_real_text
from zeroone.utils.checks import InputError, check_file, count
from zeroone.utils.memmap import MappedRows, map_file
from zeroone.utils.parallel import Team
from zeroone.utils.schema import Maybe, find_fault, is_count, parse_json
from zeroone.utils.storage import make_folder, replacing, write_json

INDEX = "shards.json"
VERSION = 2
ROWS = 65536  # samples that are hashed at a time
FORM = {  # of the index
    "version": int,
    "sizes": [is_count],
    "features": is_count,
    "sha256": str,
    "files": {...: str},
    "test": bool,
    "image": Maybe([is_count]),
    "names": Maybe([str]),
}


@dataclass(frozen=True)
class Shards:
    """The samples of a sharded data set; ``of`` opens those of one rank."""

    folder: Path
    sizes: list[int]
    n_features: int
    digest: str  # SHA-256 of all samples, taken when they were written
    checksums: dict[str, str] = field(default_factory=dict)  # of the files, by name

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of all samples together."""
        return sum(self.sizes), self.n_features

    def __len__(self) -> int:
        return sum(self.sizes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Read all samples into memory."""
        del copy
        everything = np.concatenate(self._open(range(len(self.sizes))))
        return everything if dtype is None else everything.astype(dtype)

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Read some rows."""
        numbers = torch.as_tensor(np.arange(len(self))[rows])
        shards = MappedRows([self._map(k) for k in range(len(self.sizes))])  # of some rows: as is
        return shards[numbers.reshape(-1)].numpy().reshape(*numbers.shape, -1)

    def of(self, team: Team) -> tuple[MappedRows, Tensor | None]:
        """Open a rank's shards; also return the numbers of their rows, None for all rows.

        Each rank reads its shards once for their checksums, as fast as the disk allows.
        """
        if team.size == 1:
            return MappedRows(self._open(range(len(self.sizes)))), None
        if team.size > len(self.sizes):
            raise InputError(
                f"{self.folder} has {len(self.sizes)} shards for {team.size} ranks: cut it into "
                f"more (zeroone data shard --shards)."
            )
        first, last = share_out(self.sizes, team.size)[team.rank : team.rank + 2]
        numbers = torch.arange(sum(self.sizes[:first]), sum(self.sizes[:last]))
        return MappedRows(self._open(range(first, last))), numbers

    def _open(self, shards: range) -> list[NDArray[Any]]:
        """Map shards whose files are as they were written."""
        for k in shards:
            _check_same(self.folder / f"X-{k}.npy", self.checksums)
        return [self._map(k) for k in shards]

    def _map(self, k: int) -> NDArray[Any]:
        return _samples(self.folder / f"X-{k}.npy", (self.sizes[k], self.n_features))


def share_out(sizes: list[int], ranks: int) -> list[int]:
    """Return the shard with which each rank begins, and the number of shards.

    Each rank has neighbouring shards, at least one, and about as many samples as the others.
    """
    ends, total, cuts = np.cumsum(sizes), sum(sizes), [0]
    for rank in range(1, ranks):
        nearest = int(np.abs(ends - total * rank / ranks).argmin()) + 1
        cuts.append(min(max(nearest, cuts[-1] + 1), len(sizes) - (ranks - rank)))
    return [*cuts, len(sizes)]


def is_sharded(folder: Path) -> bool:
    """Tell whether ``write_shards`` wrote the folder."""
    return (folder / INDEX).is_file()


def load_shards(folder: Path) -> Split:
    """Read the labels of a folder of shards, and leave its samples on disk."""
    try:
        about: Any = parse_json((folder / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        about = None
    if find_fault(about, {"version": int}) is None and about["version"] != VERSION:
        raise InputError(
            f"{folder / INDEX} is of another version of zeroone: cut the data into shards again "
            f"(zeroone data shard)."
        )
    if find_fault(about, FORM) is not None:
        raise InputError(f"{folder / INDEX} is not a readable index of shards.")
    sizes, n_features, known = about["sizes"], about["features"], about["files"]
    image, names = (
        None if about.get(name) is None else tuple(about[name]) for name in ("image", "names")
    )
    fits = image is None or (len(image) == 3 and math.prod(image) == n_features)
    if not sizes or not n_features or not fits or (names and len(names) != n_features):
        raise InputError(f"{folder / INDEX} does not describe its samples.")
    names_read = [f"y-{k}.npy" for k in range(len(sizes))]
    for name in names_read + (["X-test.npy", "y-test.npy"] if about["test"] else []):
        _check_same(folder / name, known)
    labels = [_labels(folder / f"y-{k}.npy", size) for k, size in enumerate(sizes)]
    test: tuple[Any, Any] = (None, None)
    if about["test"]:
        X_test = np.array(_samples(folder / "X-test.npy", (None, n_features)))
        test = X_test, np.array(_labels(folder / "y-test.npy", len(X_test)))
    X: Any = Shards(folder, sizes, n_features, about["sha256"], known)  # like an array here
    return Split(folder.name, X, np.concatenate(labels), *test, shape=image, feature_names=names)


def _samples(path: Path, shape: tuple[int | None, int]) -> NDArray[Any]:
    """Map a file of samples; there may be any number (None) of them."""
    found = map_file(path)
    n, n_features = shape
    if found.ndim != 2 or found.shape != (len(found) if n is None else n, n_features):
        raise InputError(f"{path} has another shape than {INDEX} says.")
    if found.dtype not in (np.uint8, np.float32):
        raise InputError(f"{path} holds {found.dtype}, neither bytes nor float32 numbers.")
    return found


def _labels(path: Path, size: int) -> NDArray[Any]:
    """Map a file of labels."""
    found = map_file(path)
    if found.shape != (size,):
        raise InputError(f"{path} has another length than {INDEX} says.")
    if found.dtype.kind not in "biufU" or not is_real_text(found):
        raise InputError(f"{path} holds {found.dtype}, neither numbers nor text.")
    return found


def _check_same(path: Path, checksums: dict[str, str]) -> None:
    """Refuse a file that is not as it was written."""
    try:
        with check_file(path, "file").open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (InputError, OSError):
        raise InputError(f"{path} is missing or damaged.") from None
    if digest != checksums.get(path.name):
        raise InputError(
            f"{path} has changed since it was written: bring it back, or cut the data into shards "
            f"again (zeroone data shard)."
        )


def shard(split: Split, folder: Path, shards: int) -> Path:
    """Write a data set as that many shards of about the same size."""
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
    """Write each piece as a shard, one after the other; the index comes last.

    Args:
        pieces: Pairs (X, y); a generator, if the data do not fit into memory.
        folder: A new or empty folder.
        test: The test part (X, y).
        image: Channels, height and width of samples that are images.
        names: The names of the features.
    """
    make_folder(folder)
    if any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: take another folder.")
    sizes, width, dtype, digest = [], 0, None, hashlib.sha256()
    checksums: dict[str, str] = {}
    for k, (X, y) in enumerate(pieces):
        inputs = _write(folder, k, X, y, checksums)
        if width and inputs.shape[1] != width:
            raise InputError(f"shard {k} has {inputs.shape[1]} features, those before {width}.")
        if dtype is not None and inputs.dtype != dtype:
            raise InputError(f"shard {k} holds {inputs.dtype} numbers, those before {dtype}.")
        width, dtype = inputs.shape[1], inputs.dtype
        for first in range(0, len(inputs), ROWS):
            digest.update(inputs[first : first + ROWS].tobytes())
        sizes.append(len(inputs))
    if not sizes:
        raise InputError("there are no shards to write.")
    if test is not None:
        _write(folder, "test", *test, checksums)
    about = {
        "version": VERSION,
        "sizes": sizes,
        "features": width,
        "sha256": digest.hexdigest(),
        "files": checksums,
        "test": test is not None,
        "image": image,
        "names": names,
    }
    write_json(folder / INDEX, about)
    return folder


def _write(
    folder: Path, which: int | str, X: Any, y: Any, checksums: dict[str, str]
) -> NDArray[Any]:
    """Write bytes or finite float32 numbers, and a label each; return the inputs.

    The checksums of both files are added to ``checksums``.
    """
    inputs, labels = check_inputs(X, torch.float32).numpy(), as_array(y)
    if labels.dtype.kind == "O":
        labels = labels.astype(str)
    if labels.shape != (len(inputs),):
        raise InputError(f"X has {len(inputs)} rows but y has shape {labels.shape}.")
    for name, array in ((f"X-{which}.npy", inputs), (f"y-{which}.npy", labels)):
        with replacing(folder / name) as temporary, temporary.open("wb+") as file:
            np.save(file, array)
            file.seek(0)
            checksums[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return inputs
