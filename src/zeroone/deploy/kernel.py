"""Run integer networks in C kernels (``kernels/``), from bytes to scores and labels.

Kernels take chains of dense layers and of convolutions with max pooling. ONNX Runtime or numpy runs
other networks, and all networks where there are no kernels (see ``build``).

Between layers, bits are packed into words of 32: those of all units at their first threshold, up to
a multiple of LANES, then those at the second. An image has the bits of a pixel in words of its own,
so that a convolution's patch is a row of words, and the bits of the layer below are those of a
dense layer.
"""

import ctypes
import math
import os
from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.deploy.borders import distinct
from zeroone.deploy.build import AVX512, LANES, ROWS, kernels
from zeroone.deploy.integer_form import (
    Inputs,
    IntegerNetwork,
    Map,
    Stage,
    Sums,
    Weights,
    weight_bits,
)
from zeroone.deploy.slices import Slices

WORD, LINE = 32, 64  # bits, bytes
MOST_OF_BYTES = 2**15 - 1  # of two products and what is added to them, in 16 bits
LEAST_SHARE = 8  # of a thread, as a part of what kernels take at a time: less is not worth one
# struct layer and struct network in C
NUMBERS = (
    *("takes", "planes", "inputs", "units", "bits", "tile", "room", "kernel", "stride", "padding"),
    *("depth", "height", "width", "pixel", "rows", "columns", "window"),
)
LAYER = np.dtype(
    [
        *((name, "u8") for name in ("weights", "limits", "starts")),
        *((name, "i4") for name in NUMBERS),
    ],
    align=True,
)
COUNTS = (
    "n_layers",
    "level",
    "features",
    "inputs",
    "classes",
    "most",
    "least_sliced",
    "bits",
    "shift",
)
NETWORK = np.dtype(
    [*((name, "u8") for name in ("layers", "taken", "slices")), *((name, "i4") for name in COUNTS)],
    align=True,
)


def can_run(network: IntegerNetwork) -> bool:
    """Whether kernels know all stages of a network."""
    return all(not stage.stream and stage.pool in ("none", "max") for stage in network.stages)


