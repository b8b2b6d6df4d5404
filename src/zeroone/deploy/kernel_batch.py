"""Run dense integer networks in C kernels (kernels.c), a block of samples at a time.

ONNX Runtime or numpy runs other networks, and all networks where there are no kernels (see
``build``).
"""

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.deploy.build import GROUPS, SAMPLES, UNITS_OF_BITS, UNITS_OF_BYTES, kernels
from zeroone.deploy.integer_form import Bytes, IntegerNetwork, Stage, Sums, Weights

QUAD = 4
BLOCK = QUAD * GROUPS  # inputs
MOST_OF_BYTES, MOST_OF_BITS = (2**15 - 1) // 255, 2**15 - 1
# From this many samples, and samples (of a block) times weights, ONNX Runtime takes 1.5 times as
# long or more: MNIST, one thread, 300 to 2000-2000 hidden units, 16 to 4096 samples.
LEAST_SAMPLES, LEAST_WORK = 64, 5 * 10**7


def padded(array: NDArray[Any], *multiples: int) -> NDArray[Any]:
    """Append zeros until each side is a multiple of its number; the result is contiguous."""
    sides = zip(array.shape, multiples, strict=True)
    return np.pad(np.ascontiguousarray(array), [(0, -side % number) for side, number in sides])


def address(array: NDArray[Any]) -> ctypes.c_void_p:
    """The address of an array's numbers, for C."""
    return ctypes.c_void_p(array.ctypes.data)


class ByteLayer:
    """The first layer, with weights in the order of ``add_bytes`` in kernels.c."""

    def __init__(self, stage: Stage) -> None:
        wide = padded(stage.main.weights, UNITS_OF_BYTES, QUAD)
        self.width_out, self.width = wide.shape
        tiles = wide.reshape(-1, UNITS_OF_BYTES, self.width // QUAD, QUAD)
        self.weights = np.ascontiguousarray(tiles.transpose(0, 2, 1, 3))
        self.limits = padded(stage.thresholds, UNITS_OF_BYTES)
        self.roomy = are_roomy(tiles)

    def run(self, library: Any, V: Bytes, out: NDArray[Any]) -> None:
        """Write the bits of at most SAMPLES samples, or scores if ``out`` is int32."""
        n_quads = self.width // QUAD
        found = np.empty(len(V) * (n_quads + 1), np.uint64)
        layer = _layer(n_quads, self.weights, self.roomy, self.limits)
        library.add_bytes(address(V), len(V), *layer, address(found), *_destination(out))


class BitLayer:
    """Another layer, with weights in the order of ``add_bits`` in kernels.c."""

    def __init__(self, stage: Stage) -> None:
        wide = padded(stage.main.weights, UNITS_OF_BITS, BLOCK)
        self.width_out, self.width = wide.shape
        tiles = wide.reshape(-1, UNITS_OF_BITS, self.width)
        self.weights = np.ascontiguousarray(tiles.transpose(0, 2, 1))
        self.limits = padded(stage.thresholds, UNITS_OF_BITS)
        self.full = full_blocks(wide)

    def run(self, library: Any, V: Bytes, out: NDArray[Any]) -> None:
        """Write the bits of at most SAMPLES samples, or scores if ``out`` is int32."""
        offsets = np.empty(len(V) * self.width // QUAD, np.uint16)
        memory = np.empty(library.workspace_bytes(), np.uint8)
        layer = _layer(len(self.full), self.weights, self.full, self.limits)
        rooms = address(offsets), address(memory)
        library.add_bits(address(V), len(V), V.shape[1], *layer, *rooms, *_destination(out))


def _layer(n_parts: int, tiles: Weights, flags: Bytes, limits: Sums) -> tuple[Any, ...]:
    """The arguments of a kernel that describe a layer."""
    return n_parts, address(tiles), address(flags), len(tiles), address(limits)


def _destination(out: NDArray[Any]) -> tuple[ctypes.c_void_p, ctypes.c_void_p | None, int]:
    """Where bits and scores go, and a row's width; C writes bits only if there are no scores."""
    scores = address(out) if out.dtype == np.int32 else None
    return address(out), scores, out.shape[1]


def are_roomy(tiles: Weights) -> Bytes:
    """Find the tiles in which 16 bits hold the sum of any two quads, whatever the bytes are.

    The axes are tiles, units, quads and inputs. C adds two products in one place; 255 times the
    positive weights there, or the negative ones, bounds their sum.
    """
    roomy = np.empty(len(tiles), np.uint8)
    for k, tile in enumerate(tiles):  # one at a time, to save memory
        pairs = tile.reshape(*tile.shape[:2], 2, 2).astype(np.int32)
        sizes = np.stack([pairs.clip(0).sum(-1), (-pairs).clip(0).sum(-1)], axis=-1)
        roomy[k] = np.sort(sizes, axis=1)[:, -2:].sum(axis=1).max() <= MOST_OF_BYTES
    return roomy


def full_blocks(weights: Weights) -> Bytes:
    """Find the blocks of inputs after which the next one could overflow sums of 16 bits."""
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


def is_dense(network: IntegerNetwork) -> bool:
    """Whether a network is a chain of dense layers, the only kind that kernels run."""
    return not any(s.shortcut is not None or s.main.kernel for s in network.stages)


def pays(network: IntegerNetwork, samples: int) -> bool:
    """Whether this many samples are enough work for kernels."""
    n_weights = sum(stage.main.weights.size for stage in network.stages)
    return samples >= LEAST_SAMPLES and min(samples, SAMPLES) * n_weights >= LEAST_WORK


class NativeNetwork:
    """A dense network in the kernels for blocks; ``threads`` share the samples."""

    def __init__(self, network: IntegerNetwork, library: Any, threads: int = 1) -> None:
        self.network, self.library, self.threads = network, library, threads
        first, *others = network.stages
        self.layers: list[ByteLayer | BitLayer] = [ByteLayer(first)]
        self.layers += [BitLayer(stage) for stage in others]
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    @staticmethod
    def of(network: IntegerNetwork, threads: int = 1) -> "NativeNetwork | None":
        """Prepare a network for the kernels; None if there are none for it."""
        library = kernels().library if is_dense(network) else None
        return None if library is None else NativeNetwork(network, library, threads)

    def scores(self, raw: NDArray[Any]) -> Sums:
        """Compute the scores of checked samples."""
        rows = min(SAMPLES, max(1, -(-len(raw) // self.threads)))
        parts = [raw[k : k + rows] for k in range(0, len(raw), rows)]
        if self.threads == 1 or len(parts) == 1:
            return np.concatenate([self._scores(part) for part in parts])
        return np.concatenate(list(self._workers().map(self._scores, parts)))

    def _workers(self) -> ThreadPoolExecutor:
        """Keep the threads between calls, but start new ones after a fork."""
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = os.getpid(), ThreadPoolExecutor(self.threads)
        return self._pool[1]

    def _scores(self, raw: NDArray[Any]) -> Sums:
        """Compute the scores of at most SAMPLES samples."""
        q = self.network.inputs.apply(raw)
        V = np.pad(q, ((0, 0), (0, self.layers[0].width - q.shape[1])))
        for layer, above in pairwise(self.layers):
            out = np.zeros((len(V), max(layer.width_out, above.width)), np.uint8)
            layer.run(self.library, V, out)
            V = out
        scores = np.empty((len(V), self.layers[-1].width_out), np.int32)
        self.layers[-1].run(self.library, V, scores)
        return scores[:, : len(self.network.classes)]
