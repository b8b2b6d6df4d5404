"""The V_i block: factorisation, Woodbury and conjugate gradients against least squares."""

import pytest
import torch

import oracles
from zeroone.exact.blocks import conjugate_gradients, damped_gain, v_step, v_step_cg
from zeroone.nn.operators import Operator
from zeroone.utils.checks import InputError


def problem(rng, d_out, d_in, bias, n=7, scale=1.0):
    columns = d_in + bias
    weight = scale * torch.randn(d_out, columns, generator=rng, dtype=torch.float64)
    U = torch.randn(n, d_out, generator=rng, dtype=torch.float64)
    S = (torch.rand(n, d_in, generator=rng, dtype=torch.float64) > 0.5).double()
    return Operator(weight, d_in), U, S


@pytest.mark.parametrize(("d_out", "d_in"), [(3, 8), (8, 3), (5, 5), (1, 1), (1, 6)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("tau", "pi"), [(1.0, 1.0), (1e-6, 1e-7), (10.0, 1e-3)])
def test_all_three_ways_give_the_least_squares_solution(rng, d_out, d_in, bias, tau, pi):
    op, U, S = problem(rng, d_out, d_in, bias)
    offset = op.offset.numpy() if bias else 0.0
    expected = oracles.v_minimiser(U.numpy(), S.numpy(), op.linear.numpy(), offset, tau, pi)
    factored = v_step(U, S, op, damped_gain(op.linear, pi / tau))
    by_cg = v_step_cg(U, S, op, pi / tau, tol=1e-13)
    assert factored.numpy() == pytest.approx(expected, abs=1e-8)
    assert by_cg.numpy() == pytest.approx(expected, abs=1e-6)


def test_the_gain_survives_large_weights_in_float32(rng):
    op, U, S = problem(rng, 20, 30, bias=False, scale=1e4)
    expected = v_step(U, S, op, damped_gain(op.linear, 0.1))
    single = Operator(op.weight.float(), 30)
    V = v_step(U.float(), S.float(), single, damped_gain(single.linear, 0.1))
    assert float((V.double() - expected).abs().max()) < 1e-3


@pytest.mark.parametrize("emptied", [True, False])
def test_a_rank_deficient_w_of_large_weights_is_solved(rng, emptied):
    """Pruning leaves such a W, and rounding makes W W^T + damping I indefinite."""
    W = 1e4 * torch.randn(300, 3, generator=rng, dtype=torch.float64)
    mix = torch.randn(3, 300, generator=rng, dtype=torch.float64)
    if emptied:
        mix[:, 3:] = 0
    W = W @ mix
    S = (torch.rand(5, 300, generator=rng) > 0.5).double()
    U = S @ W.T + 100 * torch.randn(5, 300, generator=rng, dtype=torch.float64)
    V = v_step(U, S, Operator(W, 300), damped_gain(W, 0.01))
    expected = oracles.v_minimiser(U.numpy(), S.numpy(), W.numpy(), 0.0, 1.0, 0.01)
    assert V.numpy() == pytest.approx(expected, abs=1e-3)
    if emptied:
        assert torch.equal(V[:, 3:], S[:, 3:])  # units that feed nothing stay where they are


def test_conjugate_gradients_reports_what_it_reached(rng):
    A = torch.randn(6, 6, generator=rng, dtype=torch.float64)
    A = A @ A.T + torch.eye(6, dtype=torch.float64)
    rhs = torch.randn(4, 6, generator=rng, dtype=torch.float64)
    rhs[2] = 0
    solution = conjugate_gradients(lambda x: x @ A, rhs, tol=1e-10, max_iter=100)
    residual = (solution @ A - rhs).norm(dim=1)
    assert bool((residual <= 2e-10 * rhs.norm(dim=1)).all())
    with pytest.raises(InputError, match="after 2 iterations, above cg_tol=1e-10"):
        conjugate_gradients(lambda x: x @ A, rhs, tol=1e-10, max_iter=2)


def test_a_tolerance_out_of_reach_is_refused(rng):
    op, U, S = problem(rng, 30, 30, bias=False, scale=100.0)
    single = Operator(op.weight.float(), 30)
    with pytest.raises(InputError, match="conjugate gradients stopped at a relative residual"):
        v_step_cg(U.float(), S.float(), single, 1e-3, tol=1e-12, max_iter=50)
