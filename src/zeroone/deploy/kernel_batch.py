"""Dense networks of integers by kernels of our own (kernels.c), blocks of samples at a time.

Networks that they do not know are left to ONNX Runtime, and so is everything where there are no
kernels (see ``build``).
"""

import ctypes
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from zeroone.deploy.build import GROUPS, SAMPLES, UNITS_OF_BITS, UNITS_OF_BYTES, kernels
from zeroone.deploy.integer_form import Bytes, IntegerNetwork, Stage, Sums, Weights

QUAD = 4
BLOCK = QUAD * GROUPS  # inputs
MOST_OF_BYTES, MOST_OF_BITS = (2**15 - 1) // 255, 2**15 - 1
# From so many samples, and samples (of a block) times weights, on, ONNX Runtime takes 1.5 times
# as long or more: MNIST, one thread, 300 to 2000-2000 hidden units, 16 to 4096 samples.
LEAST_SAMPLES, LEAST_WORK = 64, 5 * 10**7


def rounded_up(number: int, step: int) -> int:
    """The next multiple."""
    return -(-number // step) * step


def _padded(weights: Weights, units: int, inputs: int) -> Weights:
    """With as many zeros as make both numbers multiples of these."""
    n_out, n_in = weights.shape
    wide = np.zeros((rounded_up(n_out, units), rounded_up(n_in, inputs)), np.int8)
    wide[:n_out, :n_in] = weights
    return wide


def padded_limits(limits: Sums, units: int) -> Sums:
    """With as many zeros as make their number a multiple."""
    more = rounded_up(len(limits), units) - len(limits)
    return np.concatenate([limits, np.zeros(more)]).astype(np.int32)


@dataclass(frozen=True)
class Results:
    """Where the results of a layer go: bits, or the scores of the last layer."""

    bits: Bytes
    scores: Sums | None

    @property
    def places(self) -> tuple[int, int | None, int]:
        """The two, and the numbers of a sample."""
        scores = None if self.scores is None else self.scores.ctypes.data
        return self.bits.ctypes.data, scores, self.bits.shape[1]


class Layer(Protocol):
    """A layer, its weights in the order in which a kernel reads them."""

    stride: int  # numbers of a sample that its inputs must have, at least
    stride_out: int  # and that it writes

    def run(self, library: Any, V: Bytes, out: Results) -> None:
        """From the activations below to its results."""


class LayerOfBytes:
    """See ``add_bytes`` in kernels.c."""

    def __init__(self, stage: Stage) -> None:
        wide = _padded(stage.main.weights, UNITS_OF_BYTES, QUAD)
        self.stride_out, self.stride = wide.shape
        self.n_tiles, self.n_quads = self.stride_out // UNITS_OF_BYTES, self.stride // QUAD
        tiles = wide.reshape(self.n_tiles, UNITS_OF_BYTES, self.n_quads, QUAD)
        self.weights = np.ascontiguousarray(tiles.transpose(0, 2, 1, 3))
        self.limits = padded_limits(stage.thresholds, UNITS_OF_BYTES)
        self.roomy = are_roomy(tiles)

    def run(self, library: Any, V: Bytes, out: Results) -> None:
        """Of at most SAMPLES samples; the rows of ``V`` have exactly ``stride`` bytes."""
        found = np.empty(len(V) * (self.n_quads + 1), np.uint64)
        library.add_bytes(
            _at(V),
            len(V),
            self.n_quads,
            _at(self.weights),
            _at(self.roomy),
            self.n_tiles,
            _at(self.limits),
            _at(found),
            *map(_pointer, out.places[:2]),
            out.places[2],
        )


def are_roomy(tiles: Weights) -> Bytes:
    """Of each tile whether any two of its quads may be added up in 16 bits, whatever the bytes are.

    ``tiles``: tiles, units, quads, four inputs. Two products go into one place; 255 times the
    positive weights, or the negative ones, bounds what comes together there.
    """
    roomy = np.empty(len(tiles), np.uint8)
    for k, tile in enumerate(tiles):  # one at a time: all at once would take much memory
        pairs = tile.reshape(*tile.shape[:2], 2, 2).astype(np.int32)
        sizes = np.stack([pairs.clip(0).sum(-1), (-pairs).clip(0).sum(-1)], axis=-1)
        roomy[k] = np.sort(sizes, axis=1)[:, -2:].sum(axis=1).max() <= MOST_OF_BYTES
    return roomy


class LayerOfBits:
    """See ``add_bits`` in kernels.c."""

    def __init__(self, stage: Stage) -> None:
        wide = _padded(stage.main.weights, UNITS_OF_BITS, BLOCK)
        self.stride_out, self.stride = wide.shape
        self.n_tiles, self.n_blocks = self.stride_out // UNITS_OF_BITS, self.stride // BLOCK
        tiles = wide.reshape(self.n_tiles, UNITS_OF_BITS, self.stride)
        self.weights = np.ascontiguousarray(tiles.transpose(0, 2, 1))
        self.limits = padded_limits(stage.thresholds, UNITS_OF_BITS)
        self.full = full_blocks(wide)

    def run(self, library: Any, V: Bytes, out: Results) -> None:
        """Of at most SAMPLES samples."""
        offsets = np.empty(len(V) * self.stride // QUAD, np.uint16)
        memory = np.empty(library.workspace_bytes(), np.uint8)
        library.add_bits(
            _at(V),
            len(V),
            V.shape[1],
            self.n_blocks,
            _at(self.weights),
            _at(self.full),
            self.n_tiles,
            _at(self.limits),
            _at(offsets),
            _at(memory),
            *map(_pointer, out.places[:2]),
            out.places[2],
        )


def full_blocks(weights: Weights) -> Bytes:
    """After which blocks of inputs sums of 16 bits are full: the next one could overflow them."""
    blocks = weights.reshape(len(weights), -1, BLOCK)
    full = np.zeros(blocks.shape[1], np.uint8)
    full[-1] = 1
    reached = np.zeros((2, len(weights)), np.int64)
    for k in range(blocks.shape[1]):
        block = blocks[:, k].astype(np.int64)
        sizes = np.stack([block.clip(0).sum(-1), (-block).clip(0).sum(-1)])
        reached += sizes
        if reached.max() > MOST_OF_BITS:
            full[k - 1] = 1
            reached = sizes
    return full


def _at(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _pointer(place: int | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(place)


def is_dense(network: IntegerNetwork) -> bool:
    """Whether it is a chain of dense layers, which is what kernels know."""
    return not any(s.shortcut is not None or s.main.kernel for s in network.stages)


def pays(network: IntegerNetwork, samples: int) -> bool:
    """Whether there is enough work in so many samples."""
    n_weights = sum(stage.main.weights.size for stage in network.stages)
    return samples >= LEAST_SAMPLES and min(samples, SAMPLES) * n_weights >= LEAST_WORK


class NativeNetwork:
    """The scores of a dense network by kernels of our own; ``threads`` share the samples."""

    def __init__(self, network: IntegerNetwork, library: Any, threads: int = 1) -> None:
        self.network, self.library, self.threads = network, library, threads
        first, *others = network.stages
        self.layers: list[Layer] = [LayerOfBytes(first)]
        self.layers += [LayerOfBits(stage) for stage in others]
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    @staticmethod
    def of(network: IntegerNetwork, threads: int = 1) -> "NativeNetwork | None":
        """None where there are no kernels, or none for such a network."""
        library = kernels().library if is_dense(network) else None
        return None if library is None else NativeNetwork(network, library, threads)

    def scores(self, raw: NDArray[Any]) -> Sums:
        """Of checked samples."""
        rows = min(SAMPLES, max(1, -(-len(raw) // self.threads)))
        parts = [raw[k : k + rows] for k in range(0, len(raw), rows)]
        if self.threads == 1 or len(parts) == 1:
            return _joined([self._scores(part) for part in parts])
        return _joined(list(self._workers().map(self._scores, parts)))

    def _workers(self) -> ThreadPoolExecutor:
        """Threads that are kept; after a fork they are gone, and there are new ones."""
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = os.getpid(), ThreadPoolExecutor(self.threads)
        return self._pool[1]

    def _scores(self, raw: NDArray[Any]) -> Sums:
        """Of at most SAMPLES samples."""
        n, q = len(raw), self.network.inputs.apply(raw)
        V = np.zeros((n, self.layers[0].stride), np.uint8)
        V[:, : q.shape[1]] = q
        for layer, above in pairwise(self.layers):
            out = Results(np.zeros((n, max(layer.stride_out, above.stride)), np.uint8), None)
            layer.run(self.library, V, out)
            V = out.bits
        last = self.layers[-1]
        scores = np.empty((n, last.stride_out), np.int32)
        # Of scores no bits are written; their place only says how many numbers a sample has.
        last.run(self.library, V, Results(np.empty((n, last.stride_out), np.uint8), scores))
        return scores[:, : len(self.network.classes)]


def _joined(parts: Sequence[Sums]) -> Sums:
    return np.ascontiguousarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)
