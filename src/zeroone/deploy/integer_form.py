"""The integer form of a 0/1 network, and what it means: a plain reference in numpy.

Everything that is exported computes exactly this, on every machine:

1. inputs become bytes q. Bytes are taken as they are; other numbers x by q = floor((x - low) * rate
   + 1/2), cut to [0, 255], each operation rounded to float32 (``Inputs``). Inputs that nobody uses
   are left out;
2. a hidden layer adds up int8 weights where its input is 1 (in the first layer: times q), a
   convolution with zeros around the image; its bit is 1 where the sum exceeds an int32 threshold.
   Max pooling takes the largest bit of a window; average pooling adds up the sums of a window and
   compares that with a threshold;
3. the last layer adds up int8 weights and an int32 offset: the scores of the classes. Of classes
   that tie, the first one leads.

Sums fit into int32, which is checked when a network is made.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.nn.heads import Head
from zeroone.nn.inputs import check_inputs, check_width
from zeroone.nn.network import ClassLabel
from zeroone.nn.operators import Shape
from zeroone.utils.checks import InputError

Bytes = NDArray[np.uint8]
Weights = NDArray[np.int8]
Sums = NDArray[np.int32]
MOST = 2**31 - 1
# Of weights of bytes: processors without VNNI add two products in 16 bits, and 2 * 255 * 64 fits.
LARGEST_OF_BYTES = 64
LARGEST_LAYER = 2**26  # numbers of a sample, sums or the inputs of all of them
LARGEST_NETWORK = 2**28
AT_ONCE = 2**24  # numbers of a layer


@dataclass(frozen=True)
class Inputs:
    """From a sample's raw numbers to bytes.

    ``taken``: the features that are used, by number; None uses all. ``low`` and ``rate``: one
    number for each of these, for inputs that are not bytes; None for bytes.
    """

    n_features: int
    taken: NDArray[np.int64] | None = None
    low: NDArray[np.float32] | None = None
    rate: NDArray[np.float32] | None = None

    @property
    def n_taken(self) -> int:
        """How many features are used."""
        return self.n_features if self.taken is None else len(self.taken)

    @property
    def are_bytes(self) -> bool:
        """Whether inputs are bytes already."""
        return self.low is None

    def apply(self, X: NDArray[Any]) -> Bytes:
        """The bytes of raw samples, one a row."""
        X = X if self.taken is None else X[:, self.taken]
        if self.low is None or self.rate is None:
            return np.ascontiguousarray(X, dtype=np.uint8)
        scaled = (np.asarray(X, dtype=np.float32) - self.low) * self.rate + np.float32(0.5)
        q: Bytes = np.clip(np.floor(scaled), 0, 255).astype(np.uint8)
        return q


@dataclass(frozen=True)
class Map:
    """int8 weights, one row a unit: of a dense layer, or of square kernels (``kernel`` above 0)."""

    weights: Weights  # units, inputs (channels x kernel x kernel)
    shape_in: Shape
    kernel: int = 0
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        if not self.kernel:
            fits = self.weights.shape[1] == self.n_inputs
        else:
            columns = self.shape_in[0] * self.kernel**2 if len(self.shape_in) == 3 else -1
            fits = self.weights.shape[1] == columns and min(self.shape_out) >= 1
            if self.padding >= self.kernel:
                raise InputError("kernels would see nothing: the padding is as large as they are.")
        if not fits or not self.n_out:
            raise InputError(f"weights of shape {self.weights.shape} cannot take {self.shape_in}.")
        if self.n_numbers > LARGEST_LAYER:
            raise InputError(f"a layer of shape {self.shape_out} is too large.")

    @property
    def n_inputs(self) -> int:
        """Numbers of a sample."""
        return math.prod(self.shape_in)

    @property
    def n_numbers(self) -> int:
        """How many a sample needs: its sums, or the inputs of all of them."""
        return max(self.n_out, int(self.weights.shape[1])) * math.prod(self.shape_out[1:])

    @property
    def n_out(self) -> int:
        """Units."""
        return len(self.weights)

    @property
    def grouped(self) -> Weights:
        """The weights by unit above, unit (or channel) below, and place in it."""
        return self.weights.reshape(self.n_out, self.shape_in[0], -1)

    @property
    def has_signs(self) -> bool:
        """Whether weights are -1, 0 and 1: then sums are differences of two counts."""
        return bool(((self.weights >= -1) & (self.weights <= 1)).all())

    @property
    def shape_out(self) -> Shape:
        """Of the sums of a sample."""
        if not self.kernel:
            return (self.n_out,)
        sides = [(s + 2 * self.padding - self.kernel) // self.stride + 1 for s in self.shape_in[1:]]
        return (self.n_out, *sides)

    def apply(self, V: Bytes) -> Sums:
        """The sums of each sample."""
        wide = self.weights.astype(np.int32)
        if not self.kernel:
            return V.reshape(len(V), -1).astype(np.int32) @ wide.T
        pad, k, s = self.padding, self.kernel, self.stride
        images = np.pad(V.reshape(len(V), *self.shape_in), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(images, (k, k), axis=(2, 3))
        patches = windows[:, :, ::s, ::s].transpose(0, 2, 3, 1, 4, 5)
        rows = patches.reshape(*patches.shape[:3], -1).astype(np.int32)
        return np.ascontiguousarray((rows @ wide.T).transpose(0, 3, 1, 2))


@dataclass(frozen=True)
class Stage:
    """A layer: a map, perhaps a second one from earlier bits, thresholds, a pooling.

    ``thresholds``: one number a unit, or one for each of its positions (with average pooling, of
    its pooled positions); of the last layer, offsets that are added. ``skip`` counts back to the
    activations that the ``shortcut`` takes: 1 would be those that the map takes.
    """

    main: Map
    thresholds: Sums
    pool: str = "none"
    window: int = 1
    shortcut: Map | None = None
    skip: int = 0

    def __post_init__(self) -> None:
        if self.main.weights.dtype != np.int8 or self.thresholds.dtype != np.int32:
            raise InputError("weights must be of type int8, thresholds of type int32.")

    @property
    def shape_out(self) -> Shape:
        """Of a sample's bits."""
        shape = self.main.shape_out
        if self.pool == "none":
            return shape
        return (shape[0], *(side // self.window for side in shape[1:]))

    @property
    def compared(self) -> Shape:
        """Of what is compared with thresholds: before max pooling, after average pooling."""
        return self.shape_out if self.pool == "average" else self.main.shape_out

    def sums(self, V: list[Bytes]) -> Sums:
        """Of the activations so far, those right below last."""
        total = self.main.apply(V[-1])
        return total if self.shortcut is None else total + self.shortcut.apply(V[-self.skip])

    def bits(self, V: list[Bytes]) -> Bytes:
        """The layer's bits."""
        total = self.sums(V)
        if self.pool == "average":
            total = sum_windows(total, self.window)
        bits = (total > spread(self.thresholds, self.compared)).astype(np.uint8)
        return _windows(bits, self.window).max(axis=(3, 5)) if self.pool == "max" else bits


@dataclass(frozen=True)
class IntegerNetwork:
    """A 0/1 network of integers.

    ``unit``: what 1 of a score is worth in the scores of the network that it was made of; only
    probabilities need it.
    """

    inputs: Inputs
    stages: list[Stage]
    classes: list[ClassLabel]
    head: Head
    unit: float = 1.0
    feature_names: list[str] | None = None

    def __post_init__(self) -> None:
        check_form(self)

    @property
    def n_features(self) -> int:
        """How many inputs a sample has."""
        return self.inputs.n_features

    @property
    def n_bytes(self) -> int:
        """Of weights and thresholds."""
        own = sum(m.weights.nbytes for m in self.maps)
        return own + sum(s.thresholds.nbytes for s in self.stages)

    def scores(self, X: ArrayLike | Tensor) -> Sums:
        """The scores of raw samples."""
        raw = self.check(X)
        rows = self.rows
        return np.concatenate([self._scores(raw[k : k + rows]) for k in range(0, len(raw), rows)])

    @property
    def rows(self) -> int:
        """How many samples fit into memory together."""
        largest = max(m.n_numbers for m in self.maps)
        return max(1, min(4096, AT_ONCE // largest))

    @property
    def maps(self) -> list[Map]:
        """All of them, shortcuts included."""
        return [m for s in self.stages for m in (s.main, s.shortcut) if m is not None]

    def check(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """Raw samples as a matrix of bytes, or of float32 numbers."""
        raw = check_width(check_inputs(X, torch.float32), self.n_features).numpy()
        if not self.inputs.are_bytes:
            return raw.astype(np.float32)
        if raw.dtype != np.uint8:
            with np.errstate(invalid="ignore"):
                whole = raw.astype(np.uint8)  # of what is a byte already this changes nothing
            if not np.array_equal(whole, raw):
                raise InputError("the network takes bytes, whole numbers from 0 to 255.")
            raw = whole
        return raw

    def _scores(self, X: NDArray[Any]) -> Sums:
        V = [self.inputs.apply(X)]
        for stage in self.stages[:-1]:
            V.append(stage.bits(V))
        return self.stages[-1].sums(V) + self.stages[-1].thresholds

    def predict(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """The class label of each sample; the first one where several lead."""
        labels: NDArray[Any] = np.asarray(self.classes)[self.scores(X).argmax(axis=1)]
        return labels

    def probabilities(self, scores: Sums) -> NDArray[Any]:
        """The class probabilities that go with scores."""
        logits = torch.from_numpy(scores.astype(np.float32) * np.float32(self.unit))
        shares: NDArray[Any] = self.head.probabilities(logits).numpy()
        return shares


def spread(thresholds: Sums, shape: Shape) -> Sums:
    """One threshold for each sum of a sample."""
    if thresholds.ndim == 1 and len(shape) == 3:
        thresholds = thresholds[:, None, None]
    return np.broadcast_to(thresholds, shape)


def _windows(A: NDArray[Any], size: int) -> NDArray[Any]:
    """Windows side by side, their entries in the axes 3 and 5."""
    n, units, height, width = A.shape
    h, w = height // size, width // size
    return A[:, :, : h * size, : w * size].reshape(n, units, h, size, w, size)


def sum_windows(A: Sums, size: int) -> Sums:
    """The sums of windows side by side."""
    total: Sums = _windows(A, size).sum(axis=(3, 5), dtype=np.int32)
    return total


def check_form(network: IntegerNetwork) -> None:
    """Require stages that fit each other, sums of 32 bits, and layers that fit into memory."""
    inputs, shapes = network.inputs, []
    if not network.stages or network.stages[0].main.n_inputs != inputs.n_taken:
        raise InputError("the first layer takes another number of inputs than there are.")
    for i, stage in enumerate(network.stages):
        where, last = f"layer {i + 1}", i == len(network.stages) - 1
        shapes.append(stage.main.shape_in)
        if i and math.prod(network.stages[i - 1].shape_out) != stage.main.n_inputs:
            raise InputError(f"{where} does not take what the layer below gives.")
        if stage.shortcut is not None:
            fits = 2 <= stage.skip <= i and not last
            if not fits or shapes[i + 1 - stage.skip] != stage.shortcut.shape_in:
                raise InputError(f"{where} has a shortcut that does not fit.")
            if stage.shortcut.shape_out != stage.main.shape_out:
                raise InputError(f"{where} has a shortcut of another shape.")
        pools = stage.pool != "none"
        misfit = len(stage.main.shape_out) != 3 if pools else stage.window != 1
        if misfit or min(stage.shape_out) < 1:
            raise InputError(f"{where} has a pooling that does not fit.")
        if stage.thresholds.shape not in {(stage.main.n_out,), stage.compared}:
            raise InputError(f"{where} has thresholds of shape {stage.thresholds.shape}.")
        if not i and np.abs(stage.main.weights.astype(np.int16)).max() > LARGEST_OF_BYTES:
            raise InputError(f"weights of the first layer are beyond {LARGEST_OF_BYTES}.")
        size = int((largest_sums(stage, 1 if i else 255) + _sizes(stage) * last).max())
        if max(size, int(_sizes(stage).max())) > MOST:
            raise InputError(f"{where} adds up to {size:,}, more than 32 bits hold.")
    if sum(m.n_numbers for m in network.maps) > LARGEST_NETWORK:
        raise InputError("the network is too large.")
    end = network.stages[-1]
    if end.main.shape_out != (len(network.classes),) or end.pool != "none":
        raise InputError("the last layer is not one of scores, one a class.")


def largest_sums(stage: Stage, largest: int) -> NDArray[np.int64]:
    """What the sums of each unit (with average pooling, of a window) can reach, in size.

    ``largest``: input, 255 for bytes and 1 for bits.
    """
    rows = np.abs(stage.main.weights.astype(np.int64)).sum(axis=1) * largest
    if stage.shortcut is not None:
        rows = rows + np.abs(stage.shortcut.weights.astype(np.int64)).sum(axis=1)
    total: NDArray[np.int64] = rows * (stage.window**2 if stage.pool == "average" else 1)
    return total


def _sizes(stage: Stage) -> NDArray[np.int64]:
    """The size of each unit's largest threshold."""
    sizes = np.abs(stage.thresholds.astype(np.int64)).reshape(stage.main.n_out, -1)
    return np.asarray(sizes.max(axis=1))
