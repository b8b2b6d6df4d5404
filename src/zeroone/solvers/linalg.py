"""Linear algebra of the V block: many right-hand sides, one small symmetric matrix."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


def damped_gain(W: Tensor, damping: float) -> Tensor:
    """The matrix K with  R @ K.T = argmin_D ||R - D W^T||^2 + damping ||D||^2  for every R.

    K = (W^T W + damping I)^-1 W^T = W^T (W W^T + damping I)^-1  (the second by Woodbury): one
    Cholesky factorisation of the smaller of the two Gram matrices, in float64 because the
    damping may be tiny beside W^T W. It costs nothing that grows with the number of samples.
    """
    W64 = W.double()
    d_out, d_in = W64.shape
    small = W64 @ W64.T if d_out <= d_in else W64.T @ W64
    small.diagonal().add_(damping)
    factor = torch.linalg.cholesky(small)
    if d_out <= d_in:
        gain_transposed = torch.cholesky_solve(W64, factor)
    else:
        gain_transposed = torch.cholesky_solve(W64.T.contiguous(), factor).T
    return gain_transposed.T.to(W.dtype)


@dataclass(frozen=True)
class CGResult:
    """Where conjugate gradients stopped: ``residual`` is the worst relative one of all rows."""

    solution: Tensor
    n_iter: int
    residual: float
    converged: bool


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor], rhs: Tensor, *, tol: float, max_iter: int
) -> CGResult:
    """Solve A(x_s) = rhs_s for all samples s at once, from zero, A symmetric positive definite.

    Every sample is a right-hand side with step sizes of its own; the iteration ends when the
    residual of each is at most ``tol`` times the norm of its right-hand side.
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
        # A finished row has a zero direction: it stays where it is.
        size = torch.where(curvature > 0, squared / curvature, torch.zeros_like(squared))
        x.addcmul_(size, direction)
        residual.addcmul_(size, image, value=-1)
        previous, squared = squared, dot(residual, residual)
        turn = torch.where(previous > 0, squared / previous, torch.zeros_like(squared))
        direction.mul_(turn).add_(residual)
        n_iter += 1
    worst = float((squared / scale).max().sqrt())
    return CGResult(x, n_iter, worst, converged=not bool((squared > target).any()))
