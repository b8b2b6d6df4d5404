"""Export to C99: one source and one header, no allocation.

The code uses no floating point after the inputs and no multiplication after the first layer.
``network.c.jinja`` holds the code, this file supplies its numbers.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zeroone.deploy.borders import distinct
from zeroone.deploy.exporters import register_exporter, template
from zeroone.deploy.integer_form import IntegerNetwork, Map, Stage, weight_bits
from zeroone.utils.checks import InputError, printable
from zeroone.utils.storage import replacing
from zeroone.version import __version__

WRITTEN = "A 0/1 network, written by zeroone"
ALIGNED = 16  # bytes: compilers for larger processors begin tables at such multiples
WORD = 32  # bits that the code counts at a time
TYPES = {"float32": "float"} | {k: f"{k}_t" for k in ("int8", "uint8", "int32", "uint16", "uint32")}
SUFFIXES = {"uint32": "u", "float32": "f"}
# Bytes of machine code, rounded up from gcc -Os for x86-64; Thumb-2 is no larger.
CODE = {
    "add_bits": 64,
    "add_bytes": 64,
    "add_signs": 240,
    "add_byte_signs": 192,
    "compare": 48,
    "window_bits": 208,
    "window_bytes": 208,
}
CODE_OF_ALL, CODE_OF_FLOATS = 176, 176
CODE_OF_DENSE, CODE_OF_CONVOLUTION, CODE_OF_STREAM = 64, 320, 80
# Cycles of a Cortex-M4 without wait states: load, load, add, store, count, compare and branch take
# 10; packed weights of bits are counted by words, those of bytes that are not 0 are looked up.
CYCLES_OF_ADDITION, CYCLES_OF_WORD, CYCLES_OF_BYTE_WORD = 10, 45, 25


@dataclass(frozen=True)
class Layer:
    """A stage, the kind of its inputs and weights, and where its bits are.

    Kinds are "bytes" and "bits", with int8 weights, and "byte_signs" and "signs", with weights of
    -1, 0 and 1 in two bits, or of -1 and 1 in one.
    """

    number: int
    stage: Stage
    kind: str
    source: str
    target: str
    adds: str  # the sums of the layer below, in a stream; "" otherwise
    keeps: str  # where its own sums are for the layer above, likewise
    units_below: int

    @property
    def functions(self) -> set[str]:
        """The names of the C functions that it calls."""
        does = "window" if self.stage.main.kernel else "add"
        return {f"{does}_{self.kind}"}

    @property
    def is_signs(self) -> bool:
        """Whether weights take two bits or one."""
        return self.kind.endswith("signs")

    @property
    def tables(self) -> dict[str, NDArray[Any]]:
        """The constants, by name and in the order of reading."""
        stage, made = self.stage, dict[str, NDArray[Any]]()
        main = stage.main
        made["weights"] = sign_words(main) if self.is_signs else main.weights.T.ravel()
        made |= (
            limits_by_place(stage) if stage.thresholds.ndim == 3 else {"limits": stage.thresholds}
        )
        return {f"{name}_{self.number}": values for name, values in made.items()}

    @property
    def cycles(self) -> int:
        """An estimate of the cycles, if all inputs are above 0 and half of the bits are 1."""
        stage = self.stage
        windows = math.prod(stage.shape_out[1:]) * stage.window**2
        chosen = np.count_nonzero(stage.main.weights) / stage.main.weights.size
        each = {
            "bytes": CYCLES_OF_ADDITION,
            "bits": CYCLES_OF_ADDITION / 2,
            "byte_signs": CYCLES_OF_ADDITION * chosen + CYCLES_OF_BYTE_WORD / WORD,
            "signs": CYCLES_OF_WORD / WORD,
        }
        sums = stage.main.weights.size * each[self.kind]
        if self.adds:
            sums += stage.main.n_out * CYCLES_OF_ADDITION
        return round(windows * (sums + len(stage.thresholds) * CYCLES_OF_ADDITION))


class Size(NamedTuple):
    """What the generated code takes on a microcontroller."""

    constants: int  # bytes of weights, thresholds and other tables
    code: int  # bytes of machine code and labels, an estimate
    ram: int  # bytes of working memory
    cycles: int  # for a prediction on a Cortex-M4, an estimate

    @property
    def flash(self) -> int:
        """Bytes of constants, code and labels."""
        return self.constants + self.code


@register_exporter("c", suffix=".c")
def write_c(network: IntegerNetwork, path: Path) -> list[str]:
    """Write ``path`` (.c) and the header beside it (.h); C names start with the file's name.

    Raises:
        InputError: The file's name is no C name, or another program wrote one of the files.

    """
    name, header = path.stem, path.with_suffix(".h")
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise InputError(f"{path.name} would make {name!r} a name in C, which it cannot be.")
    content = describe(network, name)
    for target in (header, path):
        if target.is_file() and not target.read_bytes().startswith(f"/* {WRITTEN}".encode()):
            raise InputError(f"{target} is there and not by zeroone: it is left as it is.")
    for target in (header, path):
        code = template(f"network{target.suffix}.jinja").render(content)
        with replacing(target) as temporary:
            temporary.write_text(code, encoding="ascii")
    size = content["size"]
    return [
        f"{path} and {header}: C99, {name}_scores and {name}_classify",
        f"flash about {size.flash:,} bytes ({size.constants:,} of them weights and thresholds), "
        f"RAM {size.ram:,} bytes",
        f"about {size.cycles:,} cycles per prediction on a Cortex-M4 (an estimate: "
        f"{CYCLES_OF_ADDITION} cycles per addition, no input 0, half of the bits 1)",
    ]


def size_of(network: IntegerNetwork) -> Size:
    """Return the size of a network's C code: constants are exact, code and cycles estimates."""
    size: Size = describe(network, "network")["size"]
    return size


