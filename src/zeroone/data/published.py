"""A published set of images: its facts, its sources and the layouts of its files."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.data.archives import Files
from zeroone.data.registry import DataSet, Report, Say
from zeroone.data.splits import Split
from zeroone.utils.checks import InputError

Bytes = NDArray[np.uint8]
Part = tuple[Bytes, Bytes]  # images, one a row, channel by channel; labels
PARTS = ("train", "test")


@dataclass(frozen=True)
class Remote:
    """A file on a data set's own site, and its SHA-256 digest."""

    url: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's name."""
        return self.url.rsplit("/", 1)[-1]


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
    archives: str = ""  # the pattern of the names that users' archives have

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

    # The methods below import the cache and the sources when they are called, since most programs
    # do without them.

    def load(self, data_dir: Path | None = None) -> Split:
        """Load the data set from the cache, or from files that are there already."""
        from zeroone.data import cache, sources

        root = cache.cache_root(data_dir)
        found, broken = cache.load_cached(self, root), ""
        if found is None and (root.is_dir() or any(Path(f).is_dir() for f in self.folders)):
            with cache.locked(self, root):
                try:
                    sources.from_files(self, root)
                except InputError as reason:
                    broken = f" ({reason})" if str(reason) else ""
            found = cache.load_cached(self, root)
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
        from zeroone.data import cache, sources

        root = cache.cache_root(data_dir)
        if origin not in sources.SOURCES and not Path(origin).exists():
            raise InputError(
                f"--from takes {', '.join(sources.SOURCES)}, or a file or folder; there is no "
                f"{origin!r}."
            )
        with cache.locked(self, root):
            if origin not in sources.SOURCES:
                sources.from_given(self, root, Path(origin))
            elif cache.load_cached(self, root) is None:
                sources.fetch(self, root, origin, report, say or (lambda _: None))
            found = cache.load_cached(self, root)
        if found is None:
            raise InputError(f"{self.name} in {root} was changed while it was read: try again.")
        return found

    def place(self, data_dir: Path | None = None) -> str | None:
        """Name the data set's folder in the cache, if it is there in full."""
        from zeroone.data.cache import cache_root, home, load_cached

        root = cache_root(data_dir)
        return None if load_cached(self, root) is None else str(home(self, root))

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


def read_part(spec: PublishedImages, files: Files, part: str) -> Part | None:
    """Read "train" or "test" in the first layout that the files have; None if they have none."""
    attempts = (read(spec, files, part) for read in spec.layouts.values())
    found = next((attempt for attempt in attempts if attempt is not None), None)
    if found is None:
        return None
    images, labels = found
    n = spec.samples(part)
    if images.shape != (n, spec.n_features) or labels.shape != (n,):
        raise InputError(
            f"{files.source} is not {spec.name}: its {part} part has {len(images):,} images of "
            f"{images.shape[1]:,} bytes and {len(labels):,} labels, published are {n:,} of "
            f"{spec.n_features:,}."
        )
    if tuple(np.bincount(labels, minlength=len(spec.classes))) != spec.class_counts(part):
        raise InputError(
            f"{files.source} is not {spec.name}: its {part} part has other numbers of samples a "
            f"class."
        )
    return images, labels
