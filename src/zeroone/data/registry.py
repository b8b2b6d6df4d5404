"""The data sets that users find by name, and how to add one."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from zeroone.data.splits import Split
from zeroone.utils.checks import InputError

Report = Callable[[str, int, int | None], None]  # a file, its bytes so far, its bytes in all

REGISTRY: dict[str, "DataSet"] = {}


class DataSet(ABC):
    """A data set with a name; ``load`` is all that a subclass must define.

    ``data_dir`` is the folder where data sets are kept; None for the default cache.
    """

    name: str

    @abstractmethod
    def load(self, data_dir: Path | None = None) -> Split:
        """Load the data set without a download."""

    def get(
        self, origin: str = "auto", data_dir: Path | None = None, report: Report | None = None
    ) -> Split:
        """Load the data set, after bringing it to the cache if need be.

        ``origin`` is "auto", a source, or the user's own file or folder; ``report`` hears about
        the progress of downloads.
        """
        del report  # nothing is downloaded
        if origin != "auto":
            raise InputError(f"{self.name} needs no --from: it is always there.")
        return self.load(data_dir)

    def place(self, data_dir: Path | None = None) -> str | None:  # noqa: ARG002
        """Say where the data are; None if they have to be fetched first."""
        return "memory"

    def describe(self, data_dir: Path | None = None) -> dict[str, Any]:
        """Sum the data set up for ``zeroone data list``."""
        found = self.load(data_dir)
        return {
            "name": self.name,
            "train": len(found.y),
            "test": 0 if found.y_test is None else len(found.y_test),
            "shape": list(found.shape or found.X.shape[1:]),
            "classes": len(np.unique(found.y)),
            "there": True,
        }


def register_data_set(data_set: DataSet) -> DataSet:
    """Let users name the data set wherever they name data."""
    if data_set.name in REGISTRY:
        raise InputError(f"there is a data set {data_set.name!r} already.")
    return REGISTRY.setdefault(data_set.name, data_set)
