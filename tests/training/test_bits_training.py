"""Layers with several bits a unit learn, by BCD and as baselines; bf16."""

import pickle
from copy import deepcopy

import numpy as np
import pytest
import torch

from zeroone import TrainSettings, ZeroOneClassifier, from_torch, quantise, to_torch, train
from zeroone.baselines.networks import AtThresholds, FloatNetwork
from zeroone.baselines.settings import BaselineSettings
from zeroone.data.load import load_data
from zeroone.deploy.compress import compress
from zeroone.nn import network as network_module
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network
from zeroone.nn.scaling import Scaling
from zeroone.training import trainers
from zeroone.training.baselines import AdamTrainer, train_baseline
from zeroone.training.stochastic_settings import StochasticSettings
from zeroone.training.trainers import BCDTrainer
from zeroone.utils.checks import InputError

DIGITS = load_data("digits")
X, Y = DIGITS.X, DIGITS.y
LAYERS = {
    "dense": ("40:bits2", "20:bits3"),
    "images": ("conv3x3:6:pad1:bits2:max2", "conv3x3:6:pad1:bits2", 20),
    "stream": (
        "conv3x3:6:pad1:stride2:bits2",
        "conv3x3:6:pad1:bits2",
        "conv3x3:12:pad1:bits2:stream:max2",
        20,
    ),
}


def run_of(hidden, **options):
    settings = TrainSettings.from_options(**{"hidden": hidden, "epochs": 5, "batch": 100} | options)
    return train(X, Y, settings, test=DIGITS.test, image=DIGITS.shape)


@pytest.fixture(scope="module", params=LAYERS)
def run(request):
    return run_of(LAYERS[request.param])


# --- BCD


def test_a_trained_network_is_the_same_in_every_form(run):
    network = run.network
    assert run.record["result"]["test_error"] < 0.12
    scores = network.scores(DIGITS.X_test)
    trainable = to_torch(network, trainable=True).eval()
    for same in (from_torch(trainable), compress(network)):
        torch.testing.assert_close(same.scores(DIGITS.X_test), scores, rtol=1e-5, atol=1e-5)
    integers = quantise(network)
    assert (integers.predict(DIGITS.X_test) == network.predict(DIGITS.X_test)).mean() > 0.92


@pytest.mark.parametrize("name", LAYERS)
def test_the_network_is_its_module_in_evaluation(name, rng):
    """With the running means and deviations of a few batches; with a bias or without."""
    for bias in (True, False):
        shape = (64,) if name == "dense" else DIGITS.shape
        plans = [LayerPlan.parse(layer) for layer in LAYERS[name]]
        network = Network.build(shape, plans, 10, "softmax", bias=bias, dtype=torch.float64)
        trainer = BCDTrainer(network, StochasticSettings(keep=0.5), 20)
        V, y = torch.from_numpy(X[:150]).double() / 8, torch.from_numpy(Y[:150])
        for _ in range(20):
            trainer.update(V, y, rng)
        expected = trainer.layers.eval()(V).detach()
        torch.testing.assert_close(trainer.model.forward(V), expected, rtol=1e-9, atol=1e-9)
        assert [op.n_out for op in trainer.model.operators[:2]] == [
            plan.units // 2 for plan in plans[:2]
        ]
        trainer.layers.train()


