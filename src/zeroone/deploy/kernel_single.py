"""Run dense integer networks one sample at a time in a C kernel (single.c).

A single sample spends its time on reading weights. The kernel reads only the weights of inputs and
bits that are not 0.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.deploy.build import ROWS, UNITS_OF_ROWS, kernels
from zeroone.deploy.integer_form import IntegerNetwork, Stage, Sums
from zeroone.deploy.kernel_batch import address, is_dense, padded

# Beyond these bounds ONNX Runtime takes 1.5 times as long or more for one sample (about as long for
# two): at least this many weights, and units in the first layer; at most this share of the weights
# read (less for bytes, which take longer than bits); layers so wide that padding does not matter.
# Measured with AVX-512 VNNI on 14 shapes, with 19, 50 and 100% of the inputs not 0.
LEAST_WEIGHTS, LEAST_UNITS, MOST_PADDED = 5 * 10**5, 64, 1.5
MOST_READ, MOST_READ_OF_BYTES = 0.65, 0.35
BITS_ON = 0.5  # of a hidden layer, roughly
# struct layer in single.c
LAYER = np.dtype([("weights", "uintp"), ("limits", "uintp"), ("inputs", "i4"), ("units", "i4")])


class SingleNetwork:
    """A dense network in the kernel for one sample, on one thread."""

    def __init__(self, network: IntegerNetwork, library: Any) -> None:
        self.network, self.library = network, library
        self._arrays = [_arrays(stage) for stage in network.stages]  # LAYER points to them
        self._layers = np.array(
            [(W.ctypes.data, t.ctypes.data, len(W) - 1, len(t)) for W, t in self._arrays], LAYER
        )
        self._widest = int(max(self._layers["inputs"].max(), self._layers["units"].max())) + ROWS

    @staticmethod
    def of(network: IntegerNetwork) -> "SingleNetwork | None":
        """Prepare a network for the kernel; None if there is none for it."""
        library = kernels().library if is_dense(network) else None
        return None if library is None else SingleNetwork(network, library)

    def scores(self, raw: NDArray[Any]) -> Sums:
        """Compute the scores of checked samples."""
        q = self.network.inputs.apply(raw)
        scores = np.empty((len(q), int(self._layers["units"][-1])), np.int32)
        # For each unit: the index of a row, a sum, a part of a sum in 16 bits, and a bit.
        memory = np.empty(self._widest * (4 + 4 + 2 + 1), np.uint8)
        for sample, made in zip(q, scores, strict=True):
            self.library.score_one(
                address(self._layers),
                len(self._layers),
                address(sample),
                self._widest,
                address(memory),
                address(made),
            )
        return np.ascontiguousarray(scores[:, : len(self.network.classes)])


def _arrays(stage: Stage) -> tuple[NDArray[np.int8], Sums]:
    """Order weights by input, then unit, with an extra input of zeros to fill up groups."""
    weights = padded(stage.main.weights.T, 1, UNITS_OF_ROWS)
    return np.pad(weights, ((0, 1), (0, 0))), padded(stage.thresholds, UNITS_OF_ROWS)


def pays_for_one(network: IntegerNetwork, raw: NDArray[Any]) -> bool:
    """Whether the kernel is the fastest way to score this one sample."""
    weights = [stage.main.weights for stage in network.stages]
    of_bytes, of_bits = weights[0].size, sum(W.size for W in weights[1:])
    total = of_bytes + of_bits
    padding = sum(-len(W) % UNITS_OF_ROWS * W.shape[1] for W in weights)
    too_narrow = len(weights[0]) < LEAST_UNITS or total + padding > MOST_PADDED * total
    if total < LEAST_WEIGHTS or too_narrow:
        return False
    # Where inputs are no bytes, 0 is nothing special.
    share = np.count_nonzero(raw) / raw.size if network.inputs.are_bytes else 1.0
    most = MOST_READ if of_bits >= of_bytes else MOST_READ_OF_BYTES
    return bool(share * of_bytes + BITS_ON * of_bits <= most * total)
