"""F term by term (label penalf1), for any values of the blocks W, U and V.

W_i V_{i-1} stands for all that a layer adds up: with a shortcut, W_i V_{i-1} + S_i V_j. The
penalty of S_i counts with that of W_i.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from zeroone.exact.penalty import l20, ridge
from zeroone.nn.functional import step, sum_of_squares
from zeroone.nn.layers import Layer
from zeroone.nn.network import Network
from zeroone.utils.parallel import ALONE, Team


@dataclass(frozen=True)
class Weights:
    """The four weights of F, and the two numbers that the sub-problems make of them."""

    lam: float
    gamma: float
    tau: float
    pi: float

    @property
    def rho(self) -> float:
        """tau/pi, of the U_i block (erratum E1)."""
        return self.tau / self.pi

    @property
    def damping(self) -> float:
        """pi/tau, of the V_i block."""
        return self.pi / self.tau

    def mu(self, n_samples: int) -> float:
        """Tau N, of the U_h block."""
        return self.tau * n_samples


@dataclass
class Terms:
    """What F is the sum of, before weighting; one entry a layer, the first layer first."""

    loss: float  # mean loss of the head
    columns: list[int]  # ||W_i||_{2,0}
    ridge: list[float]  # ||W_i||^2 / 2
    coupling: list[float]  # ||U_i - W_i V_{i-1}||^2 / 2
    activation: list[float]  # ||V_i - step(U_i)||^2 / 2, hidden layers only

    def weighted(self, weights: Weights) -> dict[str, float]:
        """The five terms of F; they add up to ``total``."""
        return {
            "loss": self.loss,
            "sparsity": weights.lam * sum(self.columns),
            "ridge": weights.gamma * sum(self.ridge),
            "coupling": weights.tau * sum(self.coupling),
            "activation": weights.pi * sum(self.activation),
        }

    def total(self, weights: Weights) -> float:
        """F."""
        return sum(self.weighted(weights).values())


def columns_of(layer: Layer) -> int:
    """||W_i||_{2,0}, and that of a shortcut."""
    return sum(l20(op) for op in layer.operators)


def ridge_of(layer: Layer) -> float:
    """||W_i||^2 / 2, and that of a shortcut."""
    return sum(ridge(op.weight) for op in layer.operators)


def at_consistent_point(network: Network, scores: Tensor, y: Tensor, team: Team = ALONE) -> Terms:
    """The terms where U_i = W_i V_{i-1} and V_i = step(U_i): nothing is left to couple."""
    layers = network.layers
    return Terms(
        loss=mean_loss(network, scores, y, team),
        columns=[columns_of(layer) for layer in layers],
        ridge=[ridge_of(layer) for layer in layers],
        coupling=[0.0] * len(layers),
        activation=[0.0] * (len(layers) - 1),
    )


def mean_loss(network: Network, scores: Tensor, y: Tensor, team: Team) -> float:
    """Over the samples of all ranks."""
    loss, n = team.total(float(network.head.losses(scores, y).sum(dtype=torch.float64)), len(y))
    return loss / n


def evaluate(
    network: Network, U: list[Tensor], V: list[Tensor], y: Tensor, team: Team = ALONE
) -> Terms:
    """All terms from their definition. V[0] is the scaled input; layer i maps V[i] to U[i]."""
    layers = network.layers
    coupling = [
        sum_of_squares(U[i] - layer.apply(V[: i + 1])) / 2 for i, layer in enumerate(layers)
    ]
    activation = [
        sum_of_squares(v - step(layer.pool.forward(u))) / 2
        for layer, u, v in zip(layers[:-1], U[:-1], V[1:], strict=True)
    ]
    sums = team.total(*coupling, *activation)
    return Terms(
        loss=mean_loss(network, U[-1], y, team),
        columns=[columns_of(layer) for layer in layers],
        ridge=[ridge_of(layer) for layer in layers],
        coupling=sums[: len(layers)],
        activation=sums[len(layers) :],
    )
