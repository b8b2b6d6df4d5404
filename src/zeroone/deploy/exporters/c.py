"""Export to C99: one source and one header, no allocation.

The code uses no floating point after the inputs and no multiplication after the first layer.
``network.c.jinja`` holds the code, this file supplies its numbers.
"""

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zeroone.deploy.exporters import register_exporter
from zeroone.deploy.integer_form import IntegerNetwork, Map, Stage, weight_bits
from zeroone.utils.checks import InputError, need_extra, printable
from zeroone.utils.storage import replacing
from zeroone.version import __version__

WRITTEN = "A 0/1 network, written by zeroone"
WORD = 32  # bits that the code counts at a time
TYPES = {"int8": "int8_t", "int32": "int32_t", "uint32": "uint32_t", "float32": "float"}
SUFFIXES = {"uint32": "u", "float32": "f"}


@dataclass(frozen=True)
class Layer:
    """A stage, the kind of its inputs ("bytes", "bits" or "signs"), and where its bits are."""

    number: int
    stage: Stage
    kind: str
    source: str
    target: str
    earlier: str  # what the shortcut takes

    @property
    def functions(self) -> set[str]:
        """The names of the C functions that it calls."""
        does = "window" if self.stage.main.kernel else "add"
        return {f"{does}_{self.kind}"} | ({f"{does}_bits"} if self.stage.shortcut else set())


class Size(NamedTuple):
    """The size of the generated code, for microcontrollers."""

    flash: int  # bytes of constants
    ram: int  # bytes of working memory


@register_exporter("c", suffix=".c")
def export_c(network: IntegerNetwork, path: Path) -> list[str]:
    """Write C99 source with its header."""
    size = write_c(network, path)
    return [
        f"{path} and {path.with_suffix('.h')}: C99, {path.stem}_scores and {path.stem}_classify",
        f"flash {size.flash:,} bytes of constants, RAM {size.ram:,} bytes",
    ]


def write_c(network: IntegerNetwork, path: Path) -> Size:
    """Write ``path`` (.c) and the header beside it (.h); C names start with the file's name.

    Raises:
        InputError: The file's name is no C name, or another program wrote one of the files.

    """
    name = path.stem
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise InputError(f"{path.name} would make {name!r} a name in C, which it cannot be.")
    content = describe(network, name)
    targets = {"network.h.jinja": path.with_suffix(".h"), "network.c.jinja": path}
    for target in targets.values():
        if target.is_file() and not target.read_bytes().startswith(f"/* {WRITTEN}".encode()):
            raise InputError(f"{target} is there and not by zeroone: it is left as it is.")
    jinja2: Any = need_extra("pages", "jinja2")
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for template, target in targets.items():
        text = (resources.files(__package__) / template).read_text(encoding="utf-8")
        with replacing(target) as temporary:
            code = environment.from_string(text).render(content)
            temporary.write_text(code, encoding="ascii")
    return Size(content["flash"], content["ram"])