@pytest.mark.parametrize("name", LAYERS)
def test_the_state_is_all_that_the_next_batch_depends_on(name, rng):
    V, y = torch.from_numpy(X[:100]).float() / 8, torch.from_numpy(Y[:100])
    settings = StochasticSettings(keep=0.5, momentum=0.9)

    def fresh(seed):
        shape = (64,) if name == "dense" else DIGITS.shape
        plans = [LayerPlan.parse(layer) for layer in LAYERS[name]]
        network = Network.build(shape, plans, 10, "softmax", seed=seed, bias=False)
        return BCDTrainer(network, settings, 24, V)

    whole = fresh(0)
    for k in range(24):
        if k == 13:
            state = {name: T.clone() for name, T in whole.state().items()}
            half, copy = fresh(1), pickle.loads(pickle.dumps(whole))
            whole.notes()
        whole.update(V.roll(k, 0), y.roll(k), rng)
    half.restore(state)
    for k in range(13, 24):
        for other in (half, copy):
            other.update(V.roll(k, 0), y.roll(k), rng)
    flipped = whole.notes()["flipped"]
    for other in (half, copy):
        assert other.notes()["flipped"] == flipped
        for a, b in zip(whole.model.operators, other.model.operators, strict=True):
            assert torch.equal(a.weight, b.weight)


def test_flipped_bits_are_those_of_the_units_that_stay(rng):
    V, y = torch.from_numpy(X[:100]).float() / 8, torch.from_numpy(Y[:100])
    network = Network.build((64,), ("12:bits3",), 10, "softmax")
    trainer = BCDTrainer(network, StochasticSettings(keep=0.5, move=1e-9), 100, V)
    for k in range(80):
        if k == 10:
            assert trainer.notes()["flipped"][0] > 0  # the biases were balanced
            assert trainer.bits[0][1].shape[1] == 36
        trainer.update(V, y, rng)
    flipped = trainer.notes()["flipped"][0]
    assert trainer.bits[0][1].shape[1] == 18
    assert flipped < 0.2  # as the running deviations settle


def test_a_network_of_bits_is_trained_further(run):
    start = run.network
    again = train(X, Y, TrainSettings.from_options(epochs=3), test=DIGITS.test, start=start)
    first, last = (r.record["result"]["train_error"] for r in (run, again))
    assert last <= first
    assert again.record["network"] == run.record["network"]
    half = train(X, Y, TrainSettings.from_options(epochs=5, keep=0.5), start=start)
    for before, after in zip(start.layers[:-1], half.network.layers[:-1], strict=True):
        assert after.operator.n_out == before.operator.n_out // 2
        assert after.bits == before.bits


def test_bits_belong_to_the_network_to_begin_with():
    start = run_of(("8:bits2",), epochs=1).network
    for hidden in (("8",), ("8:bits3",)):
        for keep in (None, 0.5):
            asked = TrainSettings.from_options(hidden=hidden, keep=keep)
            with pytest.raises(InputError, match=r"has hidden=\('8:bits2',\), not"):
                train(X, Y, asked, start=start)
    with pytest.raises(InputError, match=r"several bits a unit \(bits\) are for"):
        train(X, Y, TrainSettings.from_options(solver="exact"), start=start)


def test_learning_in_pieces_copies_and_pickles():
    classifier = ZeroOneClassifier(("40:bits2", 20))
    for at in range(0, 1400, 200):
        classifier.partial_fit(X[at : at + 200], Y[at : at + 200], classes=range(10))
    assert classifier.score(DIGITS.X_test, DIGITS.y_test) > 0.75
    classifier.partial_fit(X[:1], Y[:1])  # a sample alone has no deviation
    others = [deepcopy(classifier), pickle.loads(pickle.dumps(classifier))]
    for one in (classifier, *others):
        one.partial_fit(X, Y)
    for other in others:
        assert np.array_equal(
            other.predict_proba(DIGITS.X_test), classifier.predict_proba(DIGITS.X_test)
        )
    assert classifier.n_active_ == [40, 20]


def test_ternary_weights_stay_ternary_in_every_row():
    network = run_of(("30:bits2", "20:bits3"), weights="ternary").network
    for layer in network.layers[:-1]:
        rows = layer.operator.linear.abs()
        relative = rows / rows.amax(dim=1, keepdim=True)
        assert bool(((relative < 1e-6) | (relative > 1 - 1e-5)).all())
    for stage in quantise(network).stages[1:-1]:
        assert set(np.unique(stage.main.weights)) <= {-1, 0, 1}


