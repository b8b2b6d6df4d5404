"""Shortcuts in training: a batch by hand, pruning, resumed runs."""

import numpy as np
import pytest
import torch

import oracles
from residual_networks import DIGITS, batch, build
from zeroone import Callback, TrainSettings, train
from zeroone.analysis.counts import counts
from zeroone.data.load import load_data
from zeroone.nn.functional import one_hot
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
    data = load_data("digits")
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

    data = load_data("digits")
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


def test_the_exact_solver_takes_no_shortcuts():
    with pytest.raises(ValueError, match=r"shortcuts \(skip\) are for solver='stochastic'"):
        TrainSettings(hidden=(6, 6, "6:skip2"), solver="exact")
