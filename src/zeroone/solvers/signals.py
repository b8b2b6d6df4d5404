"""The V_i and U_i blocks of stochastic BCD: from a residual above to a residual below.

A residual E = U - B says by how much the pre-activations of a layer should change. The V block
turns the residual of the layer above into a wanted change D of the bits, the U block turns D into
the residual of the layer itself. No derivative of the step is taken; docs/stochastic.md derives
both blocks from F and says where they coincide with a straight-through signal.
"""

import torch
from torch import Tensor

from zeroone.operators import Dense, Operator
from zeroone.ops import as_column, step, sum_of_squares
from zeroone.parallel import ALONE, Share, Team
from zeroone.solvers.blocks import u_step
from zeroone.solvers.linalg import conjugate_gradients, damped_gain


def v_one_step(E: Tensor, op: Operator) -> Tensor:
    """D = W^T E: the gradient step on the V block's problem from the present bits.

    It is minus the gradient of 1/2 ||E - W D||^2 at D = 0, up to a factor that the U block drops.
    """
    return op.adjoint(E)


def v_solved(E: Tensor, op: Operator, damping: float) -> Tensor:
    """Solve min_D ||E - W D||^2 + rho ||D||^2 for each sample  (label V-sub-problem).

    rho = ``damping`` times the mean eigenvalue of W^T W, which stands for the paper's pi/tau. A
    convolution has no matrix to factorise: conjugate gradients, to a part in a thousand.
    """
    rho = damping * sum_of_squares(op.linear) * op.positions / op.n_inputs
    if not rho:
        return torch.zeros(len(E), *op.shape_in, dtype=E.dtype, device=E.device)
    if isinstance(op, Dense):
        return (E @ damped_gain(op.linear, rho).T).reshape(len(E), *op.shape_in)
    offset = op.apply(torch.zeros(1, *op.shape_in, dtype=E.dtype, device=E.device))

    def normal(D: Tensor) -> Tensor:
        return op.adjoint(op.apply(D) - offset) + rho * D

    return conjugate_gradients(normal, op.adjoint(E), tol=1e-3, max_iter=50).solution


def u_expected(
    D: Tensor,
    B: Tensor,
    flip_rate: float,
    margin: float,
    window: float,
    weights: Tensor | None = None,
    team: Team = ALONE,
) -> Tensor:
    """The expected residual when bits flip at random, more likely the more D asks for it.

    An entry whose bit may flip (|b| <= window: Lemma 2, where a flip costs b^2) does so with the
    probability a = kappa |D| and is then pushed by ``margin`` towards sign(D). kappa makes the
    mean of a over those entries the flip rate: the step has a size in units of flips, however
    large or small D is. Samples that ask for nothing do not count, or the last sample that does
    would be pushed beyond measure. What is returned is the expectation, margin * a * sign(D) =
    margin * kappa * D. The few entries with a > 1 are not cut off, as that lost accuracy.
    ``weights`` of samples are in D already, and count for the mean, which is that of the ``team``.
    """
    inside = (B.abs() <= window).to(D.dtype)
    E = D * inside
    wanted = E.abs().flatten(1).sum(dim=1)  # of each sample
    may_flip = inside.flatten(1).sum(dim=1) * (wanted > 0)
    sums = torch.stack([(may_flip if weights is None else may_flip * weights).sum(), wanted.sum()])
    team.sum_(sums)
    kappa = flip_rate * sums[0] / sums[1].clamp_min(torch.finfo(D.dtype).tiny)
    return E.mul_(margin * kappa)


def u_drawn(
    D: Tensor,
    B: Tensor,
    flip_rate: float,
    margin: float,
    window: float,
    rng: torch.Generator,
    weights: Tensor | None = None,
    share: Share | None = None,
    team: Team = ALONE,
) -> Tensor:
    """The same with the flips drawn: margin * sign(D) with probability min(1, kappa |D|).

    A weight multiplies what a sample's flips are worth, not how likely they are.
    """
    probability = u_expected(D, B, flip_rate, 1.0, window, weights, team)
    share = share or Share(len(D))
    each = 1.0 if weights is None else as_column(weights, D)
    shape = (share.total, *D.shape[1:])
    draws = share.of(torch.rand(shape, dtype=D.dtype, generator=rng)).to(D.device)
    return torch.where(draws * each < probability.abs(), margin * probability.sign() * each, 0)


def u_half(D: Tensor, B: Tensor, window: float, weights: Tensor | None = None) -> Tensor:
    """The printed U block (Lemma 2) at V = step(B) + D: a bit flips where V crosses 1/2.

    rho = 1/window^2: a certain flip is worth its cost up to |b| = window. Weights, which D has in
    it, are taken out and put back.
    """
    if weights is None:
        return u_step(step(B) + D, B, 1 / window**2) - B
    each = as_column(weights, D)
    return (u_step(step(B) + D / each, B, 1 / window**2) - B) * each
