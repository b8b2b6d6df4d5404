"""The U_h and U_i blocks against brute force: Lemma 1, Lemma 2, errata E1, E2 and E4."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import oracles
from zeroone.exact.blocks import u_gap, u_step
from zeroone.nn.heads import HardmaxMSE, SoftmaxCE

# Small integers and halves make ties and zeros common; the floats fill the space between.
entries = st.one_of(
    st.integers(-3, 3).map(float),
    st.integers(-5, 5).map(lambda k: k / 2),
    st.floats(-5, 5, allow_subnormal=False),
)
positive = st.sampled_from([1e-3, 0.1, 0.5, 1.0, 2.0, 10.0, 1e3])


@st.composite
def out_problems(draw):
    b = draw(st.lists(entries, min_size=1, max_size=6))
    y = draw(st.integers(0, len(b) - 1))
    return np.array(b), y, draw(positive)


def solve_out(b, y, mu, margin=0.0, printed=False):
    B = torch.tensor(b, dtype=torch.float64)[None]
    head = HardmaxMSE(margin)
    solve = head.lemma_1 if printed else head.u_step
    return solve(B, torch.tensor([y]), mu)[0].numpy()


@given(out_problems(), st.sampled_from([0.0, 0.5, 1.0]))
def test_exact_u_out_reaches_the_infimum(problem, margin):
    b, y, mu = problem
    u = solve_out(b, y, mu, margin)
    best = oracles.u_out_infimum(b, y, mu, margin)
    assert oracles.u_out_value(u, b, y, mu, margin) <= best + 1e-9
    gap = HardmaxMSE(margin).gap(
        torch.tensor(u)[None], torch.tensor(b)[None], torch.tensor([y]), mu
    )
    assert float(gap) <= 1e-9


@given(out_problems(), st.lists(entries, min_size=6, max_size=6))
def test_the_gap_is_the_distance_to_the_infimum(problem, other):
    b, y, mu = problem
    u = np.array(other[: len(b)])
    gap = HardmaxMSE().gap(torch.tensor(u)[None], torch.tensor(b)[None], torch.tensor([y]), mu)
    expected = oracles.u_out_value(u, b, y, mu) - oracles.u_out_infimum(b, y, mu)
    assert float(gap) == pytest.approx(expected, abs=1e-9)


@given(out_problems())
def test_exact_u_out_is_never_worse_than_the_printed_lemma(problem):
    b, y, mu = problem
    exact = oracles.u_out_value(solve_out(b, y, mu), b, y, mu)
    printed = oracles.u_out_value(solve_out(b, y, mu, printed=True), b, y, mu)
    assert exact <= printed + 1e-9


def test_lemma_1_pays_twice_the_price_on_its_counterexample():
    b, y, mu = np.array([1.0, 0.0]), 1, 1.0
    printed = 2 * oracles.u_out_value(solve_out(b, y, mu, printed=True), b, y, mu)
    exact = 2 * oracles.u_out_value(solve_out(b, y, mu), b, y, mu)
    assert printed == pytest.approx(1.0, abs=1e-6)
    assert exact == pytest.approx(0.5, abs=1e-6)


def test_lemma_1_is_often_suboptimal(rng):
    """E2: on random draws the printed formula misses the minimum more often than not."""
    worse = 0
    for _ in range(300):
        b = torch.randn(5, generator=rng, dtype=torch.float64).numpy()
        printed = oracles.u_out_value(solve_out(b, 2, 1.0, printed=True), b, 2, 1.0)
        worse += printed > oracles.u_out_infimum(b, 2, 1.0) + 1e-6
    assert worse > 150


def test_lemma_1_also_leaves_ties_between_wrong_leaders():
    b, y, mu = np.array([2.0, 2.0, -9.0]), 2, 1.0
    assert oracles.u_out_value(solve_out(b, y, mu, printed=True), b, y, mu) == 1.5
    assert oracles.u_out_value(solve_out(b, y, mu), b, y, mu) == pytest.approx(1.0)


def test_u_out_tie_rule_is_to_stay():
    b = np.array([2.0, 0.0])  # the projection (1, 1) costs mu/2 * 2 = 1, as much as being wrong
    assert solve_out(b, 1, 1.0).tolist() == b.tolist()
    assert solve_out(b, 1, 0.99)[1] > 0.9


def test_strictness_survives_flushed_subnormals():
    B, y = torch.zeros(1, 3), torch.tensor([1])
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush subnormal numbers")
    try:
        assert float(HardmaxMSE().losses(HardmaxMSE().u_step(B, y, 1.0), y)) == 0
    finally:
        torch.set_flush_denormal(False)


def test_u_out_rows_do_not_mix(rng):
    B = torch.randn(50, 4, generator=rng, dtype=torch.float64).round(decimals=1)
    y = torch.randint(0, 4, (50,), generator=rng)
    together = HardmaxMSE(0.3).u_step(B, y, 1.7)
    alone = [HardmaxMSE(0.3).u_step(B[s : s + 1], y[s : s + 1], 1.7) for s in range(50)]
    assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize("margin", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4, 1e7])
def test_u_out_is_strict_in_float32(rng, margin, scale):
    """E4: no tie is left, whatever the scale; half of the rows start as ties."""
    B = scale * torch.randn(2000, 10, generator=rng)
    B[:1000] = B[:1000].amax(dim=1, keepdim=True)
    y = torch.randint(0, 10, (2000,), generator=rng)
    head = HardmaxMSE(margin)
    U = head.u_step(B, y, 1e-30)  # mu so small that being right is always worth it
    assert float(head.losses(U, y).max()) == 0
    stuck = head.u_step(B, y, 1e30)  # so large that only rounding-size moves are worth it
    assert float(head.losses(stuck, y).max()) <= 1


def test_the_printed_epsilon_vanishes_in_float32():
    B, y = torch.tensor([[1.0, 0.0]]), torch.tensor([1])
    printed = HardmaxMSE().lemma_1(B, y, 0.1)
    assert printed[0, 0] == printed[0, 1]  # a tie: the update changed nothing that counts
    exact = HardmaxMSE().u_step(B, y, 0.1)
    assert exact[0, 1] > exact[0, 0]


@given(entries, entries, positive)
def test_u_in_reaches_the_infimum(a, b, rho):
    u = float(u_step(*(torch.tensor([x], dtype=torch.float64) for x in (a, b)), rho))
    assert oracles.u_in_value(u, a, b, rho) <= oracles.u_in_infimum(a, b, rho) + 1e-12


@given(entries, entries, entries, positive)
def test_u_gap_is_the_distance_to_the_infimum(u, a, b, rho):
    gap = u_gap(*(torch.tensor([x], dtype=torch.float64) for x in (u, a, b)), rho)
    expected = oracles.u_in_value(u, a, b, rho) - oracles.u_in_infimum(a, b, rho)
    assert float(gap) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("b", [0.0, -0.0, 1.0, -1.0])
def test_u_in_tie_rule_is_to_stay(b):
    rho, side = 2.0, -1.0 if b > 0 else 1.0
    a = (side * rho * b**2 + 1) / 2  # t = 2a - 1 sits exactly on the threshold
    assert u_step(torch.tensor([a]), torch.tensor([b]), rho).tolist() == [b]


def test_u_in_is_strict_in_float32_for_large_weights(rng):
    B = 1e4 * torch.randn(10_000, generator=rng)
    B[:100] = 0.0
    on = u_step(torch.full_like(B, 1e12), B, 1.0)
    off = u_step(torch.full_like(B, -1e12), B, 1.0)
    assert bool((on > 0).all())
    assert bool((off <= 0).all())


def test_the_printed_rho_misses_the_minimum(rng):
    """E1: rho = pi/tau is wrong in many cases, rho = tau/pi in none."""
    misses = {"printed": 0, "corrected": 0}
    for _ in range(500):
        a, b = torch.randn(2, generator=rng, dtype=torch.float64).tolist()
        tau, pi = (10 ** torch.empty(2).uniform_(-1, 1, generator=rng)).tolist()
        for name, rho in (("printed", pi / tau), ("corrected", tau / pi)):
            u = float(u_step(*(torch.tensor([x], dtype=torch.float64) for x in (a, b)), rho))
            value = oracles.u_in_value(u, a, b, tau / pi)
            misses[name] += value > oracles.u_in_infimum(a, b, tau / pi) + 1e-9
    assert misses["corrected"] == 0
    assert misses["printed"] > 50


def test_the_printed_epsilon_of_lemma_2():
    A, B = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([-0.1, -0.5, 0.3])
    u = u_step(A, B, 1.0, printed_epsilon=True)
    assert u.tolist() == pytest.approx([1e-10, 1e-10, 0.0], abs=1e-12)


@given(out_problems())
def test_softmax_u_out_is_the_unique_stationary_point(problem):
    """The problem is strongly convex: a zero gradient, here by its definition, is the minimum."""
    b, y, mu = problem
    B = torch.tensor(b, dtype=torch.float64)[None]
    u = SoftmaxCE().u_step(B, torch.tensor([y]), mu)[0].numpy()
    p = np.exp(u - u.max()) / np.exp(u - u.max()).sum()
    assert np.abs(p - np.eye(len(b))[y] + mu * (u - b)).max() <= 1e-8
    gap = SoftmaxCE().gap(torch.tensor(u)[None], B, torch.tensor([y]), mu)
    assert float(gap) <= 1e-10


def test_softmax_u_out_in_float32(rng):
    B, y = 5 * torch.randn(500, 10, generator=rng), torch.randint(0, 10, (500,), generator=rng)
    exact = SoftmaxCE().u_step(B.double(), y, 0.1)
    assert float((SoftmaxCE().u_step(B, y, 0.1) - exact).abs().max()) < 1e-3