def describe(network: IntegerNetwork, name: str) -> dict[str, Any]:
    """Collect all that the templates need."""
    layers = _layers(network)
    tables = _tables(network, layers)
    buffers: dict[str, int] = {}
    for layer in layers:
        if layer.source != "sample":
            width = layer.stage.main.n_inputs
            buffers[layer.source] = max(width, buffers.get(layer.source, 0))
    n_units = max(m.n_out for m in network.maps)
    n_words = max(-(-x.stage.main.n_inputs // WORD) * (x.kind == "signs") for x in layers)
    uses = set[str]().union(*(layer.functions for layer in layers))
    if not all(layer.stage.main.kernel for layer in layers[:-1]):
        uses.add("compare")
    return {
        "about": f"{WRITTEN} {__version__}.",
        "name": name,
        "NAME": name.upper(),
        "tables": tables,
        "types": TYPES,
        "literals": _literals,
        "buffers": buffers,
        "n_units": n_units,
        "n_words": n_words,
        "labels": [_c_string(str(label)) for label in network.classes],
        "inputs": network.inputs,
        "input_type": "uint8_t" if network.inputs.are_bytes else "float",
        "order": _order(network),
        "layers": layers,
        "uses": uses,
        "flash": sum(values.nbytes for values in tables.values()),
        "ram": sum(buffers.values()) + 4 * n_units + 4 * n_words,
    }


def _order(network: IntegerNetwork) -> str:
    """Say in a comment how the numbers of a sample are ordered."""
    if network.stages[0].main.kernel:
        shape = " x ".join(map(str, network.stages[0].main.shape_in))
        return f"channels x rows x columns: {shape}"
    if network.feature_names is None:
        return "in the order of the training data"
    names = printable(", ".join(network.feature_names)).encode("ascii", "backslashreplace")
    # In a comment, neither its end nor another beginning may appear.
    return f"in this order: {names.decode()}".replace("*/", "* /").replace("/*", "/ *")


def _layers(network: IntegerNetwork) -> list[Layer]:
    """Give each layer its buffers: two in turn, or one each if a shortcut needs old bits."""
    stages, inputs = network.stages, network.inputs
    n_buffers = len(stages) + 1 if any(stage.shortcut for stage in stages) else 2
    buffers = [f"bits_{i % n_buffers}" for i in range(len(stages) + 1)]
    if inputs.taken is None and inputs.are_bytes:
        buffers[0] = "sample"
    return [
        Layer(i, stage, _kind(stage, i), buffers[i], buffers[i + 1], buffers[i + 1 - stage.skip])
        for i, stage in enumerate(stages)
    ]


def _kind(stage: Stage, i: int) -> str:
    if i == 0:
        return "bytes"
    return "signs" if weight_bits(stage.main.weights) < 8 and not stage.main.kernel else "bits"


def _tables(network: IntegerNetwork, layers: list[Layer]) -> dict[str, NDArray[Any]]:
    """Order all constants as the code reads them."""
    inputs, tables = network.inputs, dict[str, NDArray[Any]]()
    if inputs.taken is not None:
        tables["taken"] = inputs.taken.astype(np.int32)
    if inputs.low is not None and inputs.rate is not None:
        tables |= {"low": inputs.low, "rate": inputs.rate}
    for i, layer in enumerate(layers):
        main, shortcut = layer.stage.main, layer.stage.shortcut
        signs = layer.kind == "signs"
        tables[f"weights_{i}"] = sign_words(main) if signs else main.weights.T.ravel()
        if shortcut is not None:
            tables[f"shortcut_{i}"] = shortcut.weights.T.ravel()
        tables[f"limits_{i}"] = layer.stage.ordered_limits
    return tables


def _literals(values: NDArray[Any]) -> str:
    """Write numbers in C; float32 numbers have enough digits to tell them apart."""
    suffix = SUFFIXES.get(values.dtype.name, "")
    words = [f"{word}{suffix}," for word in values.astype(str).tolist()]
    per_line = 16 if values.dtype == np.int8 else 5
    rows = (words[k : k + per_line] for k in range(0, len(words), per_line))
    return "\n".join("    " + " ".join(row) for row in rows)


def sign_words(linear: Map) -> NDArray[np.uint32]:
    """Pack weights by unit and word: which inputs have the weight 1, then which have -1."""
    wide = np.pad(linear.weights, ((0, 0), (0, -linear.weights.shape[1] % WORD)))
    both = [np.packbits(wide == sign, axis=1, bitorder="little").view("<u4") for sign in (1, -1)]
    return np.stack(both, axis=-1).astype(np.uint32).ravel()


def _c_string(text: str) -> str:
    """Quote a text in ASCII, with other characters as octal UTF-8."""
    if "\0" in text:
        raise InputError(f"the label {text!r} holds a NUL, which would end it in C: rename it.")
    out = ""
    for byte in text.encode("utf-8"):
        plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
        out += chr(byte) if plain else f"\\{byte:03o}"
    return f'"{out}"'
