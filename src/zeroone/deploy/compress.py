"""Remove what does not matter from a network: dead units, constant units, unused inputs.

Training with l2,0 empties columns. A unit is dead if all columns above its bits are empty, if it
feeds only dead units, or if its bits are never on. Dead units leave with their rows and columns,
single bits stay. A network with a stream keeps all units.
"""

from copy import deepcopy

import torch
from torch import Tensor

from zeroone.analysis.counts import alive_units
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
    joined = any(check_network(network).streams)  # the layers of a stream share their units
    small = deepcopy(network)
    for i in range(1, len(small.layers)) if not joined else ():
        _fold_constants(small, i, fold=fold)
    alive = alive_units(small)
    if joined:
        alive[1:] = [torch.ones(op.n_out, dtype=torch.bool) for op in small.operators]
    if small.backbone is not None or not small.operators[0].is_matrix or not alive[0].any():
        alive[0][:] = True
    kept = [marks.nonzero().flatten() if marks.any() else torch.tensor([0]) for marks in alive]
    for i, layer in enumerate(small.layers):
        bits = torch.arange(layer.operator.n_in).view(-1, len(alive[i]))[:, kept[i]]
        layer.operator.select(bits.flatten(), kept[i + 1])
        if layer.thresholds is not None:
            layer.thresholds = layer.thresholds[:, kept[i + 1]]
    if not alive[0].all():
        small.scaling = small.scaling.take(kept[0])
    return small


def _fold_constants(network: Network, i: int, *, fold: bool) -> None:
    """Empty the columns of the known bits of V[i]; a 1 moves into the biases above."""
    never, always = _known_bits(network, i)
    above = network.operators[i]
    if not (fold and above.bias) or above.padding:  # the edge of a padded image differs
        always = torch.zeros_like(always)
    if above.offset is not None:
        ones = above.columns_of(always.nonzero().flatten())
        above.offset.add_(above.linear[:, ones].sum(dim=1))
    gone = above.columns_of((never | always).nonzero().flatten())
    above.linear[:, gone] = 0


def _known_bits(network: Network, i: int) -> tuple[Tensor, Tensor]:
    """Find the bits of V[i] that are 0, and those that are 1, whatever the bits below are.

    Raw inputs have no bounds: above them, only units without weights are known.
    """
    below, shift = network.operators[i - 1], -network.layers[i - 1].levels().double()
    W = below.linear.double()
    size = W.abs().sum(dim=1)
    if i == 1:
        most = torch.where((W != 0).any(dim=1), torch.inf, 0.0)
        least = -most
    else:
        most, least = W.clamp_min(0).sum(dim=1), W.clamp_max(0).sum(dim=1)
    if below.offset is not None:
        shift = shift + below.offset.double()
    # Without weights, nothing is rounded.
    margin = torch.where(size > 0, SURELY * (size + shift.abs()), 0)
    return (most + shift <= -margin).flatten(), (least + shift > margin).flatten()