# --- baselines


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("activation", ["ste", "bi-real", "relu"])
def test_baselines_have_the_same_bits(activation, dtype):
    settings = TrainSettings.from_options(
        hidden=("40:bits2", "20:bits3"), epochs=8, batch=64, dtype=dtype
    )
    baseline = BaselineSettings(activation, learning_rate=3e-3)
    model, record = train_baseline(X, Y, baseline, settings, test=DIGITS.test)
    result = record["result"]
    assert result["test_error"] < 0.12
    below, above = (80, 60) if activation != "relu" else (40, 20)  # it has real values
    assert result["parameters"] == 40 * 65 + 20 * (below + 1) + 10 * (above + 1)
    assert result["active_units"] == [40, 20]
    assert isinstance(model.layers[0].activation, AtThresholds) == (activation != "relu")


def test_a_baseline_computes_what_a_network_does():
    shape, layers = DIGITS.shape, LAYERS["stream"]
    torch.manual_seed(0)
    V = torch.randn(50, 64)
    settings = BaselineSettings("ste")
    model = FloatNetwork([64, *layers, 10], settings, Scaling.identity(64), shape)
    trainer = AdamTrainer(model, settings, 10)
    for k in range(3):
        trainer.update(V, torch.arange(50) % 10, torch.Generator().manual_seed(k))
    network = Network(model.as_layers(), "softmax")
    torch.testing.assert_close(network.scores(V), model(V).detach(), rtol=1e-4, atol=1e-4)


# --- bf16


@pytest.mark.parametrize("hidden", [(60, 40), LAYERS["images"]], ids=["dense", "bits of images"])
def test_bf16_learns_as_well(hidden):
    errors, weights = {False: [], True: []}, {}
    for bf16 in (False, True):
        for seed in range(3):
            made = run_of(hidden, bf16=bf16, epochs=8, seed=seed)
            errors[bf16].append(made.record["result"]["test_error"])
        weights[bf16] = made.network.operators[0].weight
        assert made.network.dtype == torch.float32
        assert made.record["settings"]["stochastic"]["bf16"] is bf16
    assert abs(np.mean(errors[True]) - np.mean(errors[False])) < 0.02
    assert not torch.equal(weights[False], weights[True])


def test_bf16_learns_as_well_in_a_baseline():
    settings = TrainSettings.from_options(hidden=("60:bits2", 40), epochs=8, batch=64)
    losses, errors = [], []
    for bf16 in (False, True):
        baseline = BaselineSettings("ste", learning_rate=3e-3, bf16=bf16)
        _, record = train_baseline(X, Y, baseline, settings, test=DIGITS.test)
        losses.append(record["history"][-1]["loss"])
        errors.append(record["result"]["test_error"])
    assert abs(errors[0] - errors[1]) < 0.02
    assert losses[0] != losses[1]


def test_bf16_is_yes_or_no():
    with pytest.raises(InputError, match="bf16 must be true or false, got 1"):
        TrainSettings.from_options(bf16=1)


def test_the_flips_of_very_many_bits_are_counted_on_few_samples(monkeypatch):
    network = Network.build((1, 8, 8), ["conv3x3:8:pad1:bits8"], 10, "softmax")
    assert trainers.probe_size(network) == trainers.PROBE
    monkeypatch.setattr(trainers, "PROBED_BITS", 10 * 8 * 8 * 64)
    trainer = trainers.BCDTrainer(network, StochasticSettings(), 10, torch.zeros(100, 64))
    assert len(trainer.probe) == 10
    assert [len(bits) for _, bits in trainer.bits] == [10]


def test_samples_that_are_scored_together_fit_with_all_their_bits(monkeypatch):
    layers = ["conv3x3:8:pad1:bits8", "conv3x3:8:pad1"]
    network = Network.build((1, 8, 8), layers, 10, "softmax")
    monkeypatch.setattr(network_module, "BATCH_NUMBERS", 5 * 8 * 8 * 64)
    assert network_module.fitting_rows(network) == 5
