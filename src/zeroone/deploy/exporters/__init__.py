"""Exporters: functions that write an integer network in another format, registered by name.

An exporter is one file. The files of this package register themselves, and so do modules that an
installed package names in the entry point group ``zeroone.exporters``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules

Write = Callable[..., list[str]]
EXPORTERS: dict[str, "Exporter"] = {}


@dataclass(frozen=True)
class Exporter:
    """A registered exporter; see ``register_exporter``."""

    write: Write
    suffix: str
    takes_image: bool


def register_exporter(
    name: str, suffix: str, *, takes_image: bool = False
) -> Callable[[Write], Write]:
    """Register a function ``write(network, path)`` as an exporter.

    It writes an ``IntegerNetwork`` to ``path`` and returns lines that describe what it wrote.

    Args:
        name: What users pass to ``zeroone export --to``.
        suffix: The suffix of the files that it writes, such as ".c".
        takes_image: Whether it also takes ``image``, the shape of a sample (``--image``).

    """

    def register(write: Write) -> Write:
        EXPORTERS[name] = Exporter(write, suffix, takes_image)
        return write

    return register


def exporters() -> dict[str, Exporter]:
    """Return all exporters by name."""
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    for entry in entry_points(group="zeroone.exporters"):
        entry.load()
    return dict(sorted(EXPORTERS.items()))
