"""Where the thresholds of hidden units are when stochastic BCD begins, by its first batch.

A unit is on where its pre-activation exceeds 0, so its bias is a threshold. Random weights leave
the pre-activations of most units with a mean near 0: each of them about halves the data.
"""

import math

import torch
from torch import Tensor

from zeroone.network import Network
from zeroone.ops import step
from zeroone.parallel import ALONE, Team
from zeroone.pooling import NoPool
from zeroone.solvers.units import moments, power_sums


def balance(
    network: Network, V0: Tensor, weights: Tensor | None = None, team: Team = ALONE
) -> None:
    """Shift the pooled pre-activations of every filter so that they have mean 0 on scaled inputs.

    The largest of a window is above 0 for nearly all windows of a random start: without this most
    bits of a pooled layer would be on, and say nothing.
    """
    V = network.recent(V0)
    for layer in network.layers[:-1]:
        P, offset = layer.forward(V), layer.operator.offset
        if offset is not None and not isinstance(layer.pool, NoPool):
            mean, _ = _unit_moments(P, weights, team)
            offset.sub_(mean)
            P = P - mean[:, None, None]
        V.append(step(P))


def spread_thresholds(
    network: Network,
    V0: Tensor,
    spread: float,
    rng: torch.Generator,
    weights: Tensor | None = None,
    team: Team = ALONE,
) -> None:
    """Shift every hidden unit's pre-activations by a random number, in units of their own spread.

    The shifts are Gaussian with standard deviation ``spread``. Units that look in similar
    directions then tell a small projection from a large one as well as its sign: a staircase of
    steps at several heights follows a linear function, steps at one height cannot. Layers are not
    centred anew: bits whose thresholds are apart do not average 1/2, so that the thresholds above
    them lie somewhat further apart than ``spread``.
    """
    V = network.recent(V0)
    for layer in network.layers[:-1]:
        P, offset = layer.forward(V), layer.operator.offset
        assert offset is not None  # StochasticBCD refuses others
        _, variance = _unit_moments(P, weights, team)
        drawn = torch.randn(len(variance), generator=rng, dtype=P.dtype).to(P.device)
        shift = spread * variance.sqrt() * drawn
        offset.add_(shift)
        V.append(step(P + (shift if P.ndim == 2 else shift[:, None, None])))


def _unit_moments(P: Tensor, weights: Tensor | None, team: Team) -> tuple[Tensor, Tensor]:
    """The mean and the variance of each unit (or filter) over the team's samples."""
    sums = torch.stack(power_sums(P, weights))
    team.sum_(sums)
    heavy = team.total(len(P) if weights is None else float(weights.sum()))[0]
    return moments(sums[0], sums[1], heavy * math.prod(P.shape[2:]))
