"""The U_i and V_i blocks of the exact solver, in closed form.

The U_h block belongs to the head (``nn/heads.py``), the W_i block to ``pgm.py``.
Samples are rows throughout, so B = V W^T where the paper writes W V.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from zeroone.exact.linalg import conjugate_gradients
from zeroone.nn.functional import add_up, step
from zeroone.nn.heads import PRINTED_EPSILON
from zeroone.nn.operators import Operator
from zeroone.nn.pooling import NoPool, Pool
from zeroone.utils.checks import InputError

ROWS = 1024  # samples per block, so that intermediate results stay in the cache


def row_blocks(n: int) -> Iterator[slice]:
    """Return slices that cover n samples."""
    return (slice(start, min(start + ROWS, n)) for start in range(0, n, ROWS))


def u_step(A: Tensor, B: Tensor, rho: float, *, printed_epsilon: bool = False) -> Tensor:
    """Solve min_u (a - step(u))^2 + rho (u - b)^2 for each entry  (u-inproblem, Lemma 2).

    A holds V_i, B holds W_i V_{i-1}, and rho = tau/pi: the text after Lemma 2 prints pi/tau, its
    derivation and Algorithm 3 need tau/pi (erratum E1). With t = 2a - 1:

        b > 0:   u = b, unless t < -rho b^2: then u = 0;
        b <= 0:  u = b, unless t > rho b^2: then u just above 0.

    At a tie b stays. 'Just above 0' is the smallest normal number of the dtype, as a subnormal one
    could be flushed to zero; ``printed_epsilon`` takes the paper's min(sqrt(t/rho) + b, 1e-10).
    """
    T = 2 * A - 1
    off = (B <= 0).to(B.dtype)
    above: Tensor | float = torch.finfo(B.dtype).tiny
    if printed_epsilon:
        above = ((T / rho).clamp_min(0).sqrt() + B).clamp(0, PRINTED_EPSILON)
    gain = T.mul_(2 * off - 1)  # t where b <= 0, -t where b > 0: the gain of crossing 0
    return torch.where(gain > rho * B.square(), off.mul_(above), B)


def u_gap(U: Tensor, A: Tensor, B: Tensor, rho: float) -> Tensor:
    """Return by how much each u misses the infimum of (a - step(u))^2 + rho (u - b)^2.

    The infimum is the lower of two values: that of b, and that of the other side of 0.
    """
    on = step(B)
    stay = (A - on).square()
    cross = (A - (1 - on)).square() + rho * B.square()
    value = (A - step(U)).square() + rho * (U - B).square()
    return (value - torch.minimum(stay, cross)).clamp_min(0)


def u_step_pooled(
    A: Tensor, B: Tensor, rho: float, pool: Pool, *, printed_epsilon: bool = False
) -> Tensor:
    """Solve min_u (a - step(pool(u)))^2 + rho ||u - b||^2 for each window  (extension II).

    The bit of a window flips if that gains more than it costs; with t = 2a - 1:

        max, on:   if t < -rho sum of b_j^2 over b_j > 0, these become 0;
        max, off:  if t > rho max(b)^2, the (first) largest becomes just above 0;
        average:   if |t| > rho k mean(b)^2 for k entries, all move by the same amount.

    Without pooling it is ``u_step``. At a tie b stays.
    """
    if isinstance(pool, NoPool):
        return u_step(A, B, rho, printed_epsilon=printed_epsilon)
    W = pool.windows(B)
    flipped, cost = pool.flip(W)
    on = step(pool.forward(B))
    gain = (2 * A - 1) * (1 - 2 * on)
    return pool.unwindow(torch.where((gain > rho * cost)[..., None], flipped, W), B)


def u_gap_pooled(U: Tensor, A: Tensor, B: Tensor, rho: float, pool: Pool) -> Tensor:
    """Return by how much each window misses the infimum of the problem of ``u_step_pooled``."""
    if isinstance(pool, NoPool):
        return u_gap(U, A, B, rho)
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


def v_step_cg(
    targets: Sequence[Tensor],
    S: Tensor,
    operators: Sequence[Operator],
    damping: float,
    *,
    tol: float,
    max_iter: int = 1000,
) -> Tensor:
    """Solve min_V tau/2 sum_c ||T_c - W_c V||^2 + pi/2 ||V - S||^2 by conjugate gradients.

    The paper's choice, with damping = pi/tau. It needs only ``apply`` and ``adjoint`` of the
    operators; V has as many consumers c as there are operators, each with its target.

    Raises:
        InputError: a residual stayed above ``tol``.

    """
    offsets = [op.apply(torch.zeros_like(S[:1])) for op in operators]

    def normal(D: Tensor) -> Tensor:
        parts = [op.adjoint(op.apply(D) - b) for op, b in zip(operators, offsets, strict=True)]
        return add_up(parts) + damping * D

    wanted = [op.adjoint(T - op.apply(S)) for op, T in zip(operators, targets, strict=True)]
    result = conjugate_gradients(normal, add_up(wanted), tol=tol, max_iter=max_iter)
    if not result.converged:
        raise InputError(
            f"conjugate gradients stopped at a relative residual of {result.residual:.1e} after "
            f"{result.n_iter} iterations, above cg_tol={tol:g}: raise cg_tol, use float64 or "
            f"v_solver='factor'."
        )
    return S + result.solution
