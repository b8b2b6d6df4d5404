"""The integer form as C99: one header and one source, no allocation, additions only.

No floating point after the inputs, no multiplication after the first layer. ``network.c.jinja``
holds the code, this file its numbers.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray

from zeroone.deploy.integer_form import IntegerNetwork, Map, Stage
from zeroone.utils.checks import InputError
from zeroone.utils.storage import replacing
from zeroone.version import __version__

WRITTEN = "A 0/1 network, written by zeroone"
COLUMNS = 96  # of a line of numbers
TYPES = {"int8": "int8_t", "int32": "int32_t", "uint32": "uint32_t", "float32": "float"}
WORD = 32  # bits that are counted at a time


@dataclass(frozen=True)
class Table:
    """A constant array."""

    name: str
    values: NDArray[Any]

    @property
    def type(self) -> str:
        """In C."""
        return TYPES[self.values.dtype.name]


@dataclass(frozen=True)
class Size:
    """Of the generated code, for microcontrollers."""

    flash: int  # bytes of constants
    ram: int  # bytes of working memory


def write_c(network: IntegerNetwork, path: Path) -> Size:
    """Write ``path`` (.c) and the header beside it (.h); names come from the file's."""
    name = path.stem
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise InputError(f"{path.name} would make {name!r} a name in C, which it cannot be.")
    content = describe(network, name)
    targets = {"network.h.jinja": path.with_suffix(".h"), "network.c.jinja": path}
    for target in targets.values():
        if target.is_file() and not target.read_bytes().startswith(f"/* {WRITTEN}".encode()):
            raise InputError(f"{target} is there and not by zeroone: it is left as it is.")
    for template, target in targets.items():
        with replacing(target) as temporary:
            temporary.write_text(_render(template, content), encoding="ascii")
    return Size(content["flash"], content["ram"])


def describe(network: IntegerNetwork, name: str) -> dict[str, Any]:
    """All that the templates need."""
    inputs = network.inputs
    own = inputs.taken is not None or not inputs.are_bytes  # whether inputs get a buffer
    sources = _buffers(network, own)
    stages = [_stage(network, i, sources) for i in range(len(network.stages))]
    tables = list(_tables(network))
    sizes: dict[str, int] = {}
    for buffer, size in zip(sources, _widths(network), strict=True):
        if buffer != "sample":
            sizes[buffer] = max(size, sizes.get(buffer, 0))
    most = max(m.n_out for m in network.maps)
    words = max((s.get("n_words", 0) for s in stages), default=0)
    hidden = stages[:-1]
    kinds = {s["kind"] for s in stages if not s["is_image"]}
    images = {s["kind"] for s in hidden if s["is_image"]}
    if any(s["is_image"] and s["shortcut"] for s in hidden):
        images.add("bits")
    if any(not s["is_image"] and s["shortcut"] for s in hidden):
        kinds.add("bits")
    return {
        "about": f"{WRITTEN} {__version__}.",
        "name": name,
        "NAME": name.upper(),
        "tables": tables,
        "buffers": [{"name": b, "size": size} for b, size in sizes.items()],
        "most_units": most,
        "most_words": words,
        "labels": [_c_string(str(label)) for label in network.classes],
        "n_features": inputs.n_features,
        "order": _order(network),
        "n_taken": inputs.n_taken,
        "gather": inputs.taken is not None,
        "input_type": "uint8_t" if inputs.are_bytes else "float",
        "stages": stages,
        "uses": {
            "dense_bits": "bits" in kinds,
            "dense_bytes": "bytes" in kinds,
            "signs": "signs" in kinds,
            "compare": any(not s["is_image"] for s in hidden),
            "images": bool(images),
            "window_bits": "bits" in images,
            "window_bytes": "bytes" in images,
        },
        "flash": sum(table.values.nbytes for table in tables),
        "ram": sum(sizes.values()) + 4 * most + 4 * words,
    }


def _order(network: IntegerNetwork) -> str:
    """In which the numbers of a sample come, for a comment."""
    if network.stages[0].main.kernel:
        shape = " x ".join(map(str, network.stages[0].main.shape_in))
        return f"channels x rows x columns: {shape}"
    if network.feature_names is None:
        return "in the order of the training data"
    names = ", ".join(network.feature_names).encode("ascii", "replace").decode()
    return f"in this order: {names}".replace("*/", "* /").replace("\n", " ")


def _widths(network: IntegerNetwork) -> list[int]:
    """Of V[0], V[1], ...: how many numbers."""
    return [stage.main.n_inputs for stage in network.stages]


def _buffers(network: IntegerNetwork, own: bool) -> list[str]:
    """Where V[0], V[1], ... are kept: two places in turn, unless shortcuts need them for longer."""
    kept = any(stage.shortcut for stage in network.stages)
    names = [f"bits_{i if kept else i % 2}" for i in range(len(network.stages))]
    if not own:
        names[0] = "sample"
    return names


