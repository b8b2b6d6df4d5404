"""The W_i block: the prox against all supports, PGM, and the paper's Theorems 1 to 4."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from zeroone.exact.weights import (
    active_columns,
    column_norms,
    lipschitz,
    pgm,
    phi_gradient,
    prox_l20,
    stationarity,
)


def problem(seed, n=12, d_in=5, d_out=3):
    rng = np.random.default_rng(seed)
    V, U = rng.normal(size=(n, d_in)), rng.normal(size=(n, d_out))
    W0 = rng.normal(size=(d_out, d_in))
    W0[:, rng.random(d_in) < 0.3] = 0
    tau, gamma, lam = 10 ** rng.uniform([-1, -2, -2], [1, 1, 0.5])
    return U, V, W0, tau, gamma, lam


def sums_of(U, V, W0):
    """What Phi is made of: W0, V^T V and R^T V."""
    return torch.tensor(W0), torch.tensor(V.T @ V), torch.tensor((U - V @ W0.T).T @ V)


def beta_of(V, tau, gamma, c=0.99):
    return c / (tau * np.linalg.norm(V, 2) ** 2 + gamma)


def run_pgm(U, V, W0, tau, gamma, lam, steps=4000, beta=None):
    beta = beta or beta_of(V, tau, gamma)
    how = {"tau": tau, "gamma": gamma, "lam": lam, "beta": beta, "steps": steps}
    return pgm(*sums_of(U, V, W0), **how).numpy()


@given(
    st.lists(st.lists(st.integers(-3, 3).map(float), min_size=5, max_size=5), min_size=1),
    st.sampled_from([0.1, 0.5, 1.0, 2.0]),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    st.integers(0, 1),
)
def test_prox_is_the_best_of_all_supports(rows, beta, lam, n_free):
    H = np.array(rows)
    W = prox_l20(torch.tensor(H), beta, lam, n_free=n_free).numpy()

    def value(M):
        counted = M[:, : 5 - n_free]
        columns = np.count_nonzero(np.any(counted != 0, axis=0))
        return lam * columns + np.sum((M - H) ** 2) / (2 * beta)

    free = list(range(5 - n_free, 5))
    candidates = []
    for support in oracles.subsets(range(5 - n_free)):
        M = np.zeros_like(H)
        M[:, [*support, *free]] = H[:, [*support, *free]]
        candidates.append(value(M))
    assert value(W) <= min(candidates) + 1e-12


def test_prox_tie_becomes_zero():
    H = torch.tensor([[2.0, 2.0001]], dtype=torch.float64)
    assert prox_l20(H, 1.0, 2.0).tolist() == [[0.0, 2.0001]]


def test_groups_live_and_die_together():
    H = torch.tensor([[0.1, 3.0, 0.2, 0.1, 5.0]])  # two units of two columns, and a bias
    assert column_norms(H, 2, 1).tolist() == pytest.approx([9.01**0.5, 0.05**0.5])
    assert prox_l20(H, 1.0, 2.0, group=2, n_free=1)[0].tolist() == pytest.approx([0.1, 3, 0, 0, 5])
    assert active_columns(torch.tensor([[0.0, 1e-30, 0, 0, 7.0]]), 2, 1).tolist() == [True, False]


def test_a_column_of_tiny_weights_still_counts():
    W = torch.tensor([[1e-30, 0.0], [0.0, 0.0]])
    assert active_columns(W).tolist() == [True, False]


@pytest.mark.parametrize("seed", range(20))
def test_the_gradient_of_phi_is_the_definition(seed):
    U, V, W0, tau, gamma, _ = problem(seed)
    start, gram, cross = sums_of(U, V, W0)
    W = np.random.default_rng(seed + 1000).normal(size=W0.shape)
    for point in (start, torch.tensor(W)):
        expected = oracles.w_gradient(point.numpy(), U, V, tau, gamma)
        found = phi_gradient(point, start, gram, cross, tau, gamma)
        assert found.numpy() == pytest.approx(expected)
    assert lipschitz(gram, tau, gamma) == pytest.approx(tau * np.linalg.norm(V, 2) ** 2 + gamma)


@pytest.mark.parametrize("seed", range(50))
def test_no_pgm_step_raises_the_objective(seed):
    U, V, W0, tau, gamma, lam = problem(seed)
    values = [
        oracles.w_value(run_pgm(U, V, W0, tau, gamma, lam, steps=k), U, V, tau, gamma, lam)
        for k in range(1, 15)
    ]
    values.insert(0, oracles.w_value(W0, U, V, tau, gamma, lam))
    assert all(b <= a + 1e-10 for a, b in pairwise(values))


@pytest.mark.parametrize("seed", range(30))
def test_theorem_3_pgm_converges_to_a_p_stationary_point(seed):
    U, V, W0, tau, gamma, lam = problem(seed)
    W, beta = run_pgm(U, V, W0, tau, gamma, lam), beta_of(V, tau, gamma)
    gradient = oracles.w_gradient(W, U, V, tau, gamma)
    assert oracles.is_p_stationary(W, gradient, beta, lam)
    assert stationarity(torch.tensor(W), torch.tensor(gradient), beta, lam) <= 1e-8


@pytest.mark.parametrize("seed", range(30))
def test_theorem_1_quadratic_growth_around_a_p_stationary_point(seed):
    U, V, W0, tau, gamma, lam = problem(seed)
    W, beta = run_pgm(U, V, W0, tau, gamma, lam), beta_of(V, tau, gamma)
    base = oracles.w_value(W, U, V, tau, gamma, lam)
    radius = np.sqrt(beta * lam / (2 * W.shape[1] ** 2))
    rng = np.random.default_rng(seed)
    for _ in range(100):
        D = rng.normal(size=W.shape) * (rng.random(W.shape[1]) < 0.5)  # some columns stay
        norm = np.linalg.norm(D)
        if norm == 0:
            continue
        D *= radius * rng.random() / norm
        growth = oracles.w_value(W + D, U, V, tau, gamma, lam) - base
        assert growth >= gamma / 2 * np.sum(D**2) - 1e-10


def test_theorem_2_large_beta_means_globally_optimal():
    found = 0
    for seed in range(60):
        U, V, _, _, gamma, lam = problem(seed)
        tau = 0.02 * gamma  # a strong ridge, so that such points exist
        candidates = oracles.w_all_supports(U, V, tau, gamma)
        values = [oracles.w_value(W, U, V, tau, gamma, lam) for W in candidates]
        for W, value in zip(candidates, values, strict=True):
            gradient = oracles.w_gradient(W, U, V, tau, gamma)
            if oracles.is_p_stationary(W, gradient, 1 / gamma, lam):
                found += 1
                assert value <= min(values) + 1e-10
    assert found >= 20  # the promise was not kept on empty ground


@pytest.mark.parametrize("seed", range(30))
def test_theorem_2_a_global_optimum_is_p_stationary_for_small_beta(seed):
    U, V, _, tau, gamma, lam = problem(seed)
    candidates = oracles.w_all_supports(U, V, tau, gamma)
    best = min(candidates, key=lambda W: oracles.w_value(W, U, V, tau, gamma, lam))
    gradient = oracles.w_gradient(best, U, V, tau, gamma)
    for c in (0.01, 0.5, 0.99):
        assert oracles.is_p_stationary(best, gradient, beta_of(V, tau, gamma, c), lam)


@pytest.mark.parametrize("seed", range(10))
def test_theorem_4_asks_for_a_beta_that_theorem_3_forbids(seed):
    """E3: beta >= 1/gamma and beta < 1/(tau ||V||^2 + gamma) cannot both hold."""
    U, V, W0, tau, gamma, lam = problem(seed)
    assert 1 / gamma > beta_of(V, tau, gamma, c=1.0)
    one_step = run_pgm(U, V, W0, tau, gamma, lam, steps=1, beta=1 / gamma)
    if tau * np.linalg.norm(V, 2) ** 2 > 10 * gamma:  # and then F does rise
        before = oracles.w_value(W0, U, V, tau, gamma, lam)
        assert oracles.w_value(one_step, U, V, tau, gamma, lam) > before


def test_theorem_4_clash_on_the_smallest_example():
    U, V, W0 = np.array([[1.0]]), np.array([[1.0]]), np.array([[0.5]])
    tau, gamma, lam = 4.0, 1.0, 0.01
    step = run_pgm(U, V, W0, tau, gamma, lam, steps=1, beta=1 / gamma)
    before = oracles.w_value(W0, U, V, tau, gamma, lam)
    after = oracles.w_value(step, U, V, tau, gamma, lam)
    assert (before, after) == pytest.approx((0.635, 4.01))


def test_stationarity_bites():
    """The residual is zero only at a fixed point: each violated condition shows by itself."""
    W = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    at = {
        "fixed point": (W, torch.tensor([[0.0, 1.0]]), 0.0),
        "slope on a live column": (W, torch.tensor([[3.0, 0.0]]), 0.3),
        "live column too small": (W / 10, torch.tensor([[0.0, 0.0]]), 0.2**0.5 - 0.2),
        "steep zero column": (W, torch.tensor([[0.0, 10.0]]), 1 - 0.2**0.5),
    }
    for weights, slope, expected in at.values():
        assert stationarity(weights, slope.double(), 0.1, 1.0) == pytest.approx(expected)
    bias_slope = torch.tensor([[0.0, 4.0]], dtype=torch.float64)
    assert stationarity(W, bias_slope, 0.1, 1.0, n_free=1) == pytest.approx(0.4)
