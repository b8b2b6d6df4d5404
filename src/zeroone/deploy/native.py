"""Dense networks of integers by kernels of our own (kernels.c), where they are worth it.

They need a C compiler and a processor with AVX2, and are built when they are first needed, into the
user's cache folder. Without them, and for networks that they do not know, ONNX Runtime does it all:
``ZEROONE_KERNELS=0`` in the environment has it that way always.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from platformdirs import user_cache_path

from zeroone.checks import InputError
from zeroone.deploy.form import Bytes, IntegerNetwork, Stage, Sums, Weights
from zeroone.storage import make_folder, replacing

FLAGS = ("-std=gnu11", "-O3", "-mavx2", "-shared", "-fPIC")
SWITCH = "ZEROONE_KERNELS"
# As in kernels.c.
SAMPLES, QUAD, UNITS_OF_BYTES, UNITS_OF_BITS, BLOCK = 256, 4, 32, 64, 40
MOST_OF_BYTES, MOST_OF_BITS = (2**15 - 1) // 255, 2**15 - 1
LEAST_SAMPLES = 16  # with fewer, tables cost more than they save: ONNX Runtime is faster


@lru_cache(maxsize=1)
def kernels() -> ctypes.CDLL | None:
    """The compiled kernels; None where there is no compiler, or where they do not pay."""
    if os.environ.get(SWITCH) == "0" or platform.machine().lower() not in {"x86_64", "amd64"}:
        return None
    source = (resources.files(__package__) / "kernels.c").read_bytes()
    try:
        with tempfile.TemporaryDirectory() as spare:
            library = ctypes.CDLL(str(_built(source, Path(spare))))
    except (OSError, subprocess.SubprocessError, InputError):
        return None
    return library if library.kernels_pay() else None


def _built(source: bytes, spare: Path) -> Path:
    """The library in the cache folder, or, where nothing can be written, in ``spare``."""
    compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if compiler is None:
        raise InputError("there is no C compiler.")
    mark = hashlib.sha256(source + " ".join((compiler, *FLAGS)).encode()).hexdigest()[:16]
    name = f"kernels-{mark}.so"
    try:
        path = make_folder(user_cache_path("zeroone")) / name
        if not (path.is_file() and _loads(path)):
            with replacing(path) as temporary:
                _compile(compiler, source, temporary)
    except InputError:
        path = spare / name
        _compile(compiler, source, path)
    return path


def _loads(path: Path) -> bool:
    try:
        ctypes.CDLL(str(path))
    except OSError:
        return False
    return True


def _compile(compiler: str, source: bytes, path: Path) -> None:
    command = [compiler, *FLAGS, "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=source, check=True, capture_output=True, timeout=120)


def _up(number: int, step: int) -> int:
    """The next multiple."""
    return -(-number // step) * step


def _padded(weights: Weights, units: int, inputs: int) -> Weights:
    """With as many zeros as make both numbers multiples of these."""
    n_out, n_in = weights.shape
    wide = np.zeros((_up(n_out, units), _up(n_in, inputs)), np.int8)
    wide[:n_out, :n_in] = weights
    return wide


def _padded_limits(limits: Sums, units: int) -> Sums:
    return np.concatenate([limits, np.zeros(_up(len(limits), units) - len(limits), np.int32)])


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
        self.limits = _padded_limits(stage.thresholds, UNITS_OF_BYTES)
        self.roomy = are_roomy(tiles)

    def run(self, library: Any, V: Bytes, out: Results) -> None:
        """The rows of ``V`` have exactly ``stride`` bytes."""
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
    pairs = tiles.reshape(*tiles.shape[:3], 2, 2).astype(np.int32)
    sizes = np.stack([pairs.clip(0).sum(-1), (-pairs).clip(0).sum(-1)], axis=-1)
    largest = np.sort(sizes, axis=2)[:, :, -2:].sum(axis=2)
    roomy: Bytes = (largest.max(axis=(1, 2, 3)) <= MOST_OF_BYTES).astype(np.uint8)
    return roomy


class LayerOfBits:
    """See ``add_bits`` in kernels.c."""

    def __init__(self, stage: Stage) -> None:
        wide = _padded(stage.main.weights, UNITS_OF_BITS, BLOCK)
        self.stride_out, self.stride = wide.shape
        self.n_tiles, self.n_blocks = self.stride_out // UNITS_OF_BITS, self.stride // BLOCK
        tiles = wide.reshape(self.n_tiles, UNITS_OF_BITS, self.stride)
        self.weights = np.ascontiguousarray(tiles.transpose(0, 2, 1))
        self.limits = _padded_limits(stage.thresholds, UNITS_OF_BITS)
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
    blocks = weights.reshape(len(weights), -1, BLOCK).astype(np.int32)
    sizes = blocks.clip(0).sum(-1), (-blocks).clip(0).sum(-1)
    full = np.zeros(blocks.shape[1], np.uint8)
    full[-1] = 1
    reached = [np.zeros(len(weights), np.int64) for _ in sizes]
    for k in range(blocks.shape[1]):
        reached = [r + s[:, k] for r, s in zip(reached, sizes, strict=True)]
        if max(int(r.max()) for r in reached) > MOST_OF_BITS:
            full[k - 1] = 1
            reached = [s[:, k].astype(np.int64) for s in sizes]
    return full


def _at(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _pointer(place: int | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(place)


class NativeNetwork:
    """The scores of a network by kernels of our own; ``threads`` share the samples."""

    def __init__(self, network: IntegerNetwork, library: ctypes.CDLL, threads: int = 1) -> None:
        self.network, self.library, self.threads = network, library, threads
        first, *others = network.stages
        self.layers: list[Layer] = [LayerOfBytes(first)]
        self.layers += [LayerOfBits(stage) for stage in others]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    @staticmethod
    def of(network: IntegerNetwork, threads: int = 1) -> "NativeNetwork | None":
        """None where ONNX Runtime has to do it."""
        plain = all(s.shortcut is None and not s.main.kernel for s in network.stages)
        library = kernels() if plain else None
        return None if library is None else NativeNetwork(network, library, threads)

    def scores(self, raw: NDArray[Any]) -> Sums:
        """Of checked samples."""
        rows = min(SAMPLES, max(LEAST_SAMPLES, -(-len(raw) // self.threads)))
        parts = [raw[k : k + rows] for k in range(0, len(raw), rows)]
        if self._pool is None or len(parts) == 1:
            return _joined([self._scores(part) for part in parts])
        return _joined(list(self._pool.map(self._scores, parts)))

    def _scores(self, raw: NDArray[Any]) -> Sums:
        n, q = len(raw), self.network.inputs.apply(raw)
        V = np.zeros((n, self.layers[0].stride), np.uint8)
        V[:, : q.shape[1]] = q
        for layer, above in zip(self.layers, self.layers[1:], strict=False):
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