def _tables(network: IntegerNetwork) -> Sequence[Table]:
    inputs, tables = network.inputs, []
    if inputs.taken is not None:
        tables.append(Table("taken", inputs.taken.astype(np.int32)))
    if inputs.low is not None and inputs.rate is not None:
        tables += [Table("low", inputs.low), Table("rate", inputs.rate)]
    for i, stage in enumerate(network.stages):
        counted = _counts(stage, i)
        weights = sign_words(stage.main) if counted else stage.main.weights.T.ravel()
        tables.append(Table(f"weights_{i}", weights))
        if stage.shortcut is not None:
            tables.append(Table(f"shortcut_{i}", stage.shortcut.weights.T.ravel()))
        tables.append(Table(f"limits_{i}", in_order(stage)))
    return tables


def _counts(stage: Stage, i: int) -> bool:
    """Whether a layer counts bits instead of adding up weights."""
    return i > 0 and not stage.main.kernel and stage.main.has_signs


def sign_words(linear: Map) -> NDArray[np.uint32]:
    """By unit and word: which inputs have the weight 1, and which have -1."""
    n_out, n_in = linear.weights.shape
    wide = np.zeros((n_out, -(-n_in // WORD) * WORD), np.int8)
    wide[:, :n_in] = linear.weights
    both = [np.packbits(wide == sign, axis=1, bitorder="little").view("<u4") for sign in (1, -1)]
    return np.stack(both, axis=-1).astype(np.uint32).ravel()


def in_order(stage: Stage) -> NDArray[np.int32]:
    """The thresholds in the order in which they are compared: pooled positions, windows, units."""
    limits = stage.thresholds
    if limits.ndim == 1:
        return limits
    if stage.pool != "max":
        return np.ascontiguousarray(limits.transpose(1, 2, 0)).ravel()
    units, rows, columns = stage.shape_out
    k = stage.window
    tiles = limits[:, : rows * k, : columns * k].reshape(units, rows, k, columns, k)
    return np.ascontiguousarray(tiles.transpose(1, 3, 2, 4, 0)).ravel()


def _stage(network: IntegerNetwork, i: int, buffers: list[str]) -> dict[str, Any]:
    """What the template must know of a layer."""
    stage = network.stages[i]
    last = i == len(network.stages) - 1
    content: dict[str, Any] = {
        "number": i,
        "last": last,
        "is_image": bool(stage.main.kernel),
        "kind": "bits" if i else "bytes",
        "units": stage.main.n_out,
        "n_inputs": stage.main.n_inputs,
        "source": buffers[i],
        "target": None if last else buffers[i + 1],
        "shortcut": None,
    }
    if _counts(stage, i):
        content |= {"kind": "signs", "n_words": -(-stage.main.n_inputs // WORD)}
    if stage.shortcut is not None:
        content["earlier"] = buffers[i + 1 - stage.skip]
        content["shortcut"] = f"shortcut_{i}"
        content["shortcut_inputs"] = stage.shortcut.n_inputs
    if not stage.main.kernel:
        return content
    _, rows, columns = stage.shape_out
    content |= {
        "main": _convolution(stage.main, f"weights_{i}", stage.window),
        "main_place": _place(stage.main),
        "rows": rows,
        "columns": columns,
        "positions": rows * columns,
        "pool": stage.pool,
        "window": stage.window,
        "by_position": stage.thresholds.ndim == 3,
    }
    arguments = [buffers[i], content["target"]]
    if stage.shortcut is not None:
        content["shortcut"] = _convolution(stage.shortcut, f"shortcut_{i}", stage.window)
        content["shortcut_place"] = _place(stage.shortcut)
        arguments.insert(1, content["earlier"])
    return content | {"arguments": ", ".join(arguments)}


def _convolution(linear: Map, weights: str, window: int) -> str:
    channels, height, width = linear.shape_in
    plane, line = height * width, linear.stride * width
    numbers = [channels, height, width, plane, linear.kernel, linear.stride, line]
    numbers += [window * linear.stride, window * line]
    numbers += [linear.n_out, linear.kernel * linear.n_out]
    return f"{{{weights}, {', '.join(map(str, numbers))}}}"


def _place(linear: Map) -> str:
    start = -linear.padding * linear.shape_in[2] - linear.padding
    return f"{{{-linear.padding}, {-linear.padding}, {start}}}"


def _c_string(text: str) -> str:
    """A literal in ASCII; other characters as UTF-8, in octal."""
    out = ""
    for byte in text.encode("utf-8"):
        plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
        out += chr(byte) if plain else f"\\{byte:03o}"
    return f'"{out}"'


def _render(template: str, content: dict[str, Any]) -> str:
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["lines"] = _lines
    text = (resources.files(__package__) / template).read_text(encoding="utf-8")
    return environment.from_string(text).render(content)


def _lines(values: NDArray[Any]) -> str:
    """Numbers with commas between them, in lines."""
    if values.dtype == np.float32:
        words = [f"{_float_literal(float(value))}," for value in values]
    else:
        end = "u," if values.dtype == np.uint32 else ","
        words = [f"{int(value)}{end}" for value in values]
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) + 1 > COLUMNS:
            lines.append(line)
            line = ""
        line += f" {word}" if line else f"    {word}"
    return "\n".join([*lines, line])


def _float_literal(value: float) -> str:
    """Nine digits tell every float32 from the others."""
    text = f"{value:.9g}"
    return f"{text}f" if any(mark in text for mark in ".en") else f"{text}.0f"
