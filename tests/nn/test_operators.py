"""The operator interface, dense and convolving."""

import math
from itertools import pairwise

import pytest
import torch

from zeroone.exact.blocks import v_step_cg
from zeroone.exact.solver import ExactBCD, ExactSettings
from zeroone.exact.weights import column_norms, lipschitz, pgm
from zeroone.nn.functional import sum_of_squares
from zeroone.nn.heads import HardmaxMSE
from zeroone.nn.layers import Layer, gaussian
from zeroone.nn.network import Network
from zeroone.nn.operators import Operator, fan_in
from zeroone.nn.pooling import AvgPool, MaxPool, NoPool

CASES = [
    ((6,), {}),
    ((2, 3, 2), {}),
    ((2, 6, 6), {"kernel": 3}),
    ((2, 5, 6), {"kernel": 3, "padding": 1}),
    ((2, 7, 6), {"kernel": 3, "stride": 2, "padding": 2}),
    ((3, 4, 4), {"kernel": 1}),
]


def make(shape, geometry, bias, rng):
    """An operator to four units, inputs and a residual for it."""

    def normal(*size):
        return torch.randn(*size, generator=rng, dtype=torch.float64)

    columns = fan_in(shape, geometry.get("kernel", 0))
    op = Operator(normal(4, columns + bias), shape, **geometry)
    return op, normal(5, *shape), normal(5, *op.shape_out)


@pytest.fixture(params=[(*case, bias) for case in CASES for bias in (False, True)], ids=str)
def case(request, rng):
    return make(*request.param, rng)


def test_apply_and_adjoint_are_transposes(case):
    op, V, E = case
    linear_part = op.apply(V) - op.apply(torch.zeros_like(V))
    assert float((linear_part * E).sum()) == pytest.approx(float((V * op.adjoint(E)).sum()))


def test_gram_and_cross_give_the_misfit_of_any_weights(case, rng):
    op, V, U = case
    R = U - op.apply(V)
    other = torch.randn(op.weight.shape, generator=rng, dtype=torch.float64)
    D = other - op.weight
    misfit = sum_of_squares(R) + float((D * (D @ op.gram(V) - 2 * op.cross(R, V))).sum())
    op.weight = other
    assert misfit == pytest.approx(sum_of_squares(U - op.apply(V)))


def test_select_leaves_what_the_other_units_do(case):
    op, V, _ = case
    below, above = torch.tensor([0, op.n_in - 1]), torch.tensor([1, 3])
    others = torch.zeros_like(V)
    others[:, below] = V[:, below]
    expected = op.apply(others)[:, above]
    op.select(below, above)
    assert torch.allclose(op.apply(V[:, below]), expected)
    assert (op.n_in, op.n_out) == (2, 2)


def test_the_w_block_empties_whole_units_and_spares_the_bias(case):
    op, V, U = case
    R = U - op.apply(V)
    gram, beta = op.gram(V), 0.99 / lipschitz(op.gram(V), 1.0, 0.1)
    of_op = {"group": op.group, "n_free": op.n_free}
    how = {"tau": 1.0, "gamma": 0.1, "lam": 1e9, "beta": beta, "steps": 3} | of_op
    W = pgm(op.weight, gram, op.cross(R, V), **how)
    assert column_norms(W, op.group, op.n_free).tolist() == [0.0] * op.n_in
    assert not op.bias or float(W[:, -1].abs().sum()) > 0


def test_the_v_block_needs_only_apply_and_adjoint(case):
    op, S, U = case
    V = v_step_cg(U, S, op, 0.7, tol=1e-12)
    gradient = op.adjoint(op.apply(V) - U) + 0.7 * (V - S)
    assert float(gradient.abs().max()) < 1e-9


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("pool", [NoPool(), MaxPool(2), AvgPool(2)], ids=lambda p: p.kind)
def test_whole_sweeps_run_on_a_convolution(rng, bias, pool):
    def normal(*shape):
        return 0.3 * torch.randn(*shape, generator=rng, dtype=torch.float64)

    below = Layer(Operator(normal(4, 18 + bias), (2, 7, 6), kernel=3), pool)
    n_inputs = math.prod(below.shape_out)
    above = Layer(Operator(normal(3, n_inputs + bias), below.shape_out))
    X, y = normal(12, 84) * 3, torch.arange(12) % 3
    network = Network([below, above], HardmaxMSE(0.5))
    settings = ExactSettings(tau=0.1, pi=0.05, gamma=0.01, lam=1e-3, cg_tol=1e-12, pgm_steps=5)
    solver = ExactBCD(network, X, y, settings)
    values = [solver.terms()["F"]]
    for _ in range(10):
        values += [solver.terms()["F"] for _ in solver.update_blocks([0.0, 0.0])]
    assert all(b <= a + 1e-9 for a, b in pairwise(values))
    assert values[-1] < values[0]
    residuals = solver.residuals()
    assert set(residuals) == {"U_h", "W", "V", "U"}
    assert residuals["V"] < 1  # and no more can be said: other blocks moved after it


def test_dense_starts_small_with_zero_bias(rng):
    weight = gaussian(0.01, rng, torch.float32)(50, 100, True)
    op = Operator(weight, 100)
    assert float(op.linear.std()) == pytest.approx(0.01, rel=0.05)
    assert float(op.offset.abs().max()) == 0
