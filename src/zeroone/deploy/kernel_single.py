"""One sample after the other by a kernel of our own (single.c): what is 0 costs nothing.

A sample reads the weights of those inputs and bits only that are not 0; everything else reads all
of them. With one sample, reading is what takes the time.
"""

import ctypes
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.deploy.build import ROWS, UNITS_OF_ROWS, kernels
from zeroone.deploy.integer_form import Bytes, IntegerNetwork, Stage, Sums
from zeroone.deploy.kernel_batch import is_dense, padded_limits, rounded_up

# Where ONNX Runtime takes 1.5 times as long or more for one sample (for two: about as long): from
# so many weights and units of the first layer on, if at most this share of the weights is read (of
# bytes less, as they take longer than bits), and layers are so wide that padding does not matter.
# Measured with AVX-512 VNNI on 14 shapes, with 19, 50 and 100% of the inputs not 0.
LEAST_WEIGHTS, LEAST_UNITS, MOST_PADDED = 5 * 10**5, 64, 1.5
MOST_READ, MOST_READ_OF_BYTES = 0.65, 0.35
BITS_ON = 0.5  # of a hidden layer, about


class CLayer(ctypes.Structure):
    """``struct layer`` in single.c."""

    _fields_ = (
        ("weights", ctypes.c_void_p),
        ("limits", ctypes.c_void_p),
        ("inputs", ctypes.c_int32),
        ("units", ctypes.c_int32),
    )


class RowsOfLayer:
    """A layer's weights by input, of each the units; one more input of zeros fills up groups."""

    def __init__(self, stage: Stage) -> None:
        n_out, self.inputs = stage.main.weights.shape
        self.units = rounded_up(n_out, UNITS_OF_ROWS)
        self.weights = np.zeros((self.inputs + 1, self.units), np.int8)
        self.weights[: self.inputs, :n_out] = stage.main.weights.T
        self.limits = padded_limits(stage.thresholds, UNITS_OF_ROWS)

    @property
    def in_c(self) -> CLayer:
        """As C takes it; this object must outlive it."""
        return CLayer(self.weights.ctypes.data, self.limits.ctypes.data, self.inputs, self.units)


class SingleNetwork:
    """The scores of a dense network, sample by sample, on one thread."""

    def __init__(self, network: IntegerNetwork, library: Any) -> None:
        self.network, self.library = network, library
        self.layers = [RowsOfLayer(stage) for stage in network.stages]
        self._in_c = (CLayer * len(self.layers))(*(layer.in_c for layer in self.layers))
        widest = max(max(layer.inputs, layer.units) for layer in self.layers) + ROWS
        # Of each: a row's number, a sum, a part of one in 16 bits, and a bit.
        self._widest, self._room = widest, widest * (4 + 4 + 2 + 1)

    @staticmethod
    def of(network: IntegerNetwork) -> "SingleNetwork | None":
        """None where there are no kernels, or none for such a network."""
        library = kernels().library if is_dense(network) else None
        return None if library is None else SingleNetwork(network, library)

    def scores(self, raw: NDArray[Any]) -> Sums:
        """Of checked samples."""
        q: Bytes = np.ascontiguousarray(self.network.inputs.apply(raw))
        scores = np.empty((len(q), self.layers[-1].units), np.int32)
        memory = np.empty(self._room, np.uint8)
        for sample, made in zip(q, scores, strict=True):
            self.library.score_one(
                self._in_c,
                len(self.layers),
                ctypes.c_void_p(sample.ctypes.data),
                self._widest,
                ctypes.c_void_p(memory.ctypes.data),
                ctypes.c_void_p(made.ctypes.data),
            )
        return np.ascontiguousarray(scores[:, : len(self.network.classes)])


def pays_for_one(network: IntegerNetwork, raw: NDArray[Any]) -> bool:
    """Whether the kernel is what to take for this one sample."""
    shapes = [stage.main.weights.shape for stage in network.stages]
    of_bytes, *others = [math.prod(shape) for shape in shapes]
    of_bits = sum(others)
    total = of_bytes + of_bits
    padded = sum(rounded_up(n_out, UNITS_OF_ROWS) * n_in for n_out, n_in in shapes)
    if total < LEAST_WEIGHTS or shapes[0][0] < LEAST_UNITS or padded > MOST_PADDED * total:
        return False
    # Of inputs that are no bytes, 0 is nothing special.
    share = np.count_nonzero(raw) / raw.size if network.inputs.are_bytes else 1.0
    most = MOST_READ if of_bits >= of_bytes else MOST_READ_OF_BYTES
    return bool(share * of_bytes + BITS_ON * of_bits <= most * total)