class KernelNetwork:
    """A network in the kernels; ``threads`` share the samples."""

    def __init__(
        self,
        network: IntegerNetwork,
        library: Any,
        threads: int = 1,
        level: int | None = None,
        least_sliced: int | None = None,
    ) -> None:
        self.network, self.library, self.threads = network, library, threads
        inputs, best = network.inputs, library.best_level() if level is None else level
        self._arrays = [_Layer(network, i, _tile(best, i)) for i in range(len(self))]
        self._layers = np.array([layer.described for layer in self._arrays], LAYER)
        picks = inputs.are_bytes and (inputs.taken is not None or inputs.shift > 0)
        self._used = _bits_of_used(inputs) if picks else np.empty(0, np.uint8)
        # Positions of convolutions are rows as well: fewer samples at a time stay in the cache.
        largest = max(math.prod(stage.main.shape_out[1:]) for stage in network.stages)
        self._most = max(1, ROWS // largest)
        places = self._layers.ctypes.data, self._used.ctypes.data if picks else 0
        sizes = inputs.n_features if picks else inputs.n_taken, inputs.n_taken
        self.slices = Slices.of(network, best, least_sliced)
        sliced, least = (self.slices.address, self.slices.least) if self.slices else (0, 0)
        numbers = len(self), best, *sizes, len(network.classes), self._most, least
        about = (*places, sliced, *numbers, inputs.bits, inputs.shift)
        self._about = np.array([about], NETWORK)
        self._address, self._run_one = self._about.ctypes.data, library.leading_class
        self._memory_of_one = self._room(1)
        self._to = self._memory_of_one.ctypes.data
        self._memory = local()
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def __len__(self) -> int:
        return len(self.network.stages)

    @staticmethod
    def of(
        network: IntegerNetwork,
        threads: int = 1,
        level: int | None = None,
        least_sliced: int | None = None,
    ) -> "KernelNetwork | None":
        """Prepare a network for the kernels; None if there are none for it.

        Args:
            network: The network.
            threads: The number of threads.
            level: The instructions to use: 0 for plain C, 1 for AVX2, 2 for AVX-512; None takes the
                best that the processor has.
            least_sliced: From how many samples on to take a bit of all of them at a time, where a
                network has few weights; None takes an estimate of where that is faster.

        """
        library = kernels().library if can_run(network) else None
        if library is None:
            return None
        return KernelNetwork(network, library, threads, level, least_sliced)

    def scores(self, raw: NDArray[Any]) -> Sums:
        """Compute the scores of checked samples."""
        scores = np.empty((len(raw), len(self.network.classes)), np.int32)
        self._share(raw, scores, leading=False)
        return scores

    def leading(self, raw: NDArray[Any], out: Sums | None = None) -> Sums:
        """Find the place of each checked sample's leading class; ``out`` is contiguous."""
        places = np.empty(len(raw), np.int32) if out is None else out
        self._share(raw, places, leading=True)
        return places

    def leading_one(self, sample: bytes) -> int:
        """Find the place of the leading class of a sample, the shortest way.

        Python's lock stays taken during the call, so threads may share the memory.
        """
        return self._run_one(self._address, sample, self._to)  # type: ignore[no-any-return]

    def _share(self, raw: NDArray[Any], out: Sums, *, leading: bool) -> None:
        """Share samples among the threads."""
        inputs = self.network.inputs
        q = np.ascontiguousarray(raw) if inputs.are_bytes else inputs.apply(raw)
        share = max(1, self._most // LEAST_SHARE, -(-len(q) // self.threads))
        if share >= len(q):
            self._run(q, out, leading=leading)
            return
        parts = [slice(k, k + share) for k in range(0, len(q), share)]
        list(self._workers().map(lambda p: self._run(q[p], out[p], leading=leading), parts))

    def _run(self, q: NDArray[np.uint8], out: Sums, *, leading: bool) -> None:
        if not hasattr(self._memory, "room"):  # of this thread
            self._memory.room = self._room(ROWS)
            self._memory.address = self._memory.room.ctypes.data
        where = (None, address(out)) if leading else (address(out), None)
        self.library.run_network(self._address, address(q), len(q), self._memory.address, *where)

    def _room(self, samples: int) -> NDArray[np.uint8]:
        return np.empty(self.library.memory_bytes(self._address, samples), np.uint8)

    def _workers(self) -> ThreadPoolExecutor:
        """Keep the threads between calls, but start new ones after a fork."""
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = os.getpid(), ThreadPoolExecutor(self.threads)
        return self._pool[1]


def address(array: NDArray[Any]) -> int:
    """Return where an array begins; ``array.ctypes`` takes ten times as long."""
    if array.flags.writeable and array.size:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    return array.ctypes.data


def padded(array: NDArray[Any], *multiples: int, value: int = 0) -> NDArray[Any]:
    """Append a value until each side is a multiple of its number; the result is contiguous."""
    sides = zip(array.shape, multiples, strict=True)
    pads = [(0, -side % number) for side, number in sides]
    return np.pad(np.ascontiguousarray(array), pads, constant_values=value)


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Copy an array to the beginning of a cache line; loads across two take twice as long."""
    room = np.empty(array.nbytes + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    copy = room[start : start + array.nbytes].view(array.dtype)
    copy[:] = array
    return copy


class _Layer:
    """A layer in the order of the kernels, with the numbers that describe it."""

    def __init__(self, network: IntegerNetwork, i: int, tile: int) -> None:
        stage, first = network.stages[i], i == 0
        W = stage.main.weights if first else _columns(stage.main, network.stages[i - 1])
        bits = weight_bits(stage.main.weights)
        planes = 0 if first or bits == 8 else bits
        inputs = W.shape[1] if first else W.shape[1] // WORD
        tile = min(tile, 64) if planes else tile
        limits, self.starts = _by_place(stage)  # (places, bits of a unit, units)
        room = 1
        if planes:
            # What the kernel counts too many: see planes.c.
            below_0 = W < 0 if planes == 2 else W <= 0
            counts = below_0.sum(axis=1)
            limits += -counts if i == len(network.stages) - 1 else counts
            self.weights = aligned(_tiles_of_planes(_plane(W > 0), _plane(below_0), planes, tile))
        else:
            W = padded(W, LANES, 4)
            room = _room(W, network.inputs.largest if first else 1)
            self.weights = aligned(_tiles_of_quads(W, tile))
        if i < len(network.stages) - 1:
            limits = limits.clip(max=2**31 - 1)
        # A unit that is padding is never on; scores that wrap around come back as they are added.
        self.limits = padded(limits.astype(np.int32), 1, 1, LANES, value=2**31 - 1)
        sizes = (inputs, self.limits.shape[2], self.limits[0].size)
        self.starts *= self.limits[0].size
        geometry = _geometry(stage, 0 if first else inputs)
        numbers = (int(not first), planes, *sizes, tile, room, *geometry)
        starts = self.starts.ctypes.data if self.starts.size else 0
        self.described = (self.weights.ctypes.data, self.limits.ctypes.data, starts, *numbers)


def _by_place(stage: Stage) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the different thresholds (places, bits of a unit, units), and each position's place.

    If there is only one place, positions have none.
    """
    limits, places = stage.thresholds, np.empty(0, np.int32)
    if limits.ndim == 3:
        limits, rows, columns = distinct(limits)
        places = (rows[:, None] * limits.shape[2] + columns).ravel()
        limits = limits.transpose(1, 2, 0)
    return limits.reshape(-1, stage.bits_each, stage.main.n_out).astype(np.int64), places


def _bits_of_used(inputs: Inputs) -> NDArray[np.uint8]:
    """Return a bit for each feature, 1 if it is in use, in whole words of 64."""
    used = np.zeros(inputs.n_features, np.bool_)
    used[slice(None) if inputs.taken is None else inputs.taken] = True
    return np.packbits(padded(used, 64), bitorder="little")


def _columns(main: Map, below: Stage) -> Weights:
    """Return weights in the order of a row's bits: by position, by threshold and unit below."""
    by_unit = main.weights.reshape(main.n_out, below.bits_each, below.main.n_out, -1)
    bits = padded(by_unit.transpose(0, 3, 1, 2), 1, 1, 1, LANES)
    return padded(bits.reshape(*bits.shape[:2], -1), 1, 1, WORD).reshape(main.n_out, -1)


def _geometry(stage: Stage, words: int) -> tuple[int, ...]:
    """The numbers of a convolution from ``kernel`` on; zeros for a dense layer.

    A patch has so many words of bits; 0 if it has bytes.
    """
    main = stage.main
    if not main.kernel:
        return (0,) * 10
    depth, height, width = main.shape_in
    pixel = words // main.kernel**2 * (WORD // 8)
    image = (1, height, width, pixel) if words else (depth, height, width, 1)
    window = stage.window if stage.pool == "max" else 1
    return (main.kernel, main.stride, main.padding, *image, *main.shape_out[1:], window)


def _plane(some: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """Pack a matrix of bits into words, by row."""
    return np.packbits(some, axis=1, bitorder="little").view("<u4")


def _tile(level: int, i: int) -> int:
    """The most units at a time: sums fit in registers, weights of the first layer in a cache."""
    return 64 if i or level == AVX512 else 32


def _tiles(n_units: int, most: int) -> list[slice]:
    """Cut units into tiles: as many as possible of ``most``, then of half as many, and so on."""
    tiles, start = [], 0
    while start < n_units:
        while most > n_units - start:
            most //= 2
        tiles.append(slice(start, start + most))
        start += most
    return tiles


def _tiles_of_planes(
    above: NDArray[np.uint32], below: NDArray[np.uint32], planes: int, tile: int
) -> NDArray[np.uint32]:
    """Order words by tile, word, plane and unit."""
    both = np.stack([padded(plane, LANES, 1) for plane in (above, below)[:planes]])
    tiles = _tiles(both.shape[1], tile)
    return np.concatenate([both[:, some].transpose(2, 0, 1).ravel() for some in tiles])


def _tiles_of_quads(W: Weights, tile: int) -> Weights:
    """Order weights by tile, quad, unit and input."""
    quads = W.reshape(len(W), -1, 4)
    tiles = _tiles(len(W), tile)
    return np.concatenate([quads[some].transpose(1, 0, 2).ravel() for some in tiles])


def _room(W: Weights, largest: int) -> int:
    """Count the quads whose products of two can be added in 16 bits, whatever the inputs are."""
    most = 0
    for row in W:  # one at a time, to save memory
        pairs = row.reshape(-1, 2).astype(np.int32)
        most = max(most, int(pairs.clip(0).sum(-1).max()), int((-pairs).clip(0).sum(-1).max()))
    return max(1, MOST_OF_BYTES // max(1, largest * most))
