"""The same network without what does not matter: dead units, inputs that nobody uses.

Training with l2,0 empties columns; a unit whose columns are empty everywhere above it is dead, and
so is one that feeds only dead units, and one that is never on. They leave with their rows and
columns.
"""

from copy import deepcopy

import torch
from torch import Tensor

from zeroone.analysis.counts import alive_units
from zeroone.nn.layers import Link
from zeroone.nn.network import Network
from zeroone.nn.operators import Conv2d, Dense

SURELY = 1e-5  # of what a unit's weights add up to: closer to 0 a constant is not told apart


def compress(network: Network, *, fold: bool = False) -> Network:
    """A smaller network with the same scores; the one given stays as it is.

    Inputs leave a first layer that is dense and not on a body. ``fold``: units that are always 1
    leave as well, and what they add above goes into the biases there. Sums are then rounded
    otherwise, and a pre-activation next to 0 may cross it: integers are not rounded, so it is meant
    for them.
    """
    small = deepcopy(network)
    for i in range(1, len(small.layers)):
        _fold_constants(small, i, fold=fold)
    alive = alive_units(small)
    for i in range(1, len(small.layers)):
        stay = alive[i].nonzero().flatten()
        _select(small, i, stay if len(stay) else torch.tensor([0]))
    inputs = alive[0].nonzero().flatten()
    if small.body is None and 0 < len(inputs) < len(alive[0]) and _takes_rows(small):
        for link in small.consumers(0):
            op = link.operator
            small.replace(link, op.select(inputs, torch.arange(op.n_out)))
        small.scaling = small.scaling.take(inputs)
    return small


def _takes_rows(network: Network) -> bool:
    """Whether whatever takes the inputs takes them one by one."""
    return all(
        isinstance(link.operator, Dense) and len(link.operator.shape_in) == 1
        for link in network.consumers(0)
    )


def _select(network: Network, i: int, stay: Tensor) -> None:
    """Keep only these units of V[i], i > 0: their rows below and their columns above."""
    for link in network.consumers(i):
        op = link.operator
        network.replace(link, op.select(stay, torch.arange(op.n_out)))
    for link in network.into(i - 1):
        op = link.operator
        network.replace(link, op.select(torch.arange(op.n_in), stay))


def _fold_constants(network: Network, i: int, *, fold: bool) -> None:
    """Empty the columns of units of V[i] whose bit is known; a 1 goes into the biases above."""
    never, always = _known_bits(network, i)
    consumers = network.consumers(i)
    if not fold or not all(_can_fold(network, link) for link in consumers):
        always = torch.zeros_like(always)
    for link in consumers:
        layer = network.layers[link.layer]
        offset = layer.operator.offset
        if bool(always.any()) and offset is not None:
            ones = link.operator.columns_of(always.nonzero().flatten())
            offset.add_(link.operator.linear[:, ones].sum(dim=1))
        gone = link.operator.columns_of((never | always).nonzero().flatten())
        link.operator.linear[:, gone] = 0


def _known_bits(network: Network, i: int) -> tuple[Tensor, Tensor]:
    """Of each unit of V[i], whether its bit is 0, or 1, whatever the bits below are.

    Above raw inputs, which have no bounds, only units without weights are known.
    """
    least = torch.zeros(network.layers[i - 1].operator.n_out, dtype=torch.float64)
    most, size = least.clone(), least.clone()
    for link in network.into(i - 1):
        W = link.operator.linear.double()
        size += W.abs().sum(dim=1)
        if link.source == 0:  # of either sign, and of any size
            unknown = torch.where((W != 0).any(dim=1), torch.inf, 0.0)
            most, least = most + unknown, least - unknown
        else:
            most += W.clamp_min(0).sum(dim=1)
            least += W.clamp_max(0).sum(dim=1)
    offset = network.layers[i - 1].operator.offset
    if offset is not None:
        most, least = most + offset.double(), least + offset.double()
        size += offset.double().abs()
    without = size == (0 if offset is None else offset.double().abs())  # no weights, no rounding
    margin = torch.where(without, 0, SURELY * size)
    return most <= -margin, least > margin


def _can_fold(network: Network, link: Link) -> bool:
    """Whether a constant 1 below adds the same everywhere: not at the edge of a padded image."""
    if isinstance(link.operator, Conv2d) and link.operator.padding:
        return False
    return network.layers[link.layer].operator.offset is not None
