"""From a network to its integer form: the step ignores a row's scale, so each row gets its own.

A hidden row w.v + b > 0 is the same as (127/m w).v > -127/m b, with m the largest weight: the left
side is rounded to int8, the right side down to an integer, since the sums are integers. In the
first layer the scaling of the inputs is folded in: w.((x - c)/s) + b > 0 is (w/s).x > (w/s).c - b.
The scores of the last layer are compared with each other: all of its rows share one scale.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.deploy.compress import compress
from zeroone.deploy.integer_form import (
    LARGEST_OF_BYTES,
    Inputs,
    IntegerNetwork,
    Map,
    Stage,
    largest_sums,
)
from zeroone.nn.inputs import check_inputs, check_width
from zeroone.nn.layers import Layer
from zeroone.nn.network import Network
from zeroone.nn.operators import Conv2d, Operator
from zeroone.nn.pooling import AvgPool, NoPool
from zeroone.nn.scaling import InputRange
from zeroone.utils.checks import InputError

LARGEST = 127


def quantise(network: Network, like: ArrayLike | Tensor | None = None) -> IntegerNetwork:
    """The integer form of a network, without what does not matter (see ``compress``).

    It takes bytes if the network was trained on bytes; other numbers by 256 steps between the
    smallest and the largest of each feature. ``like``: raw inputs to take these from, for a network
    that does not know them.
    """
    _check(network)
    small = compress(network, fold=True)
    ranges = small.scaling.inputs
    if like is not None:
        raw = check_width(check_inputs(like, torch.float64), network.n_features)
        ranges = InputRange.of(raw, torch.float64)
    elif ranges is None:
        raise InputError(
            "the model does not say what its inputs look like: give data of their kind, --data."
        )
    inputs = _inputs(small, ranges)
    stages, rates = zip(
        *(_stage(small, i, layer, inputs) for i, layer in enumerate(small.layers)), strict=True
    )
    made = IntegerNetwork(
        inputs,
        list(stages),
        list(small.classes),
        small.head,
        1 / rates[-1],
        small.feature_names,
    )
    return without_idle(made)


def _check(network: Network) -> None:
    """Name the layer that has no integer form."""
    if network.body is not None:
        raise InputError(
            f"the body {network.body.name!r} has real activations: only networks whose hidden "
            f"layers are all 0/1 have an integer form."
        )
    for i, layer in enumerate(network.layers):
        if layer.pool.kind not in ("none", "max", "average"):
            raise InputError(f"layer {i + 1}: the pooling {layer.pool.kind!r} has no integer form.")
    for link in network.shortcuts:
        if link.source == 0:
            raise InputError(
                f"layer {link.layer + 1} has a shortcut from the inputs: bytes and bits have no "
                f"common scale."
            )


def _inputs(network: Network, ranges: InputRange) -> Inputs:
    n, taken = network.n_features, network.scaling.taken
    columns = slice(None) if taken is None else taken
    used = None if taken is None else taken.numpy()
    if ranges.are_bytes:
        return Inputs(n, used)
    low, high = ranges.low.double()[columns], ranges.high.double()[columns]
    if isinstance(network.operators[0], Conv2d):
        low, high = low.min().expand(len(low)), high.max().expand(len(high))  # share their weights
    _check_range(network, used, low, high)
    span = torch.where(high > low, high - low, 1.0)
    return Inputs(n, used, low.float().numpy().copy(), (255 / span).float().numpy())


def _check_range(
    network: Network, used: NDArray[np.int64] | None, low: Tensor, high: Tensor
) -> None:
    """Require inputs that are still told apart as float32 numbers, which all exports take."""
    largest = torch.maximum(low.abs(), high.abs()).float().numpy()
    steps = (high - low).numpy() / 255
    lost = (steps > 0) & ((steps < np.spacing(largest)) | (steps < 1e-30))
    if lost.any():
        k = int(np.flatnonzero(lost)[0])
        number = k if used is None else int(used[k])
        name = f"input {number}" if network.feature_names is None else network.feature_names[number]
        raise InputError(
            f"{name} lies between {float(low[k]):.9g} and {float(high[k]):.9g}, where float32 does "
            f"not tell 256 steps apart: subtract its mean before training."
        )


def _stage(network: Network, i: int, layer: Layer, inputs: Inputs) -> tuple[Stage, float]:
    """A layer, and by how much (the last one, as a whole) it was enlarged."""
    last = i == len(network.layers) - 1
    W, limit = layer.operator.linear.double(), torch.zeros(layer.operator.n_out).double()
    if i == 0:
        W, limit = _fold(layer.operator, network, inputs)
    if layer.operator.offset is not None:
        limit = limit - layer.operator.offset.double().reshape(-1, *[1] * (limit.ndim - 1))
    S = None if layer.shortcut is None else layer.shortcut.linear.double()
    both = W if S is None else torch.cat([W, S], dim=1)
    sizes = both.abs().max().expand(len(both)) if last else both.abs().amax(dim=1)
    largest = torch.full_like(sizes, LARGEST if i else LARGEST_OF_BYTES)
    if not last:
        largest[_has_few_values(both, sizes)] = 1.0
    rate = largest / torch.where(sizes > 0, sizes, 1.0)
    limits = limit * rate.reshape(-1, *[1] * (limit.ndim - 1))
    if isinstance(layer.pool, AvgPool):  # the mean of a window exceeds the mean of its limits
        entries = layer.pool.size**2
        limits = entries * (limits if limits.ndim == 1 else layer.pool.forward(limits[None])[0])
    draft = Stage(
        _as_map(layer.operator, W * rate[:, None]),
        np.zeros(layer.operator.n_out, np.int32),
        "none" if isinstance(layer.pool, NoPool) else layer.pool.kind,
        layer.pool.size,
        None if S is None or layer.shortcut is None else _as_map(layer.shortcut, S * rate[:, None]),
        layer.skip,
    )
    whole = _offsets(-limits, i) if last else _thresholds(limits, draft, 1 if i else 255)
    return replace(draft, thresholds=whole), float(rate[0])


def _thresholds(limits: Tensor, stage: Stage, largest: int) -> NDArray[np.int32]:
    """Sums are integers: they exceed a limit if they exceed the integer below it.

    A limit that no sum reaches, or that all exceed, may as well be the nearest such number.
    """
    reach = torch.from_numpy(largest_sums(stage, largest)).double()
    reach = reach.reshape(-1, *[1] * (limits.ndim - 1))
    cut = torch.maximum(torch.minimum(torch.floor(limits), reach), -reach - 1)
    values: NDArray[np.int32] = cut.to(torch.int32).numpy()
    return values


def _offsets(offsets: Tensor, i: int) -> NDArray[np.int32]:
    if bool((offsets.abs() > 2**31 - 1).any()):
        raise InputError(f"layer {i + 1} has offsets beyond 32 bits.")
    values: NDArray[np.int32] = torch.round(offsets).to(torch.int32).numpy()
    return values


def _has_few_values(W: Tensor, sizes: Tensor) -> Tensor:
    """For each row whether its weights are -a, 0 or a, as those of ternary training are."""
    relative = W.abs() / torch.where(sizes > 0, sizes, 1.0)[:, None]
    return ((relative < 1e-6) | (relative > 1 - 1e-5)).all(dim=1)


def _fold(operator: Operator, network: Network, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """The weights of bytes, and what to add to the limits, of an operator on scaled inputs.

    Scaled inputs are (x - c)/s, and x = low + q / rate. Around an image the scaled inputs are 0,
    where bytes are 0 as well: the shift of the inputs must not count there, so limits differ by
    position.
    """
    scaling = network.scaling
    columns = torch.arange(len(scaling.centre)) if scaling.taken is None else scaling.taken
    step: Tensor = 1 / scaling.scale.double().expand(len(scaling.centre))[columns]
    shift = -scaling.centre.double()[columns] * step
    if inputs.low is not None and inputs.rate is not None:
        shift = shift + torch.from_numpy(inputs.low).double() * step
        step = step / torch.from_numpy(inputs.rate).double()
    if not isinstance(operator, Conv2d):
        W = operator.linear.double()
        return W * step, -(W @ shift)
    if not torch.allclose(step, step[:1].expand(len(step))):
        raise InputError(
            "layer 1: a convolution shares its weights between pixels, so that all of them must be "
            "scaled alike (scaling='common')."
        )
    wide = Conv2d(
        operator.linear.double(),
        operator.shape_in,
        False,
        kernel=operator.kernel,
        stride=operator.stride,
        padding=operator.padding,
    )
    moved = wide.apply(shift.reshape(1, *operator.shape_in))[0]
    return operator.linear.double() * step[0], -moved


def _as_map(operator: Operator, W: Tensor) -> Map:
    weights = torch.round(W).clamp(-LARGEST, LARGEST).to(torch.int8).numpy()
    if isinstance(operator, Conv2d):
        return Map(weights, operator.shape_in, operator.kernel, operator.stride, operator.padding)
    return Map(weights, operator.shape_in)


def without_idle(network: IntegerNetwork) -> IntegerNetwork:
    """The same scores without the units and inputs whose weights were all rounded to 0.

    Where there are shortcuts all units stay.
    """
    stages = list(network.stages)
    plain = not any(stage.shortcut for stage in stages)
    for i in range(len(stages) - 1, 0, -1) if plain else ():
        below, above = stages[i - 1], stages[i]
        used = _used(above.main)
        if used.all() or not used.any():
            continue
        stages[i] = replace(above, main=_take_inputs(above.main, used))
        rows = replace(below.main, weights=below.main.weights[used])
        stages[i - 1] = replace(below, main=rows, thresholds=below.thresholds[used])
    inputs, first = network.inputs, stages[0].main
    used = _used(first)
    if len(first.shape_in) == 1 and used.any() and not used.all():
        stages[0] = replace(stages[0], main=_take_inputs(first, used))
        taken = np.arange(inputs.n_features) if inputs.taken is None else inputs.taken
        low = None if inputs.low is None else inputs.low[used]
        rate = None if inputs.rate is None else inputs.rate[used]
        inputs = Inputs(inputs.n_features, taken[used], low, rate)
    return replace(network, inputs=inputs, stages=stages)


def _used(linear: Map) -> NDArray[np.bool_]:
    """Which units (or inputs, or channels) below have a weight."""
    return np.asarray(linear.grouped.any(axis=(0, 2)))


def _take_inputs(linear: Map, used: NDArray[np.bool_]) -> Map:
    weights = linear.grouped[:, used].reshape(linear.n_out, -1)
    shape = (int(used.sum()), *linear.shape_in[1:])
    return replace(linear, weights=np.ascontiguousarray(weights), shape_in=shape)
