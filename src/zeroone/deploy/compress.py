"""Remove what does not matter from a network: dead units, constant units, unused inputs.

Training with l2,0 empties columns. A unit is dead if all columns above it are empty, if it feeds
only dead units, or if it is never on. Dead units leave with their rows and columns.
"""

import torch
from torch import Tensor

from zeroone.analysis.counts import alive_units
from zeroone.nn.layers import Link
from zeroone.nn.network import Network, check_network

SURELY = 1e-5  # relative to the sum of a unit's weights: rounding hides smaller constants


def compress(network: Network, *, fold: bool = False) -> Network:
    """Return a smaller copy of a network with the same scores.

    Unused inputs leave as well if the first layer is dense and takes raw inputs.

    Args:
        network: The network, which stays as it is.
        fold: Whether to remove units that are always 1 too, and add their weights to the biases
            above. This changes how sums are rounded, so a pre-activation near 0 may change sign;
            integers are not rounded.

    """
    small = check_network(network).expanded()
    for i in range(1, len(small.layers)):
        _fold_constants(small, i, fold=fold)
    alive = alive_units(small)
    takes_rows = all(link.operator.is_matrix for link in small.consumers(0))
    if small.backbone is not None or not takes_rows or not alive[0].any():
        alive[0][:] = True
    kept = [marks.nonzero().flatten() if marks.any() else torch.tensor([0]) for marks in alive]
    for link in small.links:
        link.operator.select(kept[link.source], kept[link.layer + 1])
    if not alive[0].all():
        small.scaling = small.scaling.take(kept[0])
    return small


def _fold_constants(network: Network, i: int, *, fold: bool) -> None:
    """Empty the columns of units of V[i] with a known bit; a 1 moves into the biases above."""
    never, always = _known_bits(network, i)
    consumers = network.consumers(i)
    if not fold or not all(_can_fold(network, link) for link in consumers):
        always = torch.zeros_like(always)
    for link in consumers:
        offset = network.layers[link.layer].operator.offset
        if offset is not None:
            ones = link.operator.columns_of(always.nonzero().flatten())
            offset.add_(link.operator.linear[:, ones].sum(dim=1))
        gone = link.operator.columns_of((never | always).nonzero().flatten())
        link.operator.linear[:, gone] = 0


def _known_bits(network: Network, i: int) -> tuple[Tensor, Tensor]:
    """Find the units of V[i] that are 0, and those that are 1, whatever the bits below are.

    Raw inputs have no bounds: above them, only units without weights are known.
    """
    least = torch.zeros(network.layers[i - 1].operator.n_out, dtype=torch.float64)
    most, size = least.clone(), least.clone()
    for link in network.into(i - 1):
        W = link.operator.linear.double()
        size += W.abs().sum(dim=1)
        if link.source == 0:
            unknown = torch.where((W != 0).any(dim=1), torch.inf, 0.0)
            most, least = most + unknown, least - unknown
        else:
            most += W.clamp_min(0).sum(dim=1)
            least += W.clamp_max(0).sum(dim=1)
    has_weights = size > 0
    offset = network.layers[i - 1].operator.offset
    if offset is not None:
        most, least = most + offset.double(), least + offset.double()
        size += offset.double().abs()
    margin = torch.where(has_weights, SURELY * size, 0)  # a bias alone is not rounded
    return most <= -margin, least > margin


def _can_fold(network: Network, link: Link) -> bool:
    """Whether a constant 1 below adds the same everywhere; the edge of a padded image differs."""
    return not link.operator.padding and network.layers[link.layer].operator.bias
