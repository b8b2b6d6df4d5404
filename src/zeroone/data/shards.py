"""Data in shards: matrices on disk, of which each rank opens only its own.

A folder holds ``shards.json`` and, for each shard k, ``X-k.npy`` and ``y-k.npy``; perhaps
``X-test.npy`` and ``y-test.npy``. Shards may differ in size. Every rank reads all labels. The index
holds a checksum of each file and of itself, which is compared before anything is learnt from it.
"""

import hashlib
import json
from collections.abc import Iterable
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
from zeroone.utils.checks import InputError, check_file, count
from zeroone.utils.memmap import MappedRows, map_file
from zeroone.utils.parallel import ALONE, Team
from zeroone.utils.storage import make_folder, parse_json, replacing, sha256_of, write_json

INDEX = "shards.json"


@dataclass(frozen=True)
class Shards:
    """The samples of a sharded data set; ``of`` opens those of one rank."""

    folder: Path
    sizes: list[int]
    n_features: int
    digest: str  # SHA-256 of the index, which has those of all files
    checksums: dict[str, str]  # of the files, by name

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of all samples together."""
        return sum(self.sizes), self.n_features

    def __len__(self) -> int:
        return sum(self.sizes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Read all samples into memory."""
        del copy
        everything = self.of(ALONE)[0][:].numpy()
        return everything if dtype is None else everything.astype(dtype)

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Read some rows."""
        numbers = torch.as_tensor(np.arange(len(self))[rows])
        files = [map_file(self.folder / f"X-{k}.npy") for k in range(len(self.sizes))]
        shards = MappedRows(files)  # as they are: to check them takes longer than some rows
        return shards[numbers.reshape(-1)].numpy().reshape(*numbers.shape, -1)

    def of(self, team: Team) -> tuple[MappedRows, Tensor | None]:
        """Open a rank's shards; also return the numbers of their rows, None for all rows.

        Each rank reads its shards once for their checksums, as fast as the disk allows.
        """
        if team.size > len(self.sizes):
            raise InputError(
                f"{self.folder} has {len(self.sizes)} shards for {team.size} ranks: cut it into "
                f"more (zeroone data shard --shards)."
            )
        first, last = share_out(self.sizes, team.size)[team.rank : team.rank + 2]
        names = (f"X-{k}.npy" for k in range(first, last))
        rows = MappedRows([_read_same(self.folder / name, self.checksums) for name in names])
        if team.size == 1:
            return rows, None
        return rows, sum(self.sizes[:first]) + torch.arange(len(rows))


def share_out(sizes: list[int], ranks: int) -> list[int]:
    """Return the shard with which each rank begins, and the number of shards.

    Each rank has neighbouring shards, at least one, and about as many samples as the others.
    """
    ends, total, cuts = np.cumsum(sizes), sum(sizes), [0]
    for rank in range(1, ranks):
        nearest = int(np.abs(ends - total * rank / ranks).argmin()) + 1
        cuts.append(min(max(nearest, cuts[-1] + 1), len(sizes) - (ranks - rank)))
    return [*cuts, len(sizes)]


def load_shards(folder: Path) -> Split:
    """Read the labels of a folder of shards, and leave its samples on disk."""
    try:
        about: Any = parse_json((folder / INDEX).read_text(encoding="utf-8"))
        if (checksum := about.pop("checksum")) != _checksum(about):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"{folder / INDEX} is damaged or of another version of zeroone: cut the data into "
            f"shards again (zeroone data shard)."
        ) from None
    sizes, known = about["sizes"], about["files"]
    image, names = (None if about[n] is None else tuple(about[n]) for n in ("image", "names"))
    y = np.concatenate([_read_same(folder / f"y-{k}.npy", known) for k in range(len(sizes))])
    X_test, y_test = (
        np.array(_read_same(folder / name, known)) if name in known else None
        for name in ("X-test.npy", "y-test.npy")
    )
    X: Any = Shards(folder, sizes, about["features"], checksum, known)  # like an array here
    return Split(folder.name, X, y, X_test, y_test, shape=image, feature_names=names)


def _checksum(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _read_same(path: Path, checksums: dict[str, str]) -> NDArray[Any]:
    """Map a file, unless it is not as it was written."""
    try:
        digest = sha256_of(check_file(path, "file"))
    except (InputError, OSError):
        raise InputError(f"{path} is missing or damaged.") from None
    if digest != checksums[path.name]:
        raise InputError(
            f"{path} has changed since it was written: bring it back, or cut the data into shards "
            f"again (zeroone data shard)."
        )
    return map_file(path)


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
    if any(make_folder(folder).iterdir()):
        raise InputError(f"{folder} is not empty: take another folder.")
    sizes, kind = list[int](), ""
    checksums: dict[str, str] = {}
    for k, (X, y) in enumerate(pieces):
        inputs = _write(folder, k, X, y, checksums)
        before, kind = kind, f"{inputs.shape[1]} {inputs.dtype} features"
        if sizes and kind != before:
            raise InputError(f"shard {k} has {kind}, those before {before}.")
        sizes.append(len(inputs))
    if not sizes:
        raise InputError("there are no shards to write.")
    if test is not None:
        _write(folder, "test", *test, checksums)
    about: dict[str, Any] = {"sizes": sizes, "features": inputs.shape[1], "files": checksums}
    about |= {"image": image, "names": names}
    write_json(folder / INDEX, about | {"checksum": _checksum(about)})
    return folder


def _write(
    folder: Path, which: int | str, X: Any, y: Any, checksums: dict[str, str]
) -> NDArray[Any]:
    """Write inputs and labels, add their checksums to ``checksums``, and return the inputs."""
    inputs, labels = check_inputs(X, torch.float32).numpy(), as_array(y)
    if labels.dtype.kind == "O":
        labels = labels.astype(str)
    if labels.shape != (len(inputs),):
        raise InputError(f"X has {len(inputs)} rows but y has shape {labels.shape}.")
    for name, array in ((f"X-{which}.npy", inputs), (f"y-{which}.npy", labels)):
        with replacing(folder / name) as temporary:
            np.save(temporary, array)
            checksums[name] = sha256_of(temporary)
    return inputs
