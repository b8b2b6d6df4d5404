"""Convert a network to its integer form. The step ignores a row's scale, so each row has its own.

A hidden row w.v + b > 0 is equivalent to (127/m w).v > -127/m b, where m is its largest weight. The
left side is rounded to int8, the right side down to an integer, because sums are integers. The
first layer absorbs the scaling of the inputs: w.((x - c)/s) + b > 0 is (w/s).x > (w/s).c - b. The
scores of the last layer are compared with each other, so all of its rows share one scale.
"""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

from zeroone.deploy.compress import compress, select_columns, takes_rows
from zeroone.deploy.integer_form import (
    LARGEST_OF_BYTES,
    MOST,
    Inputs,
    IntegerNetwork,
    Map,
    Stage,
    largest_sums,
)
from zeroone.nn.inputs import check_inputs, check_width
from zeroone.nn.network import Network, check_network
from zeroone.nn.operators import Operator
from zeroone.nn.pooling import AvgPool
from zeroone.nn.scaling import InputRange
from zeroone.utils.checks import InputError

LARGEST = 127


def quantise(network: Network, like: ArrayLike | Tensor | None = None) -> IntegerNetwork:
    """Return the integer form of a network, compressed (see ``compress``).

    Inputs of a dense layer that never varied in the training leave: their weights are random.

    It takes bytes if the network was trained on bytes. Other inputs are quantised to 256 levels
    between the smallest and the largest value of each feature.

    Args:
        network: A network whose hidden activations are all 0/1.
        like: Raw inputs that show the range of each feature, for a network that does not know it.

    Raises:
        InputError: The network has no integer form, or the range of its inputs is unknown.

    """
    check_has_integers(check_network(network))
    small = compress(_without_constants(network.expanded()), fold=True)
    ranges = small.scaling.inputs
    if like is not None and small.scaling.bits == 8:
        raw = check_width(check_inputs(like, torch.float64), network.n_features)
        ranges = InputRange.of(raw, torch.float64)
    if ranges is None:
        raise InputError(
            "the model does not say what its inputs look like: give data of their kind, --data."
        )
    return without_idle(convert(small, ranges))


def convert(network: Network, ranges: InputRange) -> IntegerNetwork:
    """Convert a network on raw inputs of these ranges layer by layer; nothing is removed."""
    inputs = _inputs(network, ranges)
    made = [_stage(network, i, inputs) for i in range(len(network.layers))]
    stages, unit = [stage for stage, _ in made], 1 / made[-1][1]
    return IntegerNetwork(
        inputs, stages, list(network.classes), network.head, unit, network.feature_names
    )


def _without_constants(network: Network) -> Network:
    """Remove inputs that never varied in the training; a convolution keeps its images whole."""
    scaling = network.scaling.without_constants()
    if scaling is network.scaling or not takes_rows(network):
        return network
    small = deepcopy(network)
    used = torch.arange(network.n_features) if small.scaling.taken is None else small.scaling.taken
    assert scaling.taken is not None
    select_columns(small, 0, torch.isin(used, scaling.taken).nonzero().flatten())
    small.scaling = scaling
    return small


