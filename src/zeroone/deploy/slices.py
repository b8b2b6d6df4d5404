"""Lists of weights for the kernel that takes one bit of many samples at a time (``sliced.c``)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.deploy.build import AVX512, ROWS
from zeroone.deploy.integer_form import IntegerNetwork, Stage, weight_bits

import os
SORT=int(os.environ.get('SORT','1'))
SLICE = ROWS // 8  # bytes of a plane of all samples
COUNTERS = (8, 10, 12, 16, 20)  # bits that a counter may have
MOST_INPUTS = 2**16
UNITS = np.dtype([(name, "i4") for name in ("below", "above", "limit", "number")])  # struct unit
SLICES = np.dtype(
    [
        *((name, "u8") for name in ("all", "places")),
        *((name, "i4") for name in ("units", "bits", "steps", "bytes", "planes")),
    ],
    align=True,
)  # struct slices in C


@dataclass(frozen=True)
class Slices:
    """The hidden layers of a network, for at least so many samples."""

    layers: list["_Layer"]
    table: NDArray[Any]
    least: int

    @property
    def described(self) -> tuple[int, int]:
        """The address of the layers, and from how many samples on they are worth it."""
        return self.table.ctypes.data, self.least

    @staticmethod
    def of(network: IntegerNetwork, level: int) -> "Slices | None":
        """List the weights of a network if the kernel takes it, and if it is ever worth it."""
        hidden, inputs = network.stages[:-1], network.inputs
        if not hidden or not all(_fits(stage) for stage in hidden):
            return None
        bits = inputs.bits
        layers, below = [], inputs.n_features if inputs.are_bytes else inputs.n_taken
        columns = np.arange(below)
        if inputs.are_bytes and inputs.taken is not None:
            columns = inputs.taken
        for stage in hidden:
            planes = 2 if level == AVX512 and bits > 1 else 1
            layers.append(_Layer.of(stage, columns, below, bits, planes))
            below, bits = stage.main.n_out, 1
            columns = np.arange(below)
        if any(layer.counter > COUNTERS[-1] for layer in layers):
            return None
        table = np.array([layer.described for layer in layers], SLICES)
        return Slices(layers, table, 1)


def _fits(stage: Stage) -> bool:
    dense = not stage.main.kernel and stage.shortcut is None and stage.pool == "none"
    return dense and weight_bits(stage.main.weights) < 8 and stage.main.n_inputs <= MOST_INPUTS


@dataclass(frozen=True)
class _Layer:
    """Where the weights of -1, then those of 1, of each unit are."""

    units: NDArray[Any]
    places: NDArray[np.uint32]
    counter: int  # bits of a sum
    numbers: tuple[int, ...]

    @staticmethod
    def of(stage: Stage, columns: NDArray[np.int64], n: int, bits: int, planes: int) -> "_Layer":
        """List the weights of columns, each one of n slices of so many bits."""
        W, nothing = stage.main.weights, np.uint32(n)
        below, above = ((W == sign).sum(axis=1) for sign in (-1, 1))
        largest = 2**bits - 1
        limits = stage.thresholds.clip(-largest * below - 1, largest * above)
        lists = []
        order = np.lexsort((above, below)) if SORT else np.arange(len(W))
        below, above, limits = below[order], above[order], limits[order]
        for row in W[order]:
            for sign in (-1, 1):
                some = columns[row == sign].astype(np.uint32)
                lists.append(np.pad(some, (0, -len(some) % 4), constant_values=nothing))
        places = np.concatenate(lists) * np.uint32(SLICE * planes)
        units = np.zeros(len(W), UNITS)
        units["below"], units["above"], units["limit"] = (below + 3) // 4 * 4, (above + 3) // 4 * 4, limits
        units["number"] = order
        size = int(largest * (below + above).max()) + 1
        counter = next((c for c in COUNTERS if c > size.bit_length()), size.bit_length() + 1)
        steps = -(-bits // planes)
        numbers = len(W), counter, steps, (n + 1) * SLICE * planes, planes
        return _Layer(units, places, counter, numbers)

    @property
    def described(self) -> tuple[int, ...]:
        """What the C code knows of a layer."""
        return self.units.ctypes.data, self.places.ctypes.data, *self.numbers
