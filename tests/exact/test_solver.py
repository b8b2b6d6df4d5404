"""Algorithm 3: no block raises F, the four conditions are reached, same seed same bits."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import oracles
from zeroone.exact import solver as exact
from zeroone.exact.blocks import damped_gain, u_step, v_step_cg
from zeroone.exact.solver import PAPER, ExactBCD, ExactSettings
from zeroone.nn.heads import HardmaxMSE, SoftmaxCE
from zeroone.nn.network import Network


def small_solver(seed, head=None, **changes):
    """A random small problem in float64 whose weights, widths and penalties all vary."""
    rng = np.random.default_rng(seed)
    n, d, classes = (int(rng.integers(low, high)) for low, high in ((5, 30), (2, 7), (2, 5)))
    hidden = rng.integers(1, 9, size=rng.integers(1, 4)).tolist()
    tau, pi, gamma, lam = 10 ** rng.uniform([-3, -3, -3, -4], [1, 1, 0, -0.5])
    X = torch.tensor(rng.normal(size=(n, d)))
    y = torch.tensor(rng.integers(0, classes, size=n))
    margin = float(rng.choice([0.0, 0.5]))
    network = Network.build(
        (d,),
        hidden,
        classes,
        head or HardmaxMSE(margin),
        std=0.5,
        bias=bool(rng.integers(2)),
        seed=seed,
        dtype=torch.float64,
    )
    settings = {"tau": tau, "pi": pi, "gamma": gamma, "lam": lam, "pgm_steps": 3} | changes
    return ExactBCD(network, X, y, ExactSettings(**settings))


def f_after_blocks(solver):
    """F after each block of a sweep."""
    flipped = [0.0] * len(solver.U)
    return [solver.terms()["F"] for _ in solver.update_blocks(flipped)]


def f_by_oracle(solver):
    operators = solver.network.operators
    s = solver.settings
    return oracles.objective(
        [op.linear.numpy() for op in operators],
        [op.offset.numpy() if op.bias else np.zeros(op.n_out) for op in operators],
        [U.numpy() for U in solver.U],
        [V.numpy() for V in solver.V],
        solver.y.numpy(),
        (s.lam, s.gamma, s.tau, s.pi),
        solver.network.head.margin,
    )


@pytest.mark.parametrize("seed", range(200))
def test_no_block_raises_f(seed):
    solver = small_solver(seed)
    before = f_by_oracle(solver)
    values = [before]
    for _ in range(3):
        values += f_after_blocks(solver)
        assert f_by_oracle(solver) == pytest.approx(values[-1], rel=1e-9, abs=1e-12)
    assert all(b <= a + 1e-9 * max(1, before) for a, b in pairwise(values))


@pytest.mark.parametrize("seed", range(20))
def test_no_block_raises_f_with_the_softmax_head_or_conjugate_gradients(seed):
    for head, v_solver in ((SoftmaxCE(), "factor"), (None, "cg")):
        solver = small_solver(seed, head, v_solver=v_solver, cg_tol=1e-12)
        values = [solver.terms()["F"]]
        for _ in range(3):
            values += f_after_blocks(solver)
        assert all(b <= a + 1e-9 * max(1, values[0]) for a, b in pairwise(values))


def test_f_is_monotone_over_50_sweeps():
    for seed in range(5):
        solver = small_solver(seed)
        values = [solver.sweep()["F"] for _ in range(50)]
        assert all(b <= a + 1e-10 for a, b in pairwise(values))


def test_row_blocks_change_nothing(monkeypatch):
    whole = small_solver(8)
    monkeypatch.setattr("zeroone.exact.blocks.ROWS", 4)
    pieces = small_solver(8)
    for _ in range(3):
        assert pytest.approx(pieces.sweep()["F"], rel=1e-12) == whole.sweep()["F"]


def test_blocks_are_updated_outer_to_inner():
    solver = small_solver(0)
    depth = len(solver.network.operators)
    expected = [f"U{depth}", f"W{depth}"]
    for i in range(depth - 1, 0, -1):
        expected += [f"V{i}", f"U{i}", f"W{i}"]
    assert list(solver.update_blocks([0.0] * depth)) == expected


def stationary_solver(seed):
    solver = small_solver(seed, tau=1.0, pi=0.5, gamma=0.1, lam=0.01, pgm_steps=50)
    for k in range(1, 1501):
        solver.sweep()
        if k % 50 == 0 and max(solver.residuals().values()) <= 1e-6:
            break
    return solver


@pytest.mark.parametrize("seed", [3, 4])
def test_all_four_conditions_are_reached_zero_columns_included(seed):
    solver = stationary_solver(seed)
    alive = torch.cat([(op.linear != 0).any(dim=0) for op in solver.network.operators])
    assert 0 < int(alive.sum()) < len(alive)  # columns of both kinds are there
    assert max(solver.residuals().values()) <= 1e-6


def test_the_residuals_bite():
    """Each condition, violated on purpose at a stationary point, shows in its own residual."""
    solver = stationary_solver(3)
    for name, block in (("V", solver.V[1]), ("U", solver.U[0]), ("U_h", solver.U[-1])):
        block.add_(0.1)
        assert solver.residuals()[name] > 1e-3, name
        block.sub_(0.1)
    weight = solver.network.operators[-1].weight
    solver.network.operators[-1].weight = weight + 0.1
    assert solver.residuals()["W"] > 1e-3


def test_large_weights_in_float32_leave_no_tie():
    torch.manual_seed(0)
    X, y = torch.randn(300, 20), torch.randint(0, 5, (300,))
    network = Network.build((20,), [30, 30], 5, HardmaxMSE(), std=1e4)
    solver = ExactBCD(network, X, y, ExactSettings(tau=1e-12, pi=1e-3, gamma=1e-12))
    for _ in range(3):
        solver.sweep()
        leaders = (solver.U[-1] == solver.U[-1].amax(dim=1, keepdim=True)).sum(dim=1)
        assert int(leaders.max()) == 1
        assert max(float(op.weight.abs().max()) for op in network.operators) > 1e4


def test_same_seed_same_bits():
    def weights():
        torch.manual_seed(0)
        X, y = torch.randn(500, 20), torch.randint(0, 5, (500,))
        network = Network.build((20,), [50, 50], 5, HardmaxMSE(1.0), seed=3)
        solver = ExactBCD(network, X, y, ExactSettings())
        for _ in range(5):
            solver.sweep()
        return [op.weight for op in network.operators]

    assert all(torch.equal(a, b) for a, b in zip(weights(), weights(), strict=True))


def test_flips_and_moves_are_what_happened(monkeypatch):
    """A V block that asks for the opposite of some bits: the counters see each one that flips."""

    def contrary(_, i):
        return lambda U, S: torch.where(torch.arange(S.shape[1]) % 3 == 0, 1 - S, S)

    monkeypatch.setattr(ExactBCD, "_v_solver", contrary)
    for seed in range(6):
        solver = small_solver(seed, tau=1e-3, pi=10.0, gamma=0.01, lam=0.0, pgm_steps=20)
        bits = [U > 0 for U in solver.U[:-1]]
        weights = [op.weight.clone() for op in solver.network.operators]
        sweep = solver.sweep()
        now = [U > 0 for U in solver.U[:-1]]
        changed = [float((a != b).double().mean()) for a, b in zip(now, bits, strict=True)]
        assert min(changed) > 0.2
        assert sweep["flipped"] == pytest.approx(changed)
        for moved, op, old in zip(sweep["moved"], solver.network.operators, weights, strict=True):
            assert moved == pytest.approx(float((op.weight - old).norm() / old.norm()))
        assert max(sweep["moved"]) > 0


def test_the_paper_preset_uses_the_printed_formulas(monkeypatch):
    torch.manual_seed(0)
    X, y = torch.randn(40, 6), torch.randint(0, 3, (40,))
    network = Network.build((6,), [8, 8], 3, HardmaxMSE(), bias=False)
    solver = ExactBCD(network, X, y, PAPER)
    B = network.operators[-1].apply(solver.V[-1])
    expected = HardmaxMSE().lemma_1(B, y, PAPER.tau * 40)
    calls = {"cg": 0, "epsilon": 0}

    def counted_cg(*args, **kwargs):
        calls["cg"] += 1
        return v_step_cg(*args, **kwargs)

    def counted_u(*args, printed_epsilon):
        calls["epsilon"] += printed_epsilon
        return u_step(*args, printed_epsilon=printed_epsilon)

    monkeypatch.setattr(exact, "v_step_cg", counted_cg)
    monkeypatch.setattr(exact, "u_step", counted_u)
    solver.sweep()
    assert torch.equal(solver.U[-1], expected)
    assert not torch.equal(expected, HardmaxMSE().u_step(B, y, PAPER.tau * 40))
    assert calls == {"cg": 2, "epsilon": 2}


def test_a_wrong_v_block_shows_in_its_residual(monkeypatch):
    monkeypatch.setattr(exact, "damped_gain", lambda W, damping: damped_gain(W, damping) / 2)
    solver = small_solver(3, tau=1.0, pi=0.5)
    for _ in range(20):
        solver.sweep()
    assert solver.residuals()["V"] > 1e-4


def test_the_printed_settings():
    assert (PAPER.pi, PAPER.gamma, PAPER.tau, PAPER.lam) == (1e-7, 1e-8, 1e-6, 0.052)
    assert (PAPER.max_iter, PAPER.pgm_steps, PAPER.beta) == (35, 1, 0.00072)
    assert (PAPER.v_solver, PAPER.printed) == ("cg", True)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"lam": -1.0}, "lam must be zero or a positive number, got -1.0."),
        ({"gamma": 0.0}, "gamma must be a positive number, got 0.0."),
        ({"tau": -1e-6}, "tau must be a positive number, got -1e-06."),
        ({"pi": float("nan")}, "pi must be a positive number, got nan."),
        ({"beta": 0.0}, "beta must be a positive number, got 0.0."),
        ({"pgm_steps": 0}, "pgm_steps must be a whole number of at least 1, got 0."),
        (
            {"v_solver": "factr"},
            "unknown v_solver 'factr'; choose from factor, cg. Did you mean 'factor'?",
        ),
    ],
)
def test_bad_settings_get_one_sentence(changes, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        ExactSettings(**changes)
    assert str(error.value) == sentence
