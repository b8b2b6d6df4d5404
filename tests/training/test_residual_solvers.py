"""Shortcuts in both solvers: each block against brute force, pruning, resumed runs."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import oracles
from residual_networks import DIGITS, HIDDEN, IMAGE, batch, build
from zeroone import Callback, TrainSettings, train
from zeroone.analysis.counts import counts
from zeroone.data.embedded import load_embedded
from zeroone.exact.objective import evaluate
from zeroone.exact.solver import ExactBCD, ExactSettings
from zeroone.nn.functional import one_hot
from zeroone.nn.heads import HardmaxMSE, SoftmaxCE
from zeroone.nn.network import Network
from zeroone.training.stochastic_settings import StochasticSettings
from zeroone.training.trainers import BCDTrainer


@pytest.fixture
def normal(rng):
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


# --- stochastic BCD


def test_one_batch_by_hand(normal):
    """Every block of 4-5-6-5(+shortcut)-3, written out once more from the formulas."""
    X, y = normal(40, 4), torch.arange(40) % 3
    network = build((5, 6, "5:skip2"), (4,), dtype=torch.float64)
    W = [op.weight.numpy().copy() for op in network.operators]
    S = {2: (network.layers[2].shortcut.weight.numpy().copy(), 1)}
    trainer = BCDTrainer(network, StochasticSettings(head_step=1.0, move=0.1, damping=4.0), 10)
    trainer.update(X, y, torch.Generator())
    settings = {"move": 0.1, "head_step": 1.0, "damping": 4.0}
    expected, shortcuts = oracles.bcd_batch(W, S, X.numpy(), y.numpy(), **settings)
    for op, weight in zip(trainer.model.operators, expected, strict=True):
        assert np.allclose(op.weight.numpy(), weight, rtol=1e-9)
    assert np.allclose(trainer.model.layers[2].shortcut.weight.numpy(), shortcuts[2], rtol=1e-9)


@pytest.mark.parametrize(
    "options", [{}, {"u_rule": "drawn", "move": 0.05}, {"bias": False}], ids=str
)
def test_every_way_to_train_fits_a_few_images(options, normal, rng):
    X, y = batch(normal, 30)
    options = dict(options)
    network = build(dtype=torch.float64, bias=options.pop("bias", True))
    trainer = BCDTrainer(network, StochasticSettings(**options), 150)
    for _ in range(150):
        trainer.update(X, y, rng)
    assert float((trainer.model.forward(X).argmax(dim=1) != y).double().mean()) <= 0.1


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


def units(trainer, layer):
    return trainer.optimizer.removal.units[f"layers.{layer}.linear"].tolist()


def test_kept_units_are_the_same_in_all_consumers(normal, rng):
    X, y = batch(normal, 30)
    trainer = BCDTrainer(build(dtype=torch.float64), StochasticSettings(keep=0.5), 60)
    for _ in range(60):
        trainer.update(X, y, rng)
    network = trainer.model
    assert [len(units(trainer, layer)) for layer in range(4)] == [2, 2, 3, 4]
    shapes = [tuple(layer.operator.weight.shape) for layer in network.layers]
    assert shapes == [(2, 19), (2, 19), (3, 19), (4, 4), (3, 5)]
    assert [tuple(x.operator.weight.shape) for x in network.shortcuts] == [(2, 2), (3, 2), (4, 18)]
    Network(network.layers, network.head)  # every shape fits


def test_a_dead_unit_leaves_all_consumers_and_no_score_changes(normal, rng):
    X, y = batch(normal, 30)
    network = build(dtype=torch.float64)
    for link in network.consumers(2):
        op = link.operator
        op.weight[:, op.columns_of(torch.tensor([3]))] = 0
    settings = StochasticSettings(keep=0.8, move=1e-12, head_step=1e-12)
    trainer = BCDTrainer(network, settings, 10)
    trainer.update(X, y, rng)
    before = trainer.model.forward(X)
    while len(units(trainer, 1)) == 5:
        trainer.update(X, y, rng)
    assert units(trainer, 1) == [0, 1, 2, 4]
    assert [link.operator.n_in for link in trainer.model.consumers(2)] == [4, 4]
    if len(units(trainer, 3)) == 7 and len(units(trainer, 2)) == 6 and len(units(trainer, 0)) == 4:
        assert torch.allclose(trainer.model.forward(X), before)


def test_a_unit_that_only_a_shortcut_needs_stays(normal, rng):
    """The costs of all consumers add up; units that no consumer needs leave first."""
    X, y = batch(normal, 30)
    network = build((8, 8, "8:skip2"), (72,), dtype=torch.float64)
    network.operators[1].weight[:, [1, 2, 5]] *= 1e-6
    network.layers[2].shortcut.weight[:, [2, 5, 6]] *= 1e-6
    trainer = BCDTrainer(network, StochasticSettings(keep=0.75, move=1e-9), 10)
    for _ in range(10):
        trainer.update(X, y, rng)
    assert units(trainer, 0) == [0, 1, 3, 4, 6, 7]


def test_removed_inputs_are_empty_in_all_consumers(normal, rng):
    X, y = normal(200, 20), torch.arange(200) % 3
    X[:, :5] += 2 * one_hot(y, 3, X.dtype) @ normal(3, 5)
    network = build((20, "20:skip2"), (20,), dtype=torch.float64)
    trainer = BCDTrainer(network, StochasticSettings(lam=0.3), 200)
    for _ in range(200):
        trainer.update(X, y, rng)
    dead = [
        (link.operator.linear == 0).all(dim=0).nonzero().flatten().tolist()
        for link in trainer.model.consumers(0)
    ]
    assert 0 < len(dead[0]) < 20
    assert counts(trainer.model)["active_inputs"] == 20 - len(set(dead[0]) & set(dead[1]))


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
    assert float(solver._v_gradient(i, slice(None)).max()) < 1e-6


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
    assert other.terms.total(other.settings) == pytest.approx(whole.terms.total(whole.settings))
    for solver in (whole, other):
        solver.sweep()
    pairs = zip(whole.network.links, other.network.links, strict=True)
    assert all(torch.equal(a.operator.weight, b.operator.weight) for a, b in pairs)
