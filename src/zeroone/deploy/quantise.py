"""From a network to its integer form: the step ignores a row's scale, so each row gets its own.

A hidden row w.v + b > 0 is the same as (127/m w).v > -127/m b, with m the largest weight: the left
side is rounded to int8, the right side down to an integer, since the sums are integers. In the
first layer the scaling of the inputs is folded in: w.((x - c)/s) + b > 0 is (w/s).x > (w/s).c - b.
The scores of the last layer are compared with each other: all of its rows share one scale.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zeroone.checks import InputError
from zeroone.compression import compress
from zeroone.deploy.form import Inputs, IntegerNetwork, Map, Stage
from zeroone.layers import Layer
from zeroone.network import Network
from zeroone.operators import Conv2d, Operator
from zeroone.pooling import NoPool
from zeroone.scaling import InputRange

LARGEST = 127
# Of weights of bytes: processors without VNNI add two products in 16 bits, and 2 * 255 * 64 fits.
LARGEST_OF_BYTES = 64


def quantise(network: Network, like: Tensor | None = None) -> IntegerNetwork:
    """The integer form of a network, without what does not matter (see ``compress``).

    It takes bytes if the network was trained on bytes; other numbers by 256 steps between the
    smallest and the largest of each feature. ``like``: raw inputs to take these from, for a network
    that does not know them.
    """
    _check(network)
    small = compress(network)
    ranges = small.scaling.inputs
    if like is not None:
        ranges = InputRange.of(like, torch.float64)
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
    span = torch.where(high > low, high - low, 1.0)
    return Inputs(n, used, low.float().numpy().copy(), (255 / span).float().numpy())


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
    rate = (LARGEST if i else LARGEST_OF_BYTES) / torch.where(sizes > 0, sizes, 1.0)
    limits = limit * rate.reshape(-1, *[1] * (limit.ndim - 1))
    # Sums are integers: they exceed a limit if they exceed the integer below. Offsets are added.
    whole = torch.round(-limits) if last else torch.floor(limits)
    stage = Stage(
        _as_map(layer.operator, W * rate[:, None]),
        _as_int32(whole, i),
        "none" if isinstance(layer.pool, NoPool) else layer.pool.kind,
        layer.pool.size,
        None if S is None or layer.shortcut is None else _as_map(layer.shortcut, S * rate[:, None]),
        layer.skip,
    )
    return stage, float(rate[0])


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


def _as_int32(limits: Tensor, i: int) -> NDArray[np.int32]:
    if bool((limits.abs() > 2**31 - 1).any()):
        raise InputError(f"layer {i + 1} has thresholds beyond 32 bits.")
    values: NDArray[Any] = limits.to(torch.int32).numpy()
    return values


def without_idle(network: IntegerNetwork) -> IntegerNetwork:
    """The same scores without the units and inputs whose weights were all rounded to 0.

    Where there are shortcuts all units stay.
    """
    stages = list(network.stages)
    if any(stage.shortcut for stage in stages):
        return network
    for i in range(len(stages) - 1, 0, -1):
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