def describe(network: IntegerNetwork, name: str) -> dict[str, Any]:
    """Collect all that the templates need."""
    inputs, layers, tables = network.inputs, _layers(network), dict[str, NDArray[Any]]()
    if inputs.taken is not None:
        used = np.isin(np.arange(inputs.n_features), inputs.taken)
        tables["used"] = np.packbits(used, bitorder="little")
    if inputs.low is not None and inputs.rate is not None:
        tables |= {"low": _once(inputs.low), "rate": _once(inputs.rate)}
    code = CODE_OF_ALL if inputs.are_bytes else CODE_OF_ALL + CODE_OF_FLOATS
    uses, n_words = set[str](), 0
    buffers, streams = dict[str, int](), dict[str, int]()
    for layer in layers:
        main = layer.stage.main
        tables |= layer.tables
        uses |= layer.functions
        code += CODE_OF_CONVOLUTION if main.kernel else CODE_OF_DENSE
        code += CODE_OF_STREAM * (bool(layer.adds) + bool(layer.keeps))
        if layer.source != "sample":
            buffers[layer.source] = max(main.n_inputs, buffers.get(layer.source, 0))
        if layer.keeps:
            n_sums = main.n_out * math.prod(layer.stage.shape_out[1:])
            streams[layer.keeps] = max(n_sums, streams.get(layer.keeps, 0))
        if layer.is_signs:
            n_words = max(n_words, -(-main.n_inputs // WORD))
    if not all(layer.stage.main.kernel for layer in layers[:-1]):
        uses.add("compare")
    n_units = max(m.n_out for m in network.maps)
    labels = [str(label) for label in network.classes]
    code += sum(CODE[function] for function in uses) + sum(5 + len(x.encode()) for x in labels)
    size = Size(
        constants=sum(values.nbytes for values in tables.values()),
        code=code + sum(-values.nbytes % ALIGNED for values in tables.values()),
        ram=sum(buffers.values()) + 4 * sum(streams.values()) + 4 * n_units + 4 * n_words,
        cycles=sum(layer.cycles for layer in layers),
    )
    return {
        "about": f"{WRITTEN} {__version__}.",
        "name": name,
        "NAME": name.upper(),
        "tables": tables,
        "types": TYPES,
        "literals": _literals,
        "buffers": buffers,
        "streams": streams,
        "n_units": n_units,
        "n_words": n_words,
        "labels": [_c_string(label) for label in labels],
        "inputs": inputs,
        "input_type": "uint8_t" if inputs.are_bytes else "float",
        "order": _order(network),
        "layers": layers,
        "uses": uses,
        "size": size,
        "per_addition": CYCLES_OF_ADDITION,
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
    """Give each layer its buffers, two in turn."""
    stages, inputs = network.stages, network.inputs
    buffers = [f"bits_{i % 2}" for i in range(len(stages) + 1)]
    joined = [stage.stream for stage in stages] + [False]
    if inputs.taken is None and inputs.are_bytes and not inputs.shift:
        buffers[0] = "sample"
    return [
        Layer(
            number=i,
            stage=stage,
            kind=_kind(stage, i),
            source=buffers[i],
            target=buffers[i + 1],
            adds=f"stream_{i % 2}" if joined[i] else "",
            keeps=f"stream_{(i + 1) % 2}" if joined[i + 1] else "",
            units_below=stages[max(0, i - 1)].main.n_out,
        )
        for i, stage in enumerate(stages)
    ]


def _kind(stage: Stage, i: int) -> str:
    """Choose few bits a weight for a dense layer of -1, 0 and 1, unless words would be emptier."""
    main = stage.main
    signs = not main.kernel and weight_bits(main.weights) < 8
    if signs and sign_words(main).nbytes <= main.weights.nbytes:
        return "signs" if i else "byte_signs"
    return "bits" if i else "bytes"


def _once(values: NDArray[Any]) -> NDArray[Any]:
    """Store values only once if all are equal, as those of pixels below a convolution are."""
    return values[:1] if (values == values[0]).all() else values


def _narrow(numbers: NDArray[Any]) -> NDArray[Any]:
    """Store numbers of at least 0 in 16 bits if they fit."""
    return numbers.astype(np.uint16 if numbers.max() < 2**16 else np.int32)


def limits_by_place(stage: Stage) -> dict[str, NDArray[Any]]:
    """Store thresholds by position: those of equal rows, and of equal columns, only once.

    The thresholds of all bits at row y, column x begin at ``rows[y] + columns[x]``.
    """
    bits, rows, columns = stage.shape_out
    k = stage.window if stage.pool == "max" else 1
    used = stage.thresholds[:, : rows * k, : columns * k]
    limits, at_rows, at_columns = distinct(used)
    return {
        "limits": np.ascontiguousarray(limits.transpose(1, 2, 0)).ravel(),
        "rows": _narrow(at_rows * bits * limits.shape[2]),
        "columns": _narrow(at_columns * bits),
    }


def _literals(values: NDArray[Any]) -> str:
    """Write numbers in C; float32 numbers have enough digits to tell them apart."""
    suffix = SUFFIXES.get(values.dtype.name, "")
    words = [f"{word}{suffix}," for word in values.astype(str).tolist()]
    per_line = 16 if values.dtype == np.int8 else 5
    rows = (words[k : k + per_line] for k in range(0, len(words), per_line))
    return "\n".join("    " + " ".join(row) for row in rows)


def sign_words(linear: Map) -> NDArray[np.uint32]:
    """Pack weights by unit and word: which inputs have the weight 1, then which have -1.

    If no weight is 0, the others have -1, and the second word is left out.
    """
    wide = np.pad(linear.weights, ((0, 0), (0, -linear.weights.shape[1] % WORD)))
    both = [np.packbits(wide == sign, axis=1, bitorder="little").view("<u4") for sign in (1, -1)]
    both = both[:1] if linear.weights.all() else both
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
