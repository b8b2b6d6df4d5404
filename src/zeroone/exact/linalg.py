"""Linear algebra of the V block: many right-hand sides, one small symmetric matrix."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

CONDITION = 1e-11  # damping / trace below which float64 Cholesky is too inaccurate


def damped_gain(W: Tensor, damping: float) -> Tensor:
    """Return the K for which  R @ K.T = argmin_D ||R - D W^T||^2 + damping ||D||^2  for every R.

    K = (W^T W + damping I)^-1 W^T = W^T (W W^T + damping I)^-1  (the second by Woodbury): one
    Cholesky factorisation of the smaller Gram matrix, in float64 because the damping may be small
    beside W^T W; where it is too small even for that, an SVD of W. The cost does not depend on the
    number of samples. Zero columns of W are skipped.
    """
    used = (W != 0).any(dim=0)
    gain = W.new_zeros(W.shape[1], W.shape[0])
    gain[used] = _full_gain(W[:, used].double(), damping).to(W.dtype)
    return gain


def _full_gain(W: Tensor, damping: float) -> Tensor:
    d_out, d_in = W.shape
    small = W @ W.T if d_out <= d_in else W.T @ W
    well_conditioned = damping > CONDITION * float(small.trace())
    small.diagonal().add_(damping)
    factor, failed = torch.linalg.cholesky_ex(small)
    if bool(failed) or not well_conditioned:
        P, s, Qt = torch.linalg.svd(W, full_matrices=False)
        by_svd: Tensor = Qt.T @ ((s / (s.square() + damping))[:, None] * P.T)
        return by_svd
    if d_out <= d_in:
        return torch.cholesky_solve(W, factor).T
    return torch.cholesky_solve(W.T.contiguous(), factor)


@dataclass(frozen=True)
class CGResult:
    """Where conjugate gradients stopped; ``residual`` is the largest relative one of all rows."""

    solution: Tensor
    n_iter: int
    residual: float
    converged: bool


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor], rhs: Tensor, *, tol: float, max_iter: int
) -> CGResult:
    """Solve A(x_s) = rhs_s for all samples s at once, from zero, A symmetric positive definite.

    Each sample has its own step sizes. The iteration ends when every residual is at most ``tol``
    times the norm of its right-hand side.
    """
    dims = tuple(range(1, rhs.ndim))

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(dim=dims, keepdim=True)

    x, residual = torch.zeros_like(rhs), rhs.clone()
    direction, squared = residual.clone(), dot(rhs, rhs)
    target = tol**2 * squared
    scale = squared.clamp_min(torch.finfo(rhs.dtype).tiny)
    n_iter = 0
    while n_iter < max_iter and bool((squared > target).any()):
        image = apply(direction)
        curvature = dot(direction, image)
        # The direction of a finished row is zero.
        size = torch.where(curvature > 0, squared / curvature, torch.zeros_like(squared))
        x.addcmul_(size, direction)
        residual.addcmul_(size, image, value=-1)
        previous, squared = squared, dot(residual, residual)
        turn = torch.where(previous > 0, squared / previous, torch.zeros_like(squared))
        direction.mul_(turn).add_(residual)
        n_iter += 1
    worst = float((squared / scale).max().sqrt())
    return CGResult(x, n_iter, worst, converged=not bool((squared > target).any()))
