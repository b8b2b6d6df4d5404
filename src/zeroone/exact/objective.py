"""F term by term (label penalf1), for any values of the blocks W, U and V.

W_i V_{i-1} stands for everything that a layer adds up: with a shortcut, W_i V_{i-1} + S_i V_j. The
penalty of S_i counts with that of W_i.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from zeroone.exact.penalty import l20
from zeroone.nn.functional import step, sum_of_squares
from zeroone.nn.layers import Layer
from zeroone.nn.network import Network
from zeroone.utils.parallel import ALONE, Team


@dataclass(frozen=True)
class Coefficients:
    """The four coefficients of F, and what the sub-problems derive from them."""

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
        """Return tau N, of the U_h block."""
        return self.tau * n_samples


@dataclass
class Terms:
    """The terms of F before weighting; lists have one entry per layer, the first layer first."""

    loss: float  # mean loss of the head
    columns: list[int]  # ||W_i||_{2,0}
    ridge: list[float]  # ||W_i||^2 / 2
    coupling: list[float]  # ||U_i - W_i V_{i-1}||^2 / 2
    activation: list[float]  # ||V_i - step(U_i)||^2 / 2, hidden layers only

    def weighted(self, by: Coefficients) -> dict[str, float]:
        """Return the five terms of F, whose sum is ``total``."""
        return {
            "loss": self.loss,
            "sparsity": by.lam * sum(self.columns),
            "ridge": by.gamma * sum(self.ridge),
            "coupling": by.tau * sum(self.coupling),
            "activation": by.pi * sum(self.activation),
        }

    def numbers(self) -> list[float]:
        """Return all terms in a row, for ``from_numbers``."""
        return [self.loss, *self.columns, *self.ridge, *self.coupling, *self.activation]

    @classmethod
    def from_numbers(cls, row: list[float]) -> "Terms":
        """Invert ``numbers``; there is one activation less than layers."""
        loss, *rest = row
        n = (len(rest) + 1) // 4
        columns, ridge, coupling, activation = (rest[i * n : i * n + n] for i in range(4))
        return cls(loss, [int(c) for c in columns], ridge, coupling, activation)

    def total(self, by: Coefficients) -> float:
        """Return F."""
        return sum(self.weighted(by).values())


def columns_of(layer: Layer) -> int:
    """Return ||W_i||_{2,0}, with that of a shortcut."""
    return sum(l20(op) for op in layer.operators)


def ridge_of(layer: Layer) -> float:
    """Return ||W_i||^2 / 2, with that of a shortcut."""
    return sum(sum_of_squares(op.weight) / 2 for op in layer.operators)


def evaluate(
    network: Network, U: list[Tensor], V: list[Tensor], y: Tensor, team: Team = ALONE
) -> Terms:
    """Compute all terms from their definitions.

    Args:
        network: holds the blocks W.
        U: the pre-activations; layer i maps V[i] to U[i].
        V: the scaled input, then the activations.
        y: the class numbers.
        team: the ranks, which hold other samples.

    """
    layers = network.layers
    coupling = [
        sum_of_squares(U[i] - layer.apply(V[: i + 1])) / 2 for i, layer in enumerate(layers)
    ]
    activation = [
        sum_of_squares(v - step(layer.pool.forward(u))) / 2
        for layer, u, v in zip(layers[:-1], U[:-1], V[1:], strict=True)
    ]
    loss = float(network.head.losses(U[-1], y).sum(dtype=torch.float64))
    loss, n, *sums = team.total(loss, len(y), *coupling, *activation)
    return Terms(
        loss=loss / n,
        columns=[columns_of(layer) for layer in layers],
        ridge=[ridge_of(layer) for layer in layers],
        coupling=sums[: len(layers)],
        activation=sums[len(layers) :],
    )
