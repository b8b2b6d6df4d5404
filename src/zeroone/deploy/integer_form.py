"""The integer form of a 0/1 network, with a numpy reference that defines what it computes.

Every engine and every export computes exactly this, on every machine:

1. Inputs become bytes q. Bytes stay as they are, or become their upper bits, q = x >> (8 - bits).
   Any other number x becomes q = floor((x - low) * rate + 1/2), clipped to [0, 255], with each
   operation rounded to float32 (``Inputs``). Unused inputs are left out.
2. A hidden layer sums the int8 weights of those inputs that are 1; the first layer sums weights
   times q. Convolutions pad their images with zeros. A bit is 1 where the sum exceeds an int32
   threshold. A unit of several thresholds has as many bits: first come the bits of all units at
   their first threshold, then those at the second, and so on. Max pooling takes the largest bit of
   a window; average pooling sums a window and compares the total with thresholds. In a stream, a
   layer adds the sums of the layer below, after max pooling, to its own; if it has n times as many
   units, to each n-th part of them.
3. The last layer sums int8 weights and adds int32 offsets: the scores of the classes. The first of
   several leading classes wins.

Every sum fits in 32 bits; ``IntegerNetwork`` refuses layers that could exceed them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.nn.heads import Head
from zeroone.nn.inputs import check_inputs, check_width
from zeroone.nn.labels import ClassLabel
from zeroone.nn.layers import MOST_BITS, LayerPlan, outline
from zeroone.nn.operators import Shape, fan_in
from zeroone.utils.checks import InputError

Bytes = NDArray[np.uint8]
Weights = NDArray[np.int8]
Sums = NDArray[np.int32]
Engine = Callable[[NDArray[Any]], Sums]  # from checked samples to scores
MOST = 2**31 - 1
# In the first layer: processors without VNNI add two products in 16 bits, and 2 * 255 * 64 fits.
LARGEST_OF_BYTES = 64
LARGEST_LAYER = 2**26  # in numbers per sample: its sums, its bits, or the inputs of all sums
LARGEST_NETWORK = 2**28
MOST_WEIGHTS = 2**26  # of all layers: files hold them deflated, so small ones could fill memory
MOST_THRESHOLDS = 2**24  # likewise: files hold equal rows and columns of them once
LEAST_UNIT = 1e-28  # and 1 over it is the largest: scores times the unit are numbers in float32
AT_ONCE = 2**24  # numbers of one layer that are in memory together


@dataclass(frozen=True)
class Inputs:
    """The map from a sample's raw numbers to bytes."""

    n_features: int  # of a raw sample
    taken: NDArray[np.int64] | None = None  # the indices of features in use; None uses all
    low: NDArray[np.float32] | None = None  # the value of byte 0, by feature in use; None for bytes
    rate: NDArray[np.float32] | None = None  # levels per unit, likewise
    bits: int = 8  # of a byte: the upper ones are used

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 8 or (self.bits < 8 and self.low is not None):
            raise InputError("only inputs of bytes have fewer bits.")
        if self.low is None or self.rate is None:
            return
        finite = bool(np.isfinite(self.low).all() and np.isfinite(self.rate).all())
        if not finite or not (self.rate > 0).all():
            raise InputError("the range of an input is beyond float32: scale it before training.")

    @property
    def n_taken(self) -> int:
        """The number of features in use."""
        return self.n_features if self.taken is None else len(self.taken)

    @property
    def are_bytes(self) -> bool:
        """Whether raw inputs are bytes already."""
        return self.low is None

    @property
    def shift(self) -> int:
        """How many lower bits of a byte are left out."""
        return 8 - self.bits

    @property
    def largest(self) -> int:
        """The largest input of the first layer."""
        return (1 << self.bits) - 1

    def apply(self, X: NDArray[Any]) -> Bytes:
        """Convert raw samples, one per row, to bytes."""
        X = X if self.taken is None else X[:, self.taken]
        if self.low is None or self.rate is None:
            return np.ascontiguousarray(X, dtype=np.uint8) >> np.uint8(self.shift)
        scaled = (np.asarray(X, dtype=np.float32) - self.low) * self.rate + np.float32(0.5)
        q: Bytes = np.clip(np.floor(scaled), 0, 255).astype(np.uint8, order="C")
        return q


