"""The operator interface, on Dense and on a convolution that only these tests know."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import conv2d, conv_transpose2d, unfold

from zeroone.heads import HardmaxMSE
from zeroone.operators import Dense, Operator
from zeroone.ops import sum_of_squares
from zeroone.penalty import column_norms
from zeroone.solvers.blocks import v_step_cg
from zeroone.solvers.exact import ExactBCD, ExactSettings
from zeroone.solvers.pgm import Phi, lipschitz, pgm


class PlainConvolution(Operator):
    """A 3x3 convolution, to show that the interface fits shared weights."""

    kind = "test-convolution"

    def kernel(self):
        return self.linear.reshape(self.n_out, self.n_in, 3, 3)

    def apply(self, V):
        return conv2d(V, self.kernel(), self.offset)

    def adjoint(self, E):
        return conv_transpose2d(E, self.kernel())

    def patches(self, V):
        rows = unfold(V, 3).transpose(1, 2).reshape(-1, self.n_in * 9)
        ones = rows.new_ones(len(rows), self.n_free)
        return torch.cat([rows, ones], dim=1)

    def gram(self, V):
        P = self.patches(V)
        return P.T @ P

    def cross(self, E, V):
        return E.flatten(2).transpose(1, 2).reshape(-1, self.n_out).T @ self.patches(V)

    def select(self, below, above):
        kernel = self.kernel()[above][:, below].flatten(1)
        weight = torch.cat([kernel, self.weight[above][:, self.n_in * 9 :]], dim=1)
        return PlainConvolution(weight, len(below), self.bias)

    def describe(self):
        return {}


def make(kind, bias, rng):
    def normal(*shape):
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    if kind == "dense":
        return Dense(normal(4, 6 + bias), 6, bias), normal(9, 6), normal(9, 4)
    op = PlainConvolution(normal(4, 18 + bias), 2, bias)
    return op, normal(5, 2, 6, 6), normal(5, 4, 4, 4)


@pytest.fixture(params=[("dense", False), ("dense", True), ("conv", False), ("conv", True)])
def case(request, rng):
    return make(*request.param, rng)


def test_apply_and_adjoint_are_transposes(case):
    op, V, E = case
    linear_part = op.apply(V) - op.apply(torch.zeros_like(V))
    assert float((linear_part * E).sum()) == pytest.approx(float((V * op.adjoint(E)).sum()))


def test_gram_and_cross_give_the_misfit_of_any_weights(case, rng):
    op, V, U = case
    R = U - op.apply(V)
    phi = Phi(op.weight, op.gram(V), op.cross(R, V), sum_of_squares(R), 1.0, 1.0)
    other = torch.randn(op.weight.shape, generator=rng, dtype=torch.float64)
    moved = type(op)(other, op.n_in, op.bias)
    assert phi.misfit(other) == pytest.approx(sum_of_squares(U - moved.apply(V)))


def test_the_centred_cross_in_a_metric(case, rng):
    op, V, E = case
    columns = op.linear.shape[1]
    mean = torch.randn(columns, generator=rng, dtype=torch.float64) * op.bias
    R = torch.randn(columns, columns, generator=rng, dtype=torch.float64)
    cross = op.cross(E, V)
    expected = cross[:, :columns] @ R
    if op.bias:
        expected -= torch.outer(cross[:, -1], mean) @ R
        assert torch.allclose(op.total(E), cross[:, -1])
    assert torch.allclose(op.centred_cross(E, V, mean, R), expected)
    assert torch.allclose(op.centred_cross(E[:3], V[:3], mean, R), _first(op, V, E, mean, R))


def _first(op, V, E, mean, R):
    """The same for three samples, fewer than there are units above: the other order."""
    cross = op.cross(E[:3], V[:3])
    linear = cross[:, : len(R)]
    return (linear - torch.outer(cross[:, -1], mean) if op.bias else linear) @ R


def test_select_leaves_what_the_other_units_do(case):
    op, V, _ = case
    below, above = torch.tensor([0, op.n_in - 1]), torch.tensor([1, 3])
    smaller = op.select(below, above)
    others = torch.zeros_like(V)
    others[:, below] = V[:, below]
    assert torch.allclose(smaller.apply(V[:, below]), op.apply(others)[:, above])
    assert (smaller.n_in, smaller.n_out) == (2, 2)


def test_the_w_block_empties_whole_units_and_spares_the_bias(case):
    op, V, U = case
    R = U - op.apply(V)
    phi = Phi(op.weight, op.gram(V), op.cross(R, V), sum_of_squares(R), 1.0, 0.1)
    beta = 0.99 / lipschitz(phi.gram, 1.0, 0.1)
    W = pgm(phi, lam=1e9, beta=beta, steps=3, group=op.group, n_free=op.n_free)
    assert column_norms(W, op.group, op.n_free).tolist() == [0.0] * op.n_in
    assert not op.bias or float(W[:, -1].abs().sum()) > 0


def test_the_v_block_needs_only_apply_and_adjoint(case):
    op, S, U = case
    V = v_step_cg(U, S, op, 0.7, tol=1e-12)
    gradient = op.adjoint(op.apply(V) - U) + 0.7 * (V - S)
    assert float(gradient.abs().max()) < 1e-9


class Flattened(Dense):
    """A dense layer on the flattened images of the convolution below it."""

    is_matrix = False

    def apply(self, V):
        return super().apply(V.flatten(1))

    def adjoint(self, E):
        return super().adjoint(E).reshape(len(E), *self.image)

    def gram(self, V):
        return super().gram(V.flatten(1))

    def cross(self, E, V):
        return super().cross(E, V.flatten(1))


@pytest.mark.parametrize("bias", [False, True])
def test_whole_sweeps_run_on_a_convolution(rng, bias):
    def normal(*shape):
        return 0.3 * torch.randn(*shape, generator=rng, dtype=torch.float64)

    convolution = PlainConvolution(normal(4, 18 + bias), 2, bias)
    dense = Flattened(normal(3, 64 + bias), 64, bias)
    dense.image = (4, 4, 4)
    X, y = normal(12, 2, 6, 6) * 3, torch.arange(12) % 3
    network = SimpleNamespace(operators=[convolution, dense], head=HardmaxMSE(0.5))
    settings = ExactSettings(tau=0.1, pi=0.05, gamma=0.01, lam=1e-3, cg_tol=1e-12, pgm_steps=5)
    solver = ExactBCD(network, X, y, settings)
    values = [solver.terms.total(solver.weights)]
    for _ in range(10):
        values += [block["F"] for block in solver.sweep().blocks]
    assert all(b <= a + 1e-9 for a, b in pairwise(values))
    assert values[-1] < values[0]
    assert set(solver.residuals()) == {"U_h", "W", "V", "U"}


def test_dense_starts_small_with_zero_bias(rng):
    op = Dense.gaussian(100, 50, std=0.01, bias=True, generator=rng, dtype=torch.float32)
    assert float(op.linear.std()) == pytest.approx(0.01, rel=0.05)
    assert float(op.offset.abs().max()) == 0