def check_has_integers(network: Network) -> None:
    """Refuse a network without an integer form."""
    if network.backbone is not None:
        raise InputError(
            f"the backbone {network.backbone.name!r} has real activations: only networks whose "
            f"hidden layers are all 0/1 have an integer form."
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
    """Choose the 256 levels of each input in use; float32, which exports take, must hold them."""
    n, taken = network.n_features, network.scaling.taken
    used = np.arange(n) if taken is None else taken.numpy()
    if ranges.are_bytes:
        return Inputs(n, None if taken is None else used, bits=network.scaling.bits)
    low, high = ranges.low.double().numpy()[used], ranges.high.double().numpy()[used]
    if network.operators[0].kernel:  # pixels share their weights, so their levels too
        low, high = np.full_like(low, low.min()), np.full_like(high, high.max())
    steps = (high - low) / 255
    with np.errstate(over="ignore", invalid="ignore"):  # beyond float32, there is no spacing
        spacing = np.spacing(np.maximum(np.abs(low), np.abs(high)).astype(np.float32))
    lost = np.flatnonzero((steps > 0) & ~((steps >= spacing) & (steps >= 1e-30)))
    if len(lost):
        k = lost[0]
        names = network.feature_names
        name = f"input {used[k]}" if names is None else names[used[k]]
        raise InputError(
            f"{name} lies between {low[k]:.9g} and {high[k]:.9g}, where float32 does "
            f"not tell 256 steps apart: scale it, or subtract its mean, before training."
        )
    rate = 255 / np.where(high > low, high - low, 1.0)
    kept = None if taken is None else used
    return Inputs(n, kept, low.astype(np.float32), rate.astype(np.float32))


def _stage(network: Network, i: int, inputs: Inputs) -> tuple[Stage, float]:
    """Convert layer i; return the stage, and by how much it enlarges the scores (if the last)."""
    layer, last = network.layers[i], i == len(network.layers) - 1
    operator, shortcut = layer.operator, layer.shortcut
    W, limits = operator.linear.double(), torch.zeros(operator.n_out).double()
    if i == 0:
        W, limits = _fold_scaling(operator, network, inputs)
    if operator.offset is not None:
        limits = limits - _per_unit(operator.offset.double(), limits)
    both = W if shortcut is None else torch.cat([W, shortcut.linear.double()], dim=1)
    sizes = both.abs().max().expand(len(both)) if last else both.abs().amax(dim=1)
    largest = torch.full_like(sizes, LARGEST if i else LARGEST_OF_BYTES)
    if not last:
        largest[_has_few_values(both, sizes)] = 1.0
    rate = largest / torch.where(sizes > 0, sizes, 1.0)
    limits = limits * _per_unit(rate, limits)
    if isinstance(layer.pool, AvgPool):  # the mean of a window exceeds the mean of its limits
        entries = layer.pool.size**2
        limits = entries * (limits if limits.ndim == 1 else layer.pool.forward(limits[None])[0])
    draft = Stage(
        _as_map(operator, W * rate[:, None]),
        np.zeros(operator.n_out, np.int32),
        layer.pool.kind,
        layer.pool.size,
        None if shortcut is None else _as_map(shortcut, shortcut.linear.double() * rate[:, None]),
        layer.skip,
    )
    whole = torch.round(-limits) if last else _thresholds(limits, draft, 1 if i else inputs.largest)
    if last and bool((whole.abs() > MOST).any()):
        raise InputError(f"layer {i + 1} has offsets beyond 32 bits.")
    if whole.ndim == 3 and bool((whole == whole[:, :1, :1]).all()):
        whole = whole[:, 0, 0]  # one for all positions
    return replace(draft, thresholds=whole.to(torch.int32).numpy()), float(rate[0])


def _per_unit(values: Tensor, limits: Tensor) -> Tensor:
    """Shape one value per unit so that it broadcasts over the positions of limits."""
    return values.reshape(-1, *[1] * (limits.ndim - 1))


def _thresholds(limits: Tensor, stage: Stage, largest: int) -> Tensor:
    """Round limits down: an integer exceeds a limit if it exceeds the integer below it.

    A limit out of reach becomes the nearest one that no sum, or every sum, exceeds.
    """
    reach = _per_unit(torch.from_numpy(largest_sums(stage, largest)).double(), limits)
    return torch.maximum(torch.minimum(torch.floor(limits), reach), -reach - 1)


def _has_few_values(W: Tensor, sizes: Tensor) -> Tensor:
    """Find the rows whose weights are all -a, 0 or a, as ternary training gives them."""
    relative = W.abs() / torch.where(sizes > 0, sizes, 1.0)[:, None]
    return ((relative < 1e-6) | (relative > 1 - 1e-5)).all(dim=1)


def _fold_scaling(operator: Operator, network: Network, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Convert an operator on scaled inputs (x - c)/s to one on bytes q, x = low + q / rate.

    Of bytes x, q may be the upper bits: x = q << shift.

    Return the weights of bytes, and what to add to the limits. Around an image both scaled inputs
    and bytes are 0, so the shift must not count there: limits differ by position.
    """
    scaling = network.scaling
    columns = torch.arange(len(scaling.centre)) if scaling.taken is None else scaling.taken
    step: Tensor = 1 / scaling.scale.double().expand(len(scaling.centre))[columns]
    shift = -scaling.centre.double()[columns] * step
    if inputs.low is not None and inputs.rate is not None:
        shift = shift + torch.from_numpy(inputs.low).double() * step
        step = step / torch.from_numpy(inputs.rate).double()
    step = step * 2.0**inputs.shift
    W = operator.linear.double()
    if not operator.kernel:
        return W * step, -(W @ shift)
    if not torch.allclose(step, step[:1].expand(len(step))):
        raise InputError(
            "layer 1: a convolution shares its weights between pixels, so that all of them must be "
            "scaled alike (scaling='common')."
        )
    kernels = W.reshape(operator.n_out, -1, operator.kernel, operator.kernel)
    image = shift.reshape(operator.shape_in)
    moved = functional.conv2d(image, kernels, stride=operator.stride, padding=operator.padding)
    return W * step[0], -moved


def _as_map(operator: Operator, W: Tensor) -> Map:
    weights = torch.round(W).clamp(-LARGEST, LARGEST).to(torch.int8).numpy()
    return Map(weights, operator.shape_in, operator.kernel, operator.stride, operator.padding)


def without_idle(network: IntegerNetwork) -> IntegerNetwork:
    """Remove units and inputs whose weights were all rounded to 0; scores stay the same.

    A network with shortcuts keeps all units.
    """
    stages = list(network.stages)
    plain = not any(stage.shortcut for stage in stages)
    for i in range(len(stages) - 1, 0, -1) if plain else ():
        below, above = stages[i - 1], stages[i]
        used = _used(above.main)
        if used.any():
            rows = replace(below.main, weights=below.main.weights[used])
            stages[i - 1] = replace(below, main=rows, thresholds=below.thresholds[used])
            stages[i] = replace(above, main=_take_inputs(above.main, used))
    inputs, first = network.inputs, stages[0].main
    used = _used(first)
    if len(first.shape_in) == 1 and used.any() and not used.all():
        stages[0] = replace(stages[0], main=_take_inputs(first, used))
        taken = np.arange(inputs.n_features) if inputs.taken is None else inputs.taken
        low = None if inputs.low is None else inputs.low[used]
        rate = None if inputs.rate is None else inputs.rate[used]
        inputs = Inputs(inputs.n_features, taken[used], low, rate, inputs.bits)
    return replace(network, inputs=inputs, stages=stages)


def _used(linear: Map) -> NDArray[np.bool_]:
    """Find the units (or inputs, or channels) below that have a weight."""
    by_channel = linear.weights.reshape(linear.n_out, linear.shape_in[0], -1)
    return np.asarray(by_channel.any(axis=(0, 2)))


def _take_inputs(linear: Map, used: NDArray[np.bool_]) -> Map:
    by_channel = linear.weights.reshape(linear.n_out, linear.shape_in[0], -1)
    weights = by_channel[:, used].reshape(linear.n_out, -1)
    shape = (int(used.sum()), *linear.shape_in[1:])
    return replace(linear, weights=np.ascontiguousarray(weights), shape_in=shape)
