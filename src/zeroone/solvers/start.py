"""Where the thresholds of hidden units are before the first batch of stochastic BCD.

A unit is on where its pre-activation exceeds 0, so its bias is a threshold. Random weights leave
the pre-activations of most units with a mean near 0: every unit halves the data.
"""

import math

import torch
from torch import Tensor

from zeroone.network import Network
from zeroone.ops import step
from zeroone.parallel import ALONE, Team
from zeroone.pooling import NoPool


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
            mean, _ = unit_moments(P, weights, team)
            offset.sub_(mean)
            P = P - mean[:, None, None]
        V.append(step(P))


def scatter(
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
    steps at several heights follows a linear function, steps at one height cannot.
    """
    V = network.recent(V0)
    for layer in network.layers[:-1]:
        P, offset = layer.forward(V), layer.operator.offset
        if offset is not None:
            _, variance = unit_moments(P, weights, team)
            drawn = torch.randn(len(variance), generator=rng, dtype=P.dtype).to(P.device)
            shift = spread * variance.sqrt() * drawn
            offset.add_(shift)
            P = P + (shift if P.ndim == 2 else shift[:, None, None])
        V.append(step(P))


def unit_moments(P: Tensor, weights: Tensor | None, team: Team) -> tuple[Tensor, Tensor]:
    """The mean and the variance of each unit (or filter) over the team's samples."""
    sums = torch.stack([unit_sums(P, weights), unit_sums(P.square(), weights)])
    team.sum_(sums)
    heavy = team.total(len(P) if weights is None else float(weights.sum()))[0]
    mean, square = sums / (heavy * math.prod(P.shape[2:]))
    return mean, (square - mean.square()).clamp_min(0)


def unit_sums(B: Tensor, weights: Tensor | None) -> Tensor:
    """The sum of each unit (or filter) over samples (and positions), by their weights."""
    if weights is None:
        return B.sum(dim=[d for d in range(B.ndim) if d != 1])
    return weights @ (B.sum(dim=list(range(2, B.ndim))) if B.ndim > 2 else B)
