"""Shortcuts in both solvers: each block against brute force, pruning, resumed runs."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import oracles
from test_residual import DIGITS, HIDDEN, IMAGE, batch, build
from zeroone import Callback, TrainSettings, train
from zeroone.counts import counts
from zeroone.data.embedded import load_embedded
from zeroone.heads import HardmaxMSE, SoftmaxCE
from zeroone.network import Network
from zeroone.objective import evaluate
from zeroone.operators import Dense
from zeroone.ops import add_up, one_hot
from zeroone.solvers.exact import ExactBCD, ExactSettings
from zeroone.solvers.metric import Metric
from zeroone.solvers.pruning import removal_costs
from zeroone.solvers.stochastic import StochasticBCD
from zeroone.solvers.stochastic_settings import StochasticSettings


@pytest.fixture
def normal(rng):
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


# --- stochastic BCD


def test_what_the_consumers_want_adds_up(normal, rng):
    """Against autograd: minus the gradient of 1/2 sum_c ||E_c - (change of U_c)||^2 at 0."""
    network = build(dtype=torch.float64)
    X, _ = batch(normal)
    V = [X.reshape(-1, *IMAGE), *network.hidden_bits(X)]
    for v in V:
        v.requires_grad_()
    wanted = [[] for _ in V]
    solver = StochasticBCD(network, StochasticSettings(), 10)
    total = 0.0
    for i, layer in enumerate(network.layers):
        U = layer.apply(V[: i + 1])
        E = normal(*U.shape)
        total = total + (E * U).sum()
        with torch.no_grad():
            solver._want(i, E, wanted)
    total.backward()
    assert wanted[0] == []
    assert [len(parts) for parts in wanted[1:]] == [1, 2, 1, 1]
    for v, parts in zip(V[1:], wanted[1:], strict=True):
        assert torch.allclose(add_up(parts), v.grad)


def centred_step(E, V, W, S, VS):
    """A W step of size 1/n with damping 4 of [W, b] and S, from the formulas."""

    def inverse(inputs, bordered):
        Q = torch.cov(inputs.T, correction=0)
        Q += 4.0 * Q.diagonal().mean() * torch.eye(len(Q), dtype=Q.dtype)
        if not bordered:
            return torch.linalg.inv(Q)
        m = inputs.mean(dim=0)[:, None]
        M = torch.cat([torch.cat([Q + m @ m.T, m], 1), torch.cat([m.T, m.new_ones(1, 1)], 1)])
        return torch.linalg.inv(M)

    n, ones = len(E), torch.ones(len(E), 1, dtype=E.dtype)
    W = W + E.T @ torch.cat([V, ones], dim=1) @ inverse(V, True) / n
    if S is not None:
        m = VS.mean(dim=0)
        G = E.T @ (VS - m) @ inverse(VS, False) / n
        S = S + G
        W[:, -1] -= G @ m
    return W, S


def test_one_batch_by_hand(normal):
    """Every block of 4-5-6-5(+shortcut)-3, written out once more from the formulas."""
    X, y = normal(40, 4), torch.arange(40) % 3
    network = build((5, 6, "5:skip2"), (4,), dtype=torch.float64)
    W = [op.weight.clone() for op in network.operators]
    S = network.layers[2].shortcut.weight.clone()
    StochasticBCD(network, StochasticSettings(top_step=1.0), 10).update(X, y, torch.Generator())

    def affine(V, W):
        return V @ W[:, :-1].T + W[:, -1]

    def rounded(D, B):
        inside = B.abs() <= 1
        return 0.5 * 0.2 * D * inside * inside.sum() / (D * inside).abs().sum()

    B0 = affine(X, W[0])
    V1 = (B0 > 0).double()
    B1 = affine(V1, W[1])
    V2 = (B1 > 0).double()
    B2 = affine(V2, W[2]) + V1 @ S.T
    V3 = (B2 > 0).double()
    E3 = 0.9 * one_hot(y, 3, X.dtype) + 0.1 / 3 - torch.softmax(affine(V3, W[3]), dim=1)
    E2 = rounded(E3 @ W[3][:, :-1], B2)
    E1 = rounded(E2 @ W[2][:, :-1], B1)
    E0 = rounded(E1 @ W[1][:, :-1] + E2 @ S, B0)
    new3, _ = centred_step(E3, V3, W[3], None, None)
    new2, newS = centred_step(E2, V2, W[2], S, V1)
    new1, _ = centred_step(E1, V1, W[1], None, None)
    new0, _ = centred_step(E0, X, W[0], None, None)
    spreads = [B.std(dim=0, correction=0)[:, None] for B in (B0, B1, B2)]
    expected = [new0 / spreads[0], new1 / spreads[1], new2 / spreads[2], new3]
    for op, weight in zip(network.operators, expected, strict=True):
        assert torch.allclose(op.weight, weight)
    assert torch.allclose(network.layers[2].shortcut.weight, newS / spreads[2])


@pytest.mark.parametrize("options", [{}, {"v_step": "solve"}, {"u_step": "drawn"}, {"bias": False}])
def test_every_way_to_train_fits_a_few_images(options, normal, rng):
    X, y = batch(normal, 30)
    bias = options.pop("bias", True)
    network = build(dtype=torch.float64, bias=bias)
    solver = StochasticBCD(network, StochasticSettings(**options), 150)
    for _ in range(150):
        solver.update(X, y, rng)
    assert float((network.forward(X).argmax(dim=1) != y).double().mean()) <= 0.1


def test_a_residual_convnet_learns_digits():
    data = load_embedded("digits")
    settings = TrainSettings.from_options(hidden=DIGITS, epochs=3, batch=32)
    assert settings.hidden == DIGITS
    run = train(data.X, data.y, settings, test=data.test, image=(1, 8, 8))
    assert run.record["result"]["test_error"] < 0.1


def test_a_resumed_run_gives_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)

    class Stop(Callback):
        def on_batch(self, iteration, done, total):
            if iteration == 3:
                raise KeyboardInterrupt

    data = load_embedded("digits")
    X, y = data.X[:300], data.y[:300]
    options = {"hidden": DIGITS, "epochs": 5, "batch": 50, "keep": 0.5}
    settings = TrainSettings.from_options(**options)
    whole = train(X, y, settings, image=(1, 8, 8)).network
    with pytest.raises(KeyboardInterrupt):
        train(X, y, settings, image=(1, 8, 8), out=tmp_path, callbacks=[Stop()])
    again = train(X, y, settings, image=(1, 8, 8), out=tmp_path, resume=True)
    assert again.record["resumed"] == [2]
    pairs = zip(whole.links, again.network.links, strict=True)
    assert all(torch.equal(a.operator.weight, b.operator.weight) for a, b in pairs)
    assert again.record["result"]["active_units"] == [4, 4, 4, 8, 8]


# --- pruning


def test_kept_units_are_the_same_in_all_consumers(normal, rng):
    X, y = batch(normal, 30)
    network = build(dtype=torch.float64)
    solver = StochasticBCD(network, StochasticSettings(keep=0.5), 60)
    for _ in range(60):
        solver.update(X, y, rng)
    assert [len(units) for units in solver.units] == [2, 2, 3, 4]
    shapes = [tuple(layer.operator.weight.shape) for layer in network.layers]
    assert shapes == [(2, 19), (2, 19), (3, 19), (4, 4), (3, 5)]
    assert [tuple(x.operator.weight.shape) for x in network.shortcuts] == [(2, 2), (3, 2), (4, 18)]
    Network(network.layers, network.head)  # every shape fits


def test_a_dead_unit_leaves_all_consumers_and_no_score_changes(normal, rng):
    X, y = batch(normal, 30)
    network = build(dtype=torch.float64)
    solver = StochasticBCD(network, StochasticSettings(keep=0.9), 100)
    solver.update(X, y, rng)
    for link in network.consumers(2):
        op = link.operator
        op.weight[:, op.columns_of(torch.tensor([3]))] = 0
    before = network.forward(X)
    solver._remove(2, torch.tensor([3]))
    assert [link.operator.n_in for link in network.consumers(2)] == [4, 4]
    assert solver.units[1].tolist() == [0, 1, 2, 4]
    assert torch.allclose(network.forward(X), before)


def test_a_unit_that_only_a_shortcut_needs_stays(normal, rng):
    """The costs of all consumers add up; units that no consumer needs leave first."""
    X, y = batch(normal, 30)
    network = build((8, 8, "8:skip2"), (72,), dtype=torch.float64)
    solver = StochasticBCD(network, StochasticSettings(keep=0.75, step=1e-9), 10)
    network.operators[1].weight[:, [1, 2, 5]] *= 1e-6
    network.layers[2].shortcut.weight[:, [2, 5, 6]] *= 1e-6
    for _ in range(10):
        solver.update(X, y, rng)
    assert solver.units[0].tolist() == [0, 1, 3, 4, 6, 7]


def test_the_cost_of_a_unit_is_the_least_change_of_all_its_consumers(normal, rng):
    X, y = batch(normal, 30)
    network = build(dtype=torch.float64)
    solver = StochasticBCD(network, StochasticSettings(), 10)
    solver.update(X, y, rng)
    costs = torch.zeros(5, dtype=torch.float64)
    for link, metric in solver._blocks:
        if link.source == 2:
            P = metric.inverse()
            costs += removal_costs(link.operator.linear, P, link.operator.group)
    assert (costs > 0).all()
    assert torch.allclose(solver._removal_costs(2), costs)


def test_emptied_columns_of_a_shortcut_leave_the_mean_to_the_bias(normal):
    V, own = (normal(50, 6) > 0).double(), Dense(normal(4, 4), 3, True)
    op = Dense(normal(4, 6), 6, False)
    metric = Metric(1e-9, bias=True)
    metric.observe(0, op, V)
    metric.refresh()
    before = op.apply(V) + own.offset
    metric.empty(op, torch.tensor([1, 4]), own)
    after = op.apply(V) + own.offset
    assert op.weight[:, [1, 4]].tolist() == torch.zeros(4, 2).tolist()
    stay = torch.cat([V[:, [0, 2, 3, 5]], torch.ones(50, 1, dtype=V.dtype)], dim=1)
    best = stay @ torch.linalg.lstsq(stay, before).solution  # the best without those two
    assert torch.allclose(after, best, atol=1e-6)


def test_removed_inputs_are_empty_in_all_consumers(normal, rng):
    X, y = normal(200, 20), torch.arange(200) % 3
    X[:, :5] += 2 * one_hot(y, 3, X.dtype) @ normal(3, 5)
    network = build((20, "20:skip2"), (20,), dtype=torch.float64)
    solver = StochasticBCD(network, StochasticSettings(lam=0.3), 200)
    for _ in range(200):
        solver.update(X, y, rng)
    dead = solver.metrics[0].dead
    assert 0 < len(dead) < 20
    for link, metric in solver._consumers(0):
        assert metric.dead.tolist() == dead.tolist()
        assert float(link.operator.linear[:, dead].abs().max()) == 0
    assert counts(network)["active_inputs"] == 20 - len(dead)
    state = solver.state()
    assert {"W1", "moment1", "W1-shortcut", "moment1-shortcut"} <= state.keys()


# --- the exact solver


def exact_solver(seed, head=None, hidden=HIDDEN, shape=IMAGE, **changes):
    rng = np.random.default_rng(seed)
    X = torch.tensor(rng.normal(size=(14, int(np.prod(shape)))))
    y = torch.tensor(rng.integers(0, 3, size=14))
    tau, pi, gamma, lam = 10 ** rng.uniform([-3, -3, -3, -4], [0, 0, 0, -1.5])
    settings = {"tau": tau, "pi": pi, "gamma": gamma, "lam": lam, "cg_tol": 1e-12, "pgm_steps": 3}
    bias = bool(rng.integers(2))
    network = build(hidden, shape, 3, head or HardmaxMSE(0.5), std=0.4, bias=bias, seed=seed,
                    dtype=torch.float64)  # fmt: skip
    return ExactBCD(network, X, y, ExactSettings(**settings | changes))


def f_by_definition(solver):
    s, U, V = solver.settings, solver.U, solver.V
    total = float(solver.network.head.losses(U[-1], solver.y).mean())
    for i, layer in enumerate(solver.network.layers):
        B = layer.operator.apply(V[i])
        weights = [(layer.operator.linear, layer.operator.group)]
        if layer.shortcut is not None:
            B = B + layer.shortcut.apply(V[i + 1 - layer.skip])
            weights.append((layer.shortcut.linear, layer.shortcut.group))
            total += s.gamma / 2 * float(layer.shortcut.weight.square().sum())
        total += s.gamma / 2 * float(layer.operator.weight.square().sum())
        for W, group in weights:
            units = W.reshape(len(W), -1, group)
            total += s.lam * int((units != 0).any(dim=2).any(dim=0).sum())
        total += s.tau / 2 * float((U[i] - B).square().sum())
        if i + 1 < len(V):
            bits = (layer.pool.forward(U[i]) > 0).double()
            total += s.pi / 2 * float((V[i + 1] - bits).square().sum())
    return total


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    ("hidden", "shape"), [(HIDDEN, IMAGE), ((6, 5, "7:skip2", 4, "5:skip3"), (8,))]
)
def test_no_block_raises_f(seed, hidden, shape):
    solver = exact_solver(seed, hidden=hidden, shape=shape, head=[None, SoftmaxCE()][seed % 2])
    before = f_by_definition(solver)
    values = [before]
    for _ in range(3):
        sweep = solver.sweep()
        values += [block["F"] for block in sweep.blocks]
        assert f_by_definition(solver) == pytest.approx(sweep.F, rel=1e-9, abs=1e-12)
    assert all(b <= a + 1e-9 * max(1, before) for a, b in pairwise(values))


def test_a_shortcut_is_updated_after_the_weights_of_its_layer():
    solver = exact_solver(0, lam=0.0)
    before = [x.operator.weight.clone() for x in solver.network.shortcuts]
    names = " ".join(block["block"] for block in solver.sweep().blocks)
    assert names == "U5 W5 V4 U4 W4 S4 V3 U3 W3 S3 V2 U2 W2 S2 V1 U1 W1"
    for link, old in zip(solver.network.shortcuts, before, strict=True):
        assert float((link.operator.weight - old).abs().max()) > 0


def test_the_tracked_terms_are_the_definition():
    solver = exact_solver(3)
    for _ in range(3):
        solver.sweep()
        terms = evaluate(solver.network, solver.U, solver.V, solver.y)
        for name in ("loss", "columns", "ridge", "coupling", "activation"):
            tracked, defined = getattr(solver.terms, name), getattr(terms, name)
            assert tracked == pytest.approx(defined, rel=1e-9, abs=1e-12), name


def matrix(op):
    """The matrix of an operator, and what it adds to it, for flattened samples."""
    inputs = torch.eye(op.n_inputs, dtype=torch.float64).reshape(-1, *op.shape_in)
    offset = op.apply(torch.zeros_like(inputs[:1])).flatten(1)
    return (op.apply(inputs).flatten(1) - offset).T.numpy(), offset.numpy()


@pytest.mark.parametrize(("hidden", "shape"), [(HIDDEN, IMAGE), ((6, 5, "7:skip2"), (8,))])
def test_the_v_block_of_two_consumers_is_the_least_squares_solution(hidden, shape, normal):
    """Its consumers stacked as one dense matrix, each target without what else its layer adds."""
    solver = exact_solver(5, hidden=hidden, shape=shape)
    for U in solver.U:
        U.add_(normal(*U.shape))
    i = next(j for j in range(1, 4) if len(solver.network.consumers(j)) == 2)
    layer, above = solver.network.layers[i], solver.network.layers[i + 1]
    (W, b), (S, _) = matrix(layer.operator), matrix(above.shortcut)
    U = solver.U[i].clone()
    if layer.shortcut is not None:
        U -= layer.shortcut.apply(solver.V[i + 1 - layer.skip])
    above_only = solver.U[i + 1] - above.operator.apply(solver.V[i + 1])
    targets = np.hstack([U.flatten(1).numpy() - b, above_only.flatten(1).numpy()])
    bits = solver._bits(i - 1, solver.U[i - 1]).flatten(1).numpy()
    s = solver.settings
    expected = oracles.v_minimiser(targets, bits, np.vstack([W, S]), 0.0, s.tau, s.pi)
    solver._update_V(i)
    assert solver.V[i].flatten(1).numpy() == pytest.approx(expected, abs=1e-8)
    assert solver._v_residual(i) < 1e-6


def test_the_residuals_see_the_shortcuts():
    settings = {"tau": 1.0, "pi": 0.5, "gamma": 1.0, "lam": 0.0, "pgm_steps": 50}
    solver = exact_solver(1, hidden=(4, 3, "4:skip2"), shape=(5,), **settings)
    for _ in range(100):
        solver.sweep()
    before = solver.residuals()
    assert max(before.values()) < 2e-3
    shortcut = solver.network.layers[2].shortcut
    shortcut.weight = shortcut.weight + 0.1
    after = solver.residuals()
    assert after["W"] > 10 * before["W"]
    assert after["V"] > 1e-2 > before["V"]


def test_the_state_of_the_exact_solver_is_complete():
    whole, other = exact_solver(2), exact_solver(2)
    for link in other.network.links:
        link.operator.weight = link.operator.weight + 1
    for _ in range(2):
        whole.sweep()
    other.restore({name: T.clone() for name, T in whole.state().items()})
    assert other.terms.total(other.weights) == pytest.approx(whole.terms.total(whole.weights))
    for solver in (whole, other):
        solver.sweep()
    pairs = zip(whole.network.links, other.network.links, strict=True)
    assert all(torch.equal(a.operator.weight, b.operator.weight) for a, b in pairs)
