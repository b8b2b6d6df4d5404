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

    Attributes:
        layouts: For each layout, in the order to try, a function that reads a part from files;
            it returns None if the files do not have the layout.
        shape: Channels, height, width.
        counts: For "train" and "test", how many samples each class has, if not equally many.
        folders: Where a system package puts the files.
        archives: The pattern of the names of archives that users have.
    """

    name: str
    layouts: dict[str, Callable[[Any, Files, str], Part | None]]
    n_train: int
    n_test: int
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    counts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    remotes: tuple[Remote, ...] = ()
    npm: str | None = None
    debian: str | None = None
    folders: tuple[str, ...] = ()
    archives: str = ""

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

    # What follows imports the sources only when they are needed: they load much of the library.

    def load(self, data_dir: Path | None = None) -> Split:
        """Load the data set from the cache, or from files that are there already."""
        from zeroone.data.sources import from_cache

        return from_cache(self, data_dir)

    def get(
        self,
        origin: str = "auto",
        data_dir: Path | None = None,
        *,
        report: Report | None = None,
        say: Say | None = None,
    ) -> Split:
        """Bring the data set into the cache; see ``sources.obtain``."""
        from zeroone.data.sources import obtain

        return obtain(self, origin, data_dir, report=report, say=say)

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
    """Read "train" or "test" in the first layout that the files have.

    Returns:
        Images and labels; None if the files have none of the layouts.

    Raises:
        InputError: The files are damaged, or are not what was published.
    """
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
