"""What holds when a network learns more than once: constants, ranges, budgets, settings."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from zeroone import (
    Callback,
    Network,
    TrainSettings,
    ZeroOneClassifier,
    ZeroOneRegressor,
    from_torch,
    quantise,
    to_torch,
    train,
)
from zeroone.nn import Step
from zeroone.optim import BCD
from zeroone.utils.checks import InputError

X, Y = load_digits(return_X_y=True)
PADDED = np.pad(X.reshape(-1, 8, 8), ((0, 0), (2, 2), (2, 2))).reshape(len(X), -1)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_pieces_are_learned_with_noise_on_inputs(noise):
    models = [
        ZeroOneClassifier((10,), options=options, random_state=0)
        for options in ({}, {"input_noise": noise})
    ]
    fits = [model.partial_fit(X[:300], Y[:300], classes=range(10)) for model in models]
    one, other = (fit.network_.operators[0].weight for fit in fits)
    assert torch.equal(one, other) == (noise == 0)


def inputs_of(network):
    return quantise(network).stages[0].main.n_inputs


def test_constants_stay_constant_in_more_data():
    model = ZeroOneClassifier((20,), epochs=1, warm_start=True).fit(PADDED, Y)
    assert inputs_of(model.network_) == 61
    model.fit(PADDED[:900], Y[:900])
    assert inputs_of(model.network_) == 61
    model.partial_fit(PADDED[900:], Y[900:])
    assert inputs_of(model.network_) == 61
    assert np.count_nonzero(model.feature_importances_) == 61
    other = PADDED.copy()
    other[:, 0] = 3.0  # as constant as before, at another value
    model.partial_fit(other, Y)
    assert inputs_of(model.network_) == 62
    assert model.feature_importances_[0] > 0


def test_a_budget_is_met_again():
    options = {"flash": "4k"}
    model = ZeroOneClassifier((60,), epochs=2, options=options, warm_start=True).fit(PADDED, Y)
    units = model.n_active_
    assert model.fit(PADDED, Y).n_active_ == units


def test_integers_know_the_range_of_all_pieces():
    model = ZeroOneClassifier((40,)).partial_fit(0.2 * X, Y, classes=range(10))
    for _ in range(5):
        model.partial_fit(X, Y)
    assert (quantise(model.network_).predict(X) == model.predict(X)).mean() > 0.97


def test_pieces_after_fit_keep_their_optimizer():
    model = ZeroOneClassifier(epochs=1).fit(X, Y)
    model.partial_fit(X[:10], Y[:10])
    learner = model._learner
    model.partial_fit(X[:100], Y[:100])
    assert model._learner is learner


def test_targets_that_rounding_would_blur_are_refused():
    numbers = X[:, 20] / 16
    for offset in (0, 1e3):
        assert ZeroOneRegressor((8,), epochs=1).fit(X, numbers + offset).n_iter_ == 1
    with pytest.raises(ValueError, match=r"y varies by .* around 1e\+08, too little for torch.fl"):
        ZeroOneRegressor((8,), epochs=1).fit(X, numbers + 1e8)
    precise = ZeroOneRegressor((8,), epochs=1, dtype="float64").fit(X, numbers + 1e8)
    assert abs(precise.predict(X) - 1e8).max() < 10


def test_classes_are_weighted_one_per_sample():
    several = np.stack([Y > 4, Y % 2], axis=1).astype(int)
    with pytest.raises(ValueError, match="class_weight='balanced' is for one class"):
        ZeroOneClassifier((8,), epochs=1, class_weight="balanced").fit(X, several)


def model_and_bcd():
    model = nn.Sequential(nn.Linear(4, 6), Step(), nn.Linear(6, 2))
    return model, BCD(model, 10)


def test_changed_settings_are_checked_and_hold_at_once():
    model, bcd = model_and_bcd()
    bcd.window = np.float32(0.5)
    assert type(bcd.window) is float
    assert float(model[1].window) == 0.5
    bcd.param_groups[0]["move"] = np.float32(0.25)
    assert type(bcd.param_groups[0]["move"]) is float
    with pytest.raises(InputError, match="window must be"):
        bcd.window = 0
    with pytest.raises(InputError, match="move must be"):
        bcd.param_groups[0]["move"] = -0.05
    with pytest.raises(InputError, match="a group has no setting 'mov'"):
        bcd.param_groups[0]["mov"] = 0.05


def test_bcd_takes_the_model():
    model, _ = model_and_bcd()
    for wrong in (model.parameters(), Network.build((4,), [6], 2, "softmax")):
        with pytest.raises(InputError, match="BCD takes the model itself"):
            BCD(wrong, 10)


def test_a_module_and_back_keeps_constants():
    network = ZeroOneClassifier((20,), epochs=1).fit(PADDED, Y).network_
    assert inputs_of(from_torch(to_torch(network))) == 61
    assert inputs_of(from_torch(to_torch(network, trainable=True))) == 144


def test_labels_of_data_sets_may_be_vectors():
    shares = torch.nn.functional.one_hot(torch.tensor(Y[:64])).float()
    data = TensorDataset(torch.tensor(X[:64]).float(), shares)
    settings = TrainSettings.from_options(hidden=(8,), epochs=1)
    assert train(data, None, settings).network.n_classes == 10


@pytest.mark.parametrize("size", [1, None, 64])
def test_sizes_of_loaders_that_do_not_fit_are_not_taken(size):
    data = TensorDataset(torch.tensor(X[:64]).float(), torch.tensor(Y[:64]))
    settings = TrainSettings.from_options(hidden=(8,), epochs=1, validation=0.2)
    run = train(DataLoader(data, size), None, settings)
    assert run.record["plan"]["batches"] == 1


def test_a_first_piece_may_have_a_large_loss(monkeypatch):
    monkeypatch.setattr("zeroone.training.epochs.FAILED", 0.01)
    assert ZeroOneClassifier((8,)).partial_fit(X, Y, classes=range(10)).n_iter_ == 1


class Wider(Callback):
    def on_iteration(self, entry, model):
        self.optimizer.window = np.float32(0.5)


def test_a_changed_window_survives_patience():
    settings = TrainSettings.from_options(hidden=(8,), epochs=3, validation=0.2, patience=2)
    assert train(X, Y, settings, callbacks=[Wider()]).n_iter >= 2