def weight_bits(weights: Weights) -> int:
    """The number of bits that a weight needs: 1 if all are -1 or 1, 2 if some are 0, else 8."""
    if weights.min() < -1 or weights.max() > 1:
        return 8
    return 1 if weights.all() else 2


@dataclass(frozen=True)
class Map:
    """The int8 weights of a dense layer, or of a convolution (``kernel`` > 0); one unit per row."""

    weights: Weights
    shape_in: Shape
    kernel: int = 0
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        if self.kernel and self.padding >= self.kernel:
            raise InputError("kernels would see nothing: the padding is as large as they are.")
        fits = self.weights.shape[1] == fan_in(self.shape_in, self.kernel) and self.n_out
        if self.kernel:
            fits = fits and len(self.shape_in) == 3 and min(self.shape_out) >= 1
        if not fits:
            raise InputError(f"weights of shape {self.weights.shape} cannot take {self.shape_in}.")
        if self.n_numbers > LARGEST_LAYER:
            raise InputError(f"a layer of shape {self.shape_out} is too large.")

    @property
    def n_inputs(self) -> int:
        """The number of inputs per sample."""
        return math.prod(self.shape_in)

    @property
    def n_out(self) -> int:
        """The number of units."""
        return len(self.weights)

    @property
    def n_numbers(self) -> int:
        """The numbers that a sample takes in memory: its sums, or the inputs of all sums."""
        return max(self.n_out, int(self.weights.shape[1])) * math.prod(self.shape_out[1:])

    @property
    def shape_out(self) -> Shape:
        """The shape of a sample's sums."""
        if not self.kernel:
            return (self.n_out,)
        sides = [(s + 2 * self.padding - self.kernel) // self.stride + 1 for s in self.shape_in[1:]]
        return (self.n_out, *sides)

    def apply(self, V: Bytes) -> Sums:
        """Compute the sums of each sample."""
        # Products of doubles are fast, and exact: no sum comes near 2^53.
        W = self.weights.T.astype(np.float64)
        if not self.kernel:
            return (V.reshape(len(V), -1).astype(np.float64) @ W).astype(np.int32)
        pad, k, s = self.padding, self.kernel, self.stride
        images = np.pad(V.reshape(len(V), *self.shape_in), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(images, (k, k), axis=(2, 3))
        patches = windows[:, :, ::s, ::s].transpose(0, 2, 3, 1, 4, 5)
        rows = patches.reshape(*patches.shape[:3], -1).astype(np.float64)
        return np.ascontiguousarray((rows @ W).transpose(0, 3, 1, 2).astype(np.int32))


@dataclass(frozen=True)
class Stage:
    """A layer: a map, thresholds, and perhaps a pooling and the sums of the layer below.

    There is one threshold per bit, or one per position of a bit (with average pooling, per pooled
    position). The thresholds of a unit do not fall from one of its bits to the next. In the last
    layer, thresholds are offsets, which are added.
    """

    main: Map
    thresholds: Sums
    pool: str = "none"  # or "max" or "average"
    window: int = 1  # the side of what is pooled
    stream: bool = False  # whether it adds the pooled sums of the layer below to its own

    def __post_init__(self) -> None:
        if self.main.weights.dtype != np.int8 or self.thresholds.dtype != np.int32:
            raise InputError("weights must be of type int8, thresholds of type int32.")
        most, shape = MOST_BITS * self.main.n_out, self.thresholds.shape
        if not shape or not 0 < shape[0] <= most or shape[0] % self.main.n_out:
            raise InputError(f"thresholds of shape {shape} do not fit {self.main.n_out} units.")
        if self.n_numbers > LARGEST_LAYER:
            raise InputError(f"a layer of shape {self.shape_out} is too large.")

    def outline(self) -> str:
        """Return a line about the layer."""
        main = self.main
        geometry = (main.kernel, main.stride, main.padding)
        bits = self.bits_each if self.bits_each > 1 else 0
        plan = LayerPlan(main.n_out, *geometry, self.pool, self.window, bits, self.stream)
        return f"{plan.outline(main.shape_in, self.shape_out)}, {weight_bits(main.weights)}-bit"

    @property
    def bits_each(self) -> int:
        """The number of a unit's bits."""
        return len(self.thresholds) // self.main.n_out

    @property
    def n_numbers(self) -> int:
        """The numbers that a sample takes in memory: those of the map, or its bits."""
        return max(self.main.n_numbers, len(self.thresholds) * math.prod(self.main.shape_out[1:]))

    @property
    def shape_out(self) -> Shape:
        """The shape of a sample's bits."""
        return (len(self.thresholds), *(side // self.window for side in self.main.shape_out[1:]))

    @property
    def compared(self) -> Shape:
        """The shape of bits as they are compared: before max pooling, after average pooling."""
        sides = self.shape_out[1:] if self.pool == "average" else self.main.shape_out[1:]
        return (len(self.thresholds), *sides)

    @property
    def limits(self) -> Sums:
        """The thresholds by bit of a unit and unit, in a shape that broadcasts over positions."""
        sides = self.thresholds.shape[1:] or (1,) * (len(self.compared) - 1)
        return self.thresholds.reshape(self.bits_each, self.main.n_out, *sides)

    @property
    def ordered_limits(self) -> Sums:
        """The thresholds in the order of comparison: by pooled position, place in window, bit."""
        if self.thresholds.ndim == 1:
            return self.thresholds
        bits, rows, columns = self.shape_out
        k = self.window if self.pool == "max" else 1
        tiles = self.thresholds[:, : rows * k, : columns * k].reshape(bits, rows, k, columns, k)
        return np.ascontiguousarray(tiles.transpose(1, 3, 2, 4, 0)).ravel()

    def sums(self, V: Bytes, below: Sums | None = None) -> Sums:
        """Compute the sums of activations, with the pooled sums of the layer below in a stream."""
        total = self.main.apply(V)
        if self.stream and below is not None:
            for unit in range(0, self.main.n_out, below.shape[1]):
                total[:, unit : unit + below.shape[1]] += below
        return total

    def pooled(self, total: Sums) -> Sums:
        """Pool sums: the largest of a window, or with average pooling their total."""
        if self.pool == "none":
            return total
        windows = _windows(total, self.window)
        made: Sums = (
            windows.max(axis=(3, 5))
            if self.pool == "max"
            else windows.sum(axis=(3, 5), dtype=np.int32)
        )
        return made

    def bits(self, total: Sums) -> Bytes:
        """Compute the layer's bits from its sums."""
        if self.pool == "average":
            total = self.pooled(total)
        exceeds = total[:, None] > self.limits
        bits = exceeds.astype(np.uint8).reshape(len(total), *self.compared)
        return _windows(bits, self.window).max(axis=(3, 5)) if self.pool == "max" else bits


def _windows(A: NDArray[Any], size: int) -> NDArray[Any]:
    """Cut images into adjacent windows, whose entries lie along axes 3 and 5."""
    n, units, height, width = A.shape
    h, w = height // size, width // size
    return A[:, :, : h * size, : w * size].reshape(n, units, h, size, w, size)


@dataclass(frozen=True)
class IntegerNetwork:
    """A 0/1 network in integers; stages that do not fit are refused with an ``InputError``."""

    inputs: Inputs
    stages: list[Stage]
    classes: list[ClassLabel]  # in the order of the scores
    head: Head  # of the original network, for probabilities
    unit: float = 1.0  # what a score of 1 is worth in the original network's scores
    feature_names: list[str] | None = None

    def __post_init__(self) -> None:
        if not self.head.targets.one_class:
            raise InputError(
                f"only networks that choose one class have an integer form, and head="
                f"{self.head.kind!r} does not."
            )
        if not self.stages or self.stages[0].main.n_inputs != self.inputs.n_taken:
            raise InputError("the first layer takes another number of inputs than there are.")
        bound = None
        for i in range(len(self.stages)):
            bound = _check_stage(self.stages, i, 1 if i else self.inputs.largest, bound)
        n_weights = sum(m.weights.size for m in self.maps)
        n_thresholds = sum(s.thresholds.size for s in self.stages)
        largest = sum(s.n_numbers for s in self.stages) > LARGEST_NETWORK
        if largest or n_weights > MOST_WEIGHTS or n_thresholds > MOST_THRESHOLDS:
            raise InputError("the network is too large.")
        if type(self.unit) is not float or not LEAST_UNIT <= self.unit <= 1 / LEAST_UNIT:
            raise InputError(f"the unit of scores is {self.unit!r}: scale the last layer.")
        last = self.stages[-1]
        scores = last.main.shape_out == (len(self.classes),) and last.bits_each == 1
        if not scores or last.pool != "none":
            raise InputError("the last layer is not one of scores, one a class.")

    def __repr__(self) -> str:
        return self.summary(type(self).__name__)

    def summary(self, name: str) -> str:
        """Describe the layers and the sizes under a name."""
        sizes = [m.weights.size for m in self.maps] + [s.thresholds.size for s in self.stages]
        about = {
            "inputs": self.n_features,
            "classes": len(self.classes),
            "head": self.head.kind,
            "parameters": f"{sum(sizes):,}",
            "bytes": f"{self.n_bytes:,}",
        }
        return outline(name, [stage.outline() for stage in self.stages], about)

    @property
    def n_features(self) -> int:
        """The number of features in a raw sample."""
        return self.inputs.n_features

    @property
    def maps(self) -> list[Map]:
        """The maps of all layers."""
        return [stage.main for stage in self.stages]

    @property
    def n_bytes(self) -> int:
        """The size of all weights and thresholds."""
        weights = sum(m.weights.nbytes for m in self.maps)
        return weights + sum(s.thresholds.nbytes for s in self.stages)

    def check(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """Return raw samples as a matrix of bytes, or of float32 numbers."""
        raw: NDArray[Any] = check_width(check_inputs(X, torch.float32), self.n_features).numpy()
        if not self.inputs.are_bytes:
            return raw.astype(np.float32)
        if raw.dtype == np.uint8:
            return raw
        with np.errstate(invalid="ignore"):
            whole = raw.astype(np.uint8)  # keeps the values that are bytes
        if not np.array_equal(whole, raw):
            raise InputError("the network takes bytes, whole numbers from 0 to 255.")
        return whole

    def scores(self, X: ArrayLike | Tensor) -> Sums:
        """Compute the int32 scores of raw samples."""
        return self.in_parts(self.score_checked, self.check(X))

    def in_parts(self, run: Engine, raw: NDArray[Any]) -> Sums:
        """Run an engine on checked samples, as many at a time as fit in memory."""
        largest = max(stage.n_numbers for stage in self.stages)
        rows = max(1, min(4096, AT_ONCE // largest))
        return np.concatenate([run(raw[k : k + rows]) for k in range(0, len(raw), rows)])

    def score_checked(self, raw: NDArray[Any]) -> Sums:
        """Compute the scores of checked samples, all at once."""
        V, below = self.inputs.apply(raw), None
        for stage, above in pairwise(self.stages):
            total = stage.sums(V, below)
            V, below = stage.bits(total), stage.pooled(total) if above.stream else None
        return self.stages[-1].sums(V) + self.stages[-1].thresholds

    def predict(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """Return the label of each sample's leading class, the first one if several lead."""
        labels: NDArray[Any] = np.asarray(self.classes)[self.scores(X).argmax(axis=1)]
        return labels

    def export(self, to: str, path: str | Path, image: Shape | None = None) -> list[str]:
        """Write the network in another format: see ``zeroone.deploy.exporters.export``."""
        from zeroone.deploy.exporters import export

        return export(self, to, path, image)


def _check_stage(
    stages: list[Stage], i: int, largest: int, below: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Require that layer i fits the layer below it and that its sums fit in 32 bits.

    Takes its largest input and the largest sums of the layer below, and returns its own.
    """
    stage, where, last = stages[i], f"layer {i + 1}", i == len(stages) - 1
    if i and not _takes(stage.main, stages[i - 1].shape_out):
        raise InputError(f"{where} does not take what the layer below gives.")
    if stage.stream:
        _check_stream(stages, i)
    pools = stage.pool != "none"
    misfit = len(stage.main.shape_out) != 3 if pools else stage.window != 1
    if misfit or min(stage.shape_out) < 1:
        raise InputError(f"{where} has a pooling that does not fit.")
    if stage.thresholds.shape not in {stage.compared[:1], stage.compared}:
        raise InputError(f"{where} has thresholds of shape {stage.thresholds.shape}.")
    if (stage.limits[1:] < stage.limits[:-1]).any():
        raise InputError(f"{where} has thresholds that fall.")
    weights = stage.main.weights
    if i == 0 and max(-int(weights.min()), int(weights.max())) > LARGEST_OF_BYTES:
        raise InputError(f"weights of the first layer are beyond {LARGEST_OF_BYTES}.")
    sizes = np.abs(stage.thresholds.astype(np.int64))
    limits = sizes.reshape(stage.bits_each, stage.main.n_out, -1).max(axis=(0, 2))
    bound = largest_sums(stage, largest, below)
    size = int((bound + limits * last).max())
    if max(size, int(limits.max())) > MOST:
        raise InputError(f"{where} adds up to {size:,}, more than 32 bits hold.")
    return bound


def _takes(main: Map, bits: Shape) -> bool:
    """Whether a map fits bits of a shape, which a dense layer flattens."""
    return main.shape_in == bits if main.kernel else main.n_inputs == math.prod(bits)


def _check_stream(stages: list[Stage], i: int) -> None:
    """Require that layer i can add the sums of the layer below: other sums of bits, as they are."""
    stage, below = stages[i], stages[i - 1]
    sides, units = below.shape_out[1:], below.main.n_out
    own, *own_sides = stage.main.shape_out
    fits = 2 <= i < len(stages) - 1 and list(sides) == own_sides and own % units == 0
    if not fits or below.pool == "average":
        raise InputError(f"layer {i + 1} has a stream that does not fit.")


def largest_sums(stage: Stage, largest: int, below: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Bound the size of each unit's sums (of a window's totals with average pooling).

    ``largest`` is the largest input: 255 for whole bytes, 1 for bits; ``below`` has the bounds of
    the layer below, for a stream.
    """
    rows = _sums_of_sizes(stage.main.weights) * largest
    if stage.stream and below is not None:
        rows = rows + np.tile(below, len(rows) // len(below))
    total: NDArray[np.int64] = rows * (stage.window**2 if stage.pool == "average" else 1)
    return total


def _sums_of_sizes(weights: Weights) -> NDArray[np.int64]:
    """Add up absolute values by row, without a wider copy of the weights."""
    positive, negative = (
        weights.sum(axis=1, dtype=np.int64, where=some) for some in (weights > 0, weights < 0)
    )
    sums: NDArray[np.int64] = positive - negative
    return sums
