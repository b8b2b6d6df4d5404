"""The W_i block: proximal gradient steps on Phi + lam ||.||_{2,0}  (Algorithm 1, label ses)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from zeroone.exact.penalty import prox_l20
from zeroone.nn.functional import sum_of_squares


@dataclass(frozen=True)
class Phi:
    """Phi(W) = tau/2 ||U - V W^T||^2 + gamma/2 ||W||^2  (label Int3-Wi-obj), without the samples.

    It is expanded around the present weights W0: with R = U - V W0^T,

        ||U - V W^T||^2 = ||R||^2 - 2 <W - W0, R^T V> + <(W - W0) V^T V, W - W0>,

    so that further steps and values need no pass over the data, and nothing large cancels.
    """

    W0: Tensor
    gram: Tensor  # V^T V
    cross: Tensor  # R^T V
    rss: float  # ||R||^2
    tau: float
    gamma: float

    def misfit(self, W: Tensor) -> float:
        """Return ||U - V W^T||^2."""
        D = W - self.W0
        return max(0.0, self.rss + _inner(D, D @ self.gram - 2 * self.cross))

    def value(self, W: Tensor) -> float:
        """Return Phi(W)."""
        return self.tau / 2 * self.misfit(W) + self.gamma / 2 * sum_of_squares(W)

    def gradient(self, W: Tensor) -> Tensor:
        """Return the gradient of Phi at W."""
        if W is self.W0:  # the first step needs no product
            return self.gamma * W - self.tau * self.cross
        return self.tau * ((W - self.W0) @ self.gram - self.cross) + self.gamma * W


def _inner(A: Tensor, B: Tensor) -> float:
    return float((A * B).sum(dtype=torch.float64))


def lipschitz(gram: Tensor, tau: float, gamma: float) -> float:
    """Return tau ||V||_2^2 + gamma, the Lipschitz constant of Phi's gradient (before Theorem 2)."""
    if not bool(gram.isfinite().all()):  # F will not be finite either
        return math.inf
    return tau * float(torch.linalg.eigvalsh(gram.double())[-1]) + gamma


def pgm(
    phi: Phi, *, lam: float, beta: float, steps: int, group: int = 1, n_free: int = 0
) -> Tensor:
    """Take ``steps`` proximal gradient steps from W0 towards min Phi(W) + lam ||W||_{2,0}.

    W <- Prox_{beta lam ||.||_{2,0}}(W - beta grad Phi(W))   (label P-CW-l)

    For beta < 1/``lipschitz`` no step raises the sum (Theorem 3); the printed beta comes without
    that guarantee. The steps end early at a fixed point.
    """
    W = phi.W0
    for _ in range(steps):
        moved = prox_l20(W - beta * phi.gradient(W), beta, lam, group, n_free)
        if torch.equal(moved, W):
            break
        W = moved
    return W
