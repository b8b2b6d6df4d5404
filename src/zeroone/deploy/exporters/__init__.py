"""Exporters: functions that write an integer network in another format, registered by name.

An exporter is one file. The files of this package register themselves, and so do modules that an
installed package names in the entry point group ``zeroone.exporters``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from zeroone.deploy.integer_form import IntegerNetwork
from zeroone.nn.operators import Shape
from zeroone.utils.checks import InputError, need_extra, one_of

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


def template(name: str) -> Any:
    """Return a template of this package, for jinja2."""
    jinja2 = need_extra("pages", "jinja2")
    return jinja2.Environment(
        loader=jinja2.PackageLoader(__name__, ""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    ).get_template(name)


def export(
    network: IntegerNetwork, to: str, path: str | Path, image: Shape | None = None
) -> list[str]:
    """Write an integer network in another format.

    Args:
        network: The network.
        to: The name of an exporter: "c", "html", "onnx" or a registered one.
        path: The file, with the exporter's suffix.
        image: For html, the channels, height and width of a sample; () if samples are no images.

    Returns:
        Lines that describe what was written.

    """
    known, path = exporters(), Path(path)
    exporter = known[one_of("export", to, known)]
    if path.suffix != exporter.suffix:
        raise InputError(f"an export to {to} is a {exporter.suffix} file, not {path.name}.")
    if image is not None and not exporter.takes_image:
        others = " or ".join(f"--to {name}" for name, other in known.items() if other.takes_image)
        raise InputError(f"image or --image is for {others}.")
    return exporter.write(network, path, **({} if image is None else {"image": image}))
