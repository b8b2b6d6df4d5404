"""The U_i and V_i blocks of the exact solver, in closed form.

The U_h block belongs to the head (``nn/heads.py``), the W_i block to ``weights.py``.
Samples are rows throughout, so B = V W^T where the paper writes W V.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from zeroone.nn.functional import step
from zeroone.nn.heads import PRINTED_EPSILON
from zeroone.nn.operators import Operator
from zeroone.nn.pooling import NoPool, Pool
from zeroone.utils.checks import InputError

ROWS = 1024  # samples per block, so that intermediate results stay in the cache
CONDITION = 1e-11  # damping / trace below which float64 Cholesky is too inaccurate
NO_POOL = NoPool()


def row_blocks(n: int) -> Iterator[slice]:
    """Return slices that cover n samples."""
    return (slice(start, min(start + ROWS, n)) for start in range(0, n, ROWS))


def u_step(
    A: Tensor, B: Tensor, rho: float, pool: Pool = NO_POOL, *, printed_epsilon: bool = False
) -> Tensor:
    """Solve min_u (a - step(u))^2 + rho (u - b)^2 for each entry  (u-inproblem, Lemma 2).

    A holds V_i, B holds W_i V_{i-1}, and rho = tau/pi: the text after Lemma 2 prints pi/tau, its
    derivation and Algorithm 3 need tau/pi (erratum E1). With t = 2a - 1:

        b > 0:   u = b, unless t < -rho b^2: then u = 0;
        b <= 0:  u = b, unless t > rho b^2: then u just above 0.

    At a tie b stays. 'Just above 0' is the smallest normal number of the dtype, as a subnormal one
    could be flushed to zero; ``printed_epsilon`` takes the paper's min(sqrt(t/rho) + b, 1e-10),
    which it prints without pooling.

    With a pooling the problem is min_u (a - step(pool(u)))^2 + rho ||u - b||^2 for each window
    (extension II). The bit of a window flips if that gains more than it costs:

        max, on:   if t < -rho sum of b_j^2 over b_j > 0, these become 0;
        max, off:  if t > rho max(b)^2, the (first) largest becomes just above 0;
        average:   if |t| > rho k mean(b)^2 for k entries, all move by the same amount.
    """
    T, W = 2 * A - 1, pool.windows(B)
    flipped, cost = pool.flip(W)
    on = step(pool.forward(B))
    if printed_epsilon:
        above = ((T / rho).clamp_min(0).sqrt() + B).clamp(0, PRINTED_EPSILON)
        flipped = ((1 - on) * above)[..., None]
    gain = T * (1 - 2 * on)  # t where the bit is 0, -t where it is 1
    return pool.unwindow(torch.where((gain > rho * cost)[..., None], flipped, W), B)


def u_gap(U: Tensor, A: Tensor, B: Tensor, rho: float, pool: Pool = NO_POOL) -> Tensor:
    """Return by how much each entry or window misses the infimum of ``u_step``'s problem.

    The infimum is the lower of two values: that of b, and that of the other bit.
    """
    W = pool.windows(B)
    _, cost = pool.flip(W)
    on = step(pool.forward(B))
    stay, cross = (A - on).square(), (A - (1 - on)).square() + rho * cost
    moved = (pool.windows(U) - W).square().sum(dim=-1)
    value = (A - step(pool.forward(U))).square() + rho * moved
    return (value - torch.minimum(stay, cross)).clamp_min(0)


def v_step(U_above: Tensor, S: Tensor, op: Operator, gain: Tensor) -> Tensor:
    """Solve min_V tau/2 ||U_{i+1} - W_{i+1} V||^2 + pi/2 ||V - S||^2, S = step(U_i).

    (Labels V-sub-problem, V-sub-problem-sol.) As a correction of S it is V = S + R K^T with
    R = U_{i+1} - W_{i+1} S and K = ``damped_gain(W_{i+1}, pi/tau)``: two products per sample.
    """
    return torch.addmm(S, U_above - op.apply(S), gain.T)


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


def v_step_cg(
    U_above: Tensor, S: Tensor, op: Operator, damping: float, *, tol: float, max_iter: int = 1000
) -> Tensor:
    """Solve the problem of ``v_step`` by conjugate gradients, with damping = pi/tau.

    The paper's choice. It needs only ``apply`` and ``adjoint`` of the operator.
    """
    offset = op.apply(torch.zeros_like(S[:1]))

    def normal(D: Tensor) -> Tensor:
        return op.adjoint(op.apply(D) - offset) + damping * D

    rhs = op.adjoint(U_above - op.apply(S))
    return S + conjugate_gradients(normal, rhs, tol=tol, max_iter=max_iter)


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor], rhs: Tensor, *, tol: float, max_iter: int
) -> Tensor:
    """Solve A(x_s) = rhs_s for all samples s at once, from zero, A symmetric positive definite.

    Each sample has its own step sizes. The iteration ends when every residual is at most ``tol``
    times the norm of its right-hand side.

    Raises:
        InputError: a residual stayed above ``tol``.

    """
    dims = tuple(range(1, rhs.ndim))

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(dim=dims, keepdim=True)

    x, residual = torch.zeros_like(rhs), rhs.clone()
    direction, squared = residual.clone(), dot(rhs, rhs)
    target = tol**2 * squared
    scale = squared.clamp_min(torch.finfo(rhs.dtype).tiny)
    n_iter = 0
    while bool((squared > target).any()):
        if n_iter == max_iter:
            worst = float((squared / scale).max().sqrt())
            raise InputError(
                f"conjugate gradients stopped at a relative residual of {worst:.1e} after "
                f"{n_iter} iterations, above cg_tol={tol:g}: raise cg_tol, use float64 or "
                f"v_solver='factor'."
            )
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
    return x
