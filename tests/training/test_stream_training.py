"""Streams in training: a batch by hand, pruning, resumed runs."""

import numpy as np
import pytest
import torch

import oracles
from stream_networks import DIGITS, batch, build
from zeroone import Callback, TrainSettings, train
from zeroone.data.load import load_data
from zeroone.nn.network import Network
from zeroone.training.stochastic_settings import StochasticSettings
from zeroone.training.trainers import BCDTrainer


@pytest.fixture
def normal(rng):
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


# --- stochastic BCD


def test_one_batch_by_hand(normal):
    """Every block of 4-5-5(stream)-6-3, written out once more from the formulas."""
    X, y = normal(40, 4), torch.arange(40) % 3
    network = build((5, "5:stream", 6), (4,), dtype=torch.float64)
    W = [op.weight.numpy().copy() for op in network.operators]
    trainer = BCDTrainer(network, StochasticSettings(head_step=1.0, move=0.1, damping=4.0), 10)
    trainer.update(X, y, torch.Generator())
    settings = {"move": 0.1, "head_step": 1.0, "damping": 4.0}
    expected = oracles.bcd_batch(W, {1}, X.numpy(), y.numpy(), **settings)
    for op, weight in zip(trainer.model.operators, expected, strict=True):
        assert np.allclose(op.weight.numpy(), weight, rtol=1e-9)


@pytest.mark.parametrize(
    "options", [{}, {"u_rule": "drawn", "move": 0.05}, {"bias": False}], ids=str
)
def test_every_way_to_train_fits_a_few_images(options, normal, rng):
    X, y = batch(normal, 30)
    options = dict(options)
    hidden = ("conv3x3:8:pad1", "conv3x3:8:pad1:stream:max2", "conv3x3:8:pad1:stream", 20)
    network = build((*hidden, "20:stream"), dtype=torch.float64, bias=options.pop("bias", True))
    trainer = BCDTrainer(network, StochasticSettings(**options), 150)
    for _ in range(150):
        trainer.update(X, y, rng)
    assert float((trainer.model.forward(X).argmax(dim=1) != y).double().mean()) <= 0.1


def test_a_stream_learns_digits():
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
    pairs = zip(whole.operators, again.network.operators, strict=True)
    assert all(torch.equal(a.weight, b.weight) for a, b in pairs)
    assert again.record["result"]["active_units"] == [4, 4, 4, 8, 8]


# --- pruning


def units(trainer, layer):
    return trainer.optimizer.removal.units[f"layers.{layer}.linear"].tolist()


def test_the_layers_of_a_stream_keep_the_same_units(normal, rng):
    X, y = batch(normal, 30)
    trainer = BCDTrainer(build(dtype=torch.float64), StochasticSettings(keep=0.5), 60)
    for _ in range(60):
        trainer.update(X, y, rng)
    network, kept = trainer.model, [units(trainer, layer) for layer in range(5)]
    assert kept[1] == kept[0]
    assert kept[2] == [*kept[0], *(unit + 4 for unit in kept[0])]
    assert kept[4] == [*kept[3], *(unit + 7 for unit in kept[3])]
    assert [len(some) for some in kept] == [2, 2, 4, 4, 8]
    shapes = [tuple(layer.operator.weight.shape) for layer in network.layers]
    assert shapes == [(2, 19), (2, 19), (4, 19), (4, 5), (8, 5), (3, 9)]
    Network(network.layers, network.head)  # every shape fits


def test_the_exact_solver_takes_no_stream():
    with pytest.raises(ValueError, match=r"streams \(stream\) are for solver='stochastic'"):
        TrainSettings(hidden=(6, 6, "6:stream"), solver="exact")
