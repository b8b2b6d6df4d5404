"""The W_i block: proximal gradient steps on Phi + lam ||.||_{2,0}  (Algorithm 1, label ses).

A column of W_i is what one unit of the layer below feeds forward, so that a zero column makes the
unit superfluous. Columns may come in groups (the entries of one kernel): then ``group`` consecutive
columns count as one. The last ``n_free`` columns (the bias) do not count and are never set to zero,
because a constant is not a unit; the ridge term includes them.
"""

import math

import torch
from torch import Tensor


def column_norms(W: Tensor, group: int = 1, n_free: int = 0) -> Tensor:
    """Return the norm of each unit's column or group of columns, without free columns."""
    counted = W[:, : W.shape[1] - n_free]
    return counted.square().sum(dim=0).reshape(-1, group).sum(dim=1).sqrt()


def active_columns(W: Tensor, group: int = 1, n_free: int = 0) -> Tensor:
    """Return a mask of the columns with a non-zero entry, however small, without free columns."""
    in_column = (W[:, : W.shape[1] - n_free] != 0).any(dim=0)
    return in_column.reshape(-1, group).any(dim=1)


def prox_l20(H: Tensor, beta: float, lam: float, group: int = 1, n_free: int = 0) -> Tensor:
    """Solve min_W  lam ||W||_{2,0} + 1/(2 beta) ||W - H||^2   (label Proxl0).

    A column of H stays if its norm exceeds sqrt(2 beta lam) and becomes zero otherwise. At a tie it
    becomes zero: the smaller network.
    """
    if lam == 0:
        return H
    keep = column_norms(H, group, n_free) > math.sqrt(2 * beta * lam)
    keep = keep.repeat_interleave(group)
    if n_free:
        keep = torch.cat([keep, keep.new_ones(n_free)])
    return H * keep


def phi_gradient(
    W: Tensor, W0: Tensor, gram: Tensor, cross: Tensor, tau: float, gamma: float
) -> Tensor:
    """Return the gradient at W of Phi(W) = tau/2 ||U - V W^T||^2 + gamma/2 ||W||^2.

    (Label Int3-Wi-obj.) Around weights W0, whose residual is R = U - V W0^T, it needs only the sums
    ``gram`` = V^T V and ``cross`` = R^T V: further steps take no pass over the samples, and nothing
    large cancels.
    """
    if W is W0:  # the first step needs no product
        return gamma * W - tau * cross
    return tau * ((W - W0) @ gram - cross) + gamma * W


def lipschitz(gram: Tensor, tau: float, gamma: float) -> float:
    """Return tau ||V||_2^2 + gamma, the Lipschitz constant of Phi's gradient (before Theorem 2)."""
    if not bool(gram.isfinite().all()):  # F will not be finite either
        return math.inf
    return tau * float(torch.linalg.eigvalsh(gram.double())[-1]) + gamma


def pgm(
    W0: Tensor,
    gram: Tensor,
    cross: Tensor,
    *,
    tau: float,
    gamma: float,
    lam: float,
    beta: float,
    steps: int,
    group: int = 1,
    n_free: int = 0,
) -> Tensor:
    """Take ``steps`` proximal gradient steps from W0 towards min Phi(W) + lam ||W||_{2,0}.

    W <- Prox_{beta lam ||.||_{2,0}}(W - beta grad Phi(W))   (label P-CW-l)

    For beta < 1/``lipschitz`` no step raises the sum (Theorem 3); the printed beta comes without
    that guarantee. The steps end early at a fixed point.
    """
    W = W0
    for _ in range(steps):
        gradient = phi_gradient(W, W0, gram, cross, tau, gamma)
        moved = prox_l20(W - beta * gradient, beta, lam, group, n_free)
        if torch.equal(moved, W):
            break
        W = moved
    return W


def stationarity(
    W: Tensor, gradient: Tensor, beta: float, lam: float, group: int = 1, n_free: int = 0
) -> float:
    """Return the distance of W from P-stationarity (label P-equivalent), in the units of W.

    It is the largest, over the columns s, of

    - beta ||gradient_s|| and sqrt(2 beta lam) - ||W_s|| for a non-zero column,
    - beta ||gradient_s|| - sqrt(2 beta lam) for a zero column,
    - beta ||gradient_s|| for a free column (bias),

    and 0 exactly when W is a fixed point of the proximal gradient step, ties aside.
    """
    threshold = math.sqrt(2 * beta * lam)
    norms = column_norms(W, group, n_free)
    slopes = beta * column_norms(gradient, group, n_free)
    at_zero = (slopes - threshold).clamp_min(0)
    at_nonzero = torch.maximum(slopes, threshold - norms)
    residual = torch.where(active_columns(W, group, n_free), at_nonzero, at_zero)
    if n_free:
        free = beta * torch.linalg.vector_norm(gradient[:, -n_free:], dim=0)
        residual = torch.cat([residual, free])
    return float(residual.max())
