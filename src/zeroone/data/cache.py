"""The cache: each published data set as four arrays of bytes, there in full or not at all.

A data set's folder is filled under another name and renamed when it is complete, so that no reader
finds a broken one. Arrays are memory-mapped: loading takes neither time nor memory.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from zeroone.data.archives import Files
from zeroone.data.published import PARTS, PublishedImages, read_part
from zeroone.data.splits import Split
from zeroone.utils.checks import InputError
from zeroone.utils.memmap import map_file
from zeroone.utils.storage import write_json


def cache_root(data_dir: Path | None = None) -> Path:
    """Return ``data_dir``, else ZEROONE_DATA, else the platform's cache folder."""
    if data_dir is not None:
        return data_dir
    if named := os.environ.get("ZEROONE_DATA"):
        return Path(named)
    from platformdirs import user_cache_path

    return Path(user_cache_path("zeroone")) / "data"


def home(spec: PublishedImages, root: Path) -> Path:
    """Return the data set's folder, apart from files that the user keeps in ``root``."""
    return root / "arrays" / spec.name


def load_cached(spec: PublishedImages, root: Path) -> Split | None:
    """Memory-map the data set; return None if it is not there in full."""
    arrays: dict[str, NDArray[Any]] = {}
    for part in PARTS:
        n = spec.samples(part)
        for kind, shape in (("images", (n, spec.n_features)), ("labels", (n,))):
            path = home(spec, root) / f"{part}_{kind}.npy"
            try:
                array = map_file(path, "c")
            except InputError:
                return None
            if array.shape != shape or array.dtype != np.uint8:
                return None
            if kind == "labels" and array.max() >= len(spec.classes):
                return None
            arrays[f"{part}_{kind}"] = array if kind == "images" else array.astype(np.int64)
    train, test = ((arrays[f"{part}_images"], arrays[f"{part}_labels"]) for part in PARTS)
    return Split(spec.name, *train, *test, shape=spec.shape, class_names=spec.classes)


def store(spec: PublishedImages, root: Path, files: Files) -> None:
    """Write both parts, and move them to their place together.

    Files without the data set raise an ``InputError`` that has no message.
    """
    place = home(spec, root)
    if place.exists() and not (place / "meta.json").is_file():
        raise InputError(
            f"{place} is not a folder of ours: move it away, or use another --data-dir."
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{spec.name}-") as name:
        unfinished = Path(name) / spec.name
        unfinished.mkdir()
        for part in PARTS:
            found = read_part(spec, files, part)
            if found is None:
                raise InputError
            np.save(unfinished / f"{part}_images.npy", found[0])
            np.save(unfinished / f"{part}_labels.npy", found[1])
            del found  # before the next part is read
        fetched = datetime.now(UTC).isoformat(timespec="seconds")
        write_json(unfinished / "meta.json", {"source": files.source, "fetched": fetched})
        shutil.rmtree(place, ignore_errors=True)
        unfinished.rename(place)


@contextmanager
def locked(spec: PublishedImages, root: Path) -> Iterator[None]:
    """Let one process at a time fetch a data set; the others wait and then find it there.

    What the disk refuses becomes one sentence that names the way out.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{spec.name}.lock"):
            yield
    except OSError as error:
        raise InputError(
            f"cannot write {spec.name} to {root}: {error.strerror or error}; free some space or "
            f"choose another --data-dir."
        ) from None
