"""Convert a network to its integer form. The step ignores a row's scale, so each row has its own.

A hidden row w.v + b > 0 is equivalent to (127/m w).v > -127/m b, where m is its largest weight. The
left side is rounded to int8, the right side down to an integer, because sums are integers. The
first layer absorbs the scaling of the inputs: w.((x - c)/s) + b > 0 is (w/s).x > (w/s).c - b. The
scores of the last layer are compared with each other, so all of its rows share one scale.
"""

from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional

from zeroone.deploy.compress import compress
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
    small = deepcopy(network)
    first, constant = small.operators[0], small.scaling.constant
    if constant is not None and first.is_matrix:  # an image stays whole
        first.linear[:, torch.isin(_used(small), constant)] = 0
    small = compress(small, fold=True)
    ranges = small.scaling.inputs
    if like is not None and small.scaling.bits == 8:
        raw = check_width(check_inputs(like, torch.float64), network.n_features)
        ranges = InputRange.of(raw, torch.float64)
    if ranges is None:
        raise InputError(
            "the model does not say what its inputs look like: give data of their kind, --data."
        )
    for layer, stage in zip(small.layers, convert(small, ranges).stages, strict=True):
        layer.operator.linear[torch.from_numpy(stage.main.weights == 0)] = 0
    return convert(compress(small, fold=True), ranges)  # what only fed weights of 0 leaves


def convert(network: Network, ranges: InputRange) -> IntegerNetwork:
    """Convert a network on raw inputs of these ranges layer by layer; nothing is removed."""
    inputs = _inputs(network, ranges)
    drafts: list[_Draft] = []
    for i in range(len(network.layers)):
        drafts.append(_draft(network, i, inputs, drafts[-1] if drafts else None))
    sizes = _sizes([draft.W for draft in drafts], network.streams)
    stages: list[Stage] = []
    reach, unit = None, 1.0  # the largest sums of the layer below
    for i, draft in enumerate(drafts):
        stage, limits, unit = _stage(network, i, draft, sizes[i])
        reach = largest_sums(stage, 1 if i else inputs.largest, reach)
        stages.append(_with_thresholds(stage, limits, reach, last=i == len(drafts) - 1))
    return IntegerNetwork(
        inputs, stages, list(network.classes), network.head, unit, network.feature_names
    )


@dataclass(frozen=True)
class _Draft:
    """A layer on the integers below it: real weights, and limits that its sums are to exceed."""

    W: Tensor
    limits: Tensor  # by bit of a unit, unit and perhaps position
    offset: Tensor  # of each unit, with those that a stream brings


def _draft(network: Network, i: int, inputs: Inputs, below: _Draft | None) -> _Draft:
    layer, operator = network.layers[i], network.operators[i]
    W, limits = operator.linear.double(), layer.levels().double()
    if i == 0:
        W, moved = _fold_scaling(operator, network, inputs)
        limits = limits.reshape(*limits.shape, *[1] * (moved.ndim - 1)) + moved
    offset = torch.zeros(operator.n_out).double()
    if operator.offset is not None:
        offset = operator.offset.double()
    if layer.stream and below is not None:  # integer sums carry no offsets
        offset = offset + below.offset.repeat(len(offset) // len(below.offset))
    return _Draft(W, limits - _per_unit(offset, limits), offset)


def _sizes(weights: list[Tensor], streams: list[bool]) -> list[Tensor]:
    """Return each unit's largest weight: of the whole layer for the scores, else of its stream."""
    sizes = [W.abs().amax(dim=1) for W in weights]
    sizes[-1] = sizes[-1].max().expand(len(sizes[-1]))
    for i in reversed(range(1, len(sizes))):
        if streams[i]:
            n = len(sizes[i - 1])
            sizes[i - 1] = torch.maximum(sizes[i - 1], sizes[i].view(-1, n).amax(dim=0))
    for i in range(1, len(sizes)):
        if streams[i]:
            sizes[i] = sizes[i - 1].repeat(len(sizes[i]) // len(sizes[i - 1]))
    return sizes


def _used(network: Network) -> Tensor:
    """Return the indices of the inputs in use."""
    taken = network.scaling.taken
    return torch.arange(network.n_features) if taken is None else taken


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
        joined = i + 1 < len(network.layers) and network.streams[i + 1]
        if joined and i == 0:
            raise InputError(
                "layer 2 has a stream from the layer that takes the inputs: sums of bytes and of "
                "bits have no common scale. Begin the stream at the third layer."
            )
        if joined and layer.pool.kind == "average":
            raise InputError(f"layer {i + 2}: a stream of averages has no integer form.")


def _inputs(network: Network, ranges: InputRange) -> Inputs:
    """Choose the 256 levels of each input in use; float32, which exports take, must hold them."""
    n, used = network.n_features, _used(network).numpy()
    taken = None if network.scaling.taken is None else used
    if ranges.are_bytes:
        return Inputs(n, taken, bits=network.scaling.bits)
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
    return Inputs(n, taken, low.astype(np.float32), rate.astype(np.float32))


def _stage(network: Network, i: int, draft: _Draft, sizes: Tensor) -> tuple[Stage, Tensor, float]:
    """Round the weights of layer i, whose units have weights of these sizes.

    Returns also the limits of its sums, and the unit of its sums.
    """
    layer, last = network.layers[i], i == len(network.layers) - 1
    operator, W, limits = layer.operator, draft.W, draft.limits
    largest = torch.full_like(sizes, LARGEST if i else LARGEST_OF_BYTES)
    if not last and not any(network.streams[i : i + 2]):
        largest[_has_few_values(W, sizes)] = 1.0
    rate = largest / torch.where(sizes > 0, sizes, 1.0)
    limits = limits * _per_unit(rate, limits)
    if isinstance(layer.pool, AvgPool):  # the mean of a window exceeds the mean of its limits
        entries = layer.pool.size**2
        limits = entries * (limits if limits.ndim == 2 else layer.pool.forward(limits))
    stage = Stage(
        _as_map(operator, W * rate[:, None]),
        np.zeros(operator.n_out, np.int32),
        layer.pool.kind,
        layer.pool.size,
        layer.stream,
    )
    return stage, limits, 1 / float(rate[0])


def _with_thresholds(
    stage: Stage, limits: Tensor, reach: NDArray[np.int64], *, last: bool
) -> Stage:
    """Round limits to thresholds; those of the last layer, with the other sign, to offsets."""
    whole = torch.round(-limits) if last else _thresholds(limits, reach)
    if last and bool((whole.abs() > MOST).any()):
        raise InputError("the last layer has offsets beyond 32 bits.")
    if whole.ndim == 4 and bool((whole == whole[..., :1, :1]).all()):
        whole = whole[..., 0, 0]  # one for all positions
    return replace(stage, thresholds=whole.flatten(0, 1).to(torch.int32).numpy())


def _per_unit(values: Tensor, limits: Tensor) -> Tensor:
    """Shape one value per unit so that it broadcasts over the positions of limits."""
    return values.reshape(-1, *[1] * (limits.ndim - 2))


def _thresholds(limits: Tensor, largest: NDArray[np.int64]) -> Tensor:
    """Round limits down: an integer exceeds a limit if it exceeds the integer below it.

    A limit out of reach becomes the nearest one that no sum, or every sum, exceeds.
    """
    reach = _per_unit(torch.from_numpy(largest).double(), limits)
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
    scaling, used = network.scaling, _used(network)
    step: Tensor = 1 / scaling.scale.double().expand(len(scaling.centre))[used]
    shift = -scaling.centre.double()[used] * step
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
