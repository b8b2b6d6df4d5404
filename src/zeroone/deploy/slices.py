"""Lists of weights for the kernel that takes one bit of many samples at a time (``sliced.c``)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.deploy.build import AVX512, LANES, ROWS
from zeroone.deploy.integer_form import IntegerNetwork, Stage, weight_bits

SLICE = ROWS // 8  # bytes of a plane of all samples
COUNTERS = (8, 10, 12, 16, 20)  # bits that a counter may have
MOST_INPUTS = MOST_CLASSES = 2**16
MOST_OF_LAST = 2**20  # weights of a last layer whose digits are listed
UNITS = np.dtype([(name, "i4") for name in ("below", "above", "limit", "number")])  # struct unit
NUMBERS = ("units", "bits", "each", "apart", "steps", "bytes", "planes", "by_digit")
ARRAYS = ("all", "places", "gaps")
SLICES = np.dtype(  # struct slices
    [*((name, "u8") for name in ARRAYS), *((name, "i4") for name in NUMBERS)], align=True
)


def _digits() -> NDArray[np.int8]:
    """Write int8 in 8 digits of -1, 0 and 1, the highest first: of two in turn one is 0."""
    left, found = np.arange(256, dtype=np.uint8).view(np.int8).astype(int), []
    for _ in range(8):
        digit = np.where(left % 2, 2 - left % 4, 0)
        found.append(digit)
        left = (left - digit) // 2
    return np.array(found[::-1], np.int8)


DIGITS = _digits()  # by digit, and weight as uint8


@dataclass(frozen=True)
class Costs:
    """Nanoseconds on one thread, between those of a Zen 4 and of a Zen 5."""

    start: float  # of ROWS samples in slices
    bit: float  # to slice one bit of a feature
    weight: float  # to add or subtract a weight that is not 0
    limit: float  # to compare a unit once more, and to hand the bit on
    sample: float  # of a sample in rows
    product: float  # of a byte and a weight in rows
    product_of_bits: float
    product_of_last: float  # of a bit and a weight of the last layer in rows, and of its label


WITH_AVX512 = Costs(5000, 1.7, 0.45, 10, 80, 2e-3, 0.75e-3, 7e-3)
WITH_AVX2 = Costs(5000, 5, 0.6, 18, 400, 4e-3, 1.5e-3, 1e-2)


class Slices:
    """The layers of a network, for at least ``least`` samples."""

    def __init__(self, network: IntegerNetwork, level: int, least: int | None = None) -> None:
        inputs, bits = network.inputs, network.inputs.bits
        n = inputs.n_features if inputs.are_bytes else inputs.n_taken
        picked = inputs.are_bytes and inputs.taken is not None
        columns = np.arange(n)
        if picked and inputs.taken is not None:
            columns = inputs.taken
        layers: list[_Lists] = []
        for stage in network.stages[:-1]:
            planes = 2 if level == AVX512 and bits > 1 else 1
            layers.append(_hidden(stage, columns, n, bits, planes))
            units, apart, bits = stage.main.n_out, _apart(stage), 1
            n = stage.bits_each * apart
            columns = np.concatenate([k + np.arange(units) for k in range(0, n, apart)])
        layers.append(_last(network.stages[-1], columns, n))
        self._layers = layers
        self._table = np.array([layer.described for layer in self._layers], SLICES)
        self.address = self._table.ctypes.data
        self.least = _worth(network, level) if least is None else least

    @staticmethod
    def of(network: IntegerNetwork, level: int, least: int | None = None) -> "Slices | None":
        """List the weights of a network; None if the kernel does not take it, or is never faster.

        Args:
            network: The network.
            level: The instructions, as in ``KernelNetwork``.
            least: From how many samples on to use slices; None takes an estimate.

        """
        hidden, inputs = network.stages[:-1], network.inputs
        if (inputs.n_features if inputs.are_bytes else inputs.n_taken) > MOST_INPUTS:
            return None
        largest = [network.inputs.largest, *(1 for _ in hidden)]
        if not hidden or not all(map(_fits, hidden, largest)):
            return None
        if least is None and _worth(network, level) > ROWS:
            return None
        return Slices(network, level, least)


def _fits(stage: Stage, largest: int) -> bool:
    main = stage.main
    few = not main.kernel and weight_bits(main.weights) < 8 and main.n_inputs <= MOST_INPUTS
    return few and _counter(stage, largest) <= COUNTERS[-1]


def _apart(stage: Stage) -> int:
    """Return how many bits further on a unit's next bit is, as in rows of bits."""
    return -(-stage.main.n_out // LANES) * LANES


def _counter(stage: Stage, largest: int) -> int:
    """Return the bits of a counter, whose sign tells whether a sum exceeds its limit."""
    return _bits_of(largest * int(np.count_nonzero(stage.main.weights, axis=1).max()) + 1)


def _bits_of(most: int) -> int:
    return next((bits for bits in COUNTERS if bits > most.bit_length()), most.bit_length() + 1)


def _worth(network: IntegerNetwork, level: int) -> int:
    """Estimate from how many samples on slices take less time than rows."""
    cost, inputs = WITH_AVX512 if level == AVX512 else WITH_AVX2, network.inputs
    sizes = [stage.main.weights.size for stage in network.stages[:-1]]
    added = [int(np.count_nonzero(stage.main.weights)) for stage in network.stages[:-1]]
    last = network.stages[-1].main.weights.view(np.uint8)
    digits = int(np.count_nonzero(DIGITS, axis=0).astype(np.uint8)[last].sum(dtype=np.int64))
    further = sum(s.thresholds.size - s.main.n_out for s in network.stages[:-1])
    steps = -(-inputs.bits // 2) if level == AVX512 else inputs.bits
    slices = cost.start + cost.bit * inputs.bits * inputs.n_features
    slices += cost.weight * (steps * added[0] + sum(added[1:]) + digits)
    slices += cost.limit * further
    row = cost.sample + cost.product * sizes[0] + cost.product_of_bits * sum(sizes[1:])
    row += cost.product_of_last * last.size
    return int(slices / row) + 1


class _Lists:
    """Where the weights of -1, then those of 1, of each row of a matrix are.

    Places are columns of ``n`` slices, and slice ``n`` fills lists up to multiples of 4.
    """

    def __init__(
        self, W: NDArray[Any], columns: NDArray[np.int64], n: int, planes: int = 1
    ) -> None:
        self.units = np.zeros(len(W), UNITS)
        signs = np.stack([W < 0, W > 0], axis=1).reshape(-1, W.shape[1])  # two lists a row
        counts = np.count_nonzero(signs, axis=1)
        lengths = (counts + 3) // 4 * 4
        which, column = np.nonzero(signs)
        within = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        places = np.full(lengths.sum(), n)
        places[(np.cumsum(lengths) - lengths)[which] + within] = columns[column]
        self.places = places.astype(np.uint32) * np.uint32(SLICE * planes)
        self.units["below"], self.units["above"] = lengths[::2], lengths[1::2]
        self.gaps = np.empty((len(W), 0), np.int32)
        self._numbers: tuple[int, ...] = (0,) * len(NUMBERS)

    def describe(self, **numbers: int) -> "_Lists":
        self._numbers = tuple(numbers.get(name, 0) for name in NUMBERS)
        return self

    @property
    def described(self) -> tuple[int, ...]:
        arrays = (self.units, self.places, self.gaps)
        return (*(array.ctypes.data for array in arrays), *self._numbers)


def _hidden(stage: Stage, columns: NDArray[np.int64], n: int, bits: int, planes: int) -> _Lists:
    W, largest = stage.main.weights, 2**bits - 1
    below, above = (np.count_nonzero(sign == W, axis=1) for sign in (-1, 1))
    by_bit = stage.thresholds.reshape(-1, len(W)).clip(-largest * below - 1, largest * above)
    order = np.lexsort((below, above))  # units with as many weights follow each other
    lists, limits = _Lists(W[order], columns, n, planes), by_bit[:, order].astype(np.int32)
    lists.units["limit"], lists.units["number"] = limits[0], order
    lists.gaps = np.ascontiguousarray((limits[1:] - limits[0]).T)
    return lists.describe(
        units=len(W),
        bits=_counter(stage, largest),
        each=stage.bits_each,
        apart=_apart(stage),
        steps=-(-bits // planes),
        bytes=(n + 1) * SLICE * planes,
        planes=planes,
    )


def _last(stage: Stage, columns: NDArray[np.int64], n: int) -> _Lists:
    """List the digits of the weights; no units if these are too many, or sums exceed counters."""
    W, offsets = stage.main.weights.astype(np.int64), stage.thresholds.astype(np.int64)
    least, most = offsets + W.clip(max=0).sum(1), offsets + W.clip(min=0).sum(1)
    bits = _bits_of(2 * int(max(-least.min(), most.max(), 0)))  # of a difference
    if bits > COUNTERS[-1] or len(W) > MOST_CLASSES or W.size > MOST_OF_LAST:
        return _Lists(np.zeros((1, len(columns)), np.int8), columns, n)
    digits = DIGITS[:, stage.main.weights.view(np.uint8)]
    used = np.flatnonzero(digits.any(axis=(1, 2)))
    digits = digits[used[0] if len(used) else -1 :]
    lists = _Lists(digits.transpose(1, 0, 2).reshape(-1, W.shape[1]), columns, n)
    lists.units["limit"][:: len(digits)] = -offsets
    return lists.describe(units=len(W), bits=bits, each=1, steps=len(digits), planes=1, by_digit=1)
