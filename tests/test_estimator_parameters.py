"""Parameters of the estimators that are settings of the solver, and what they share."""

import warnings

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from zeroone import Network, ZeroOneClassifier, ZeroOneRegressor

X, Y = (array[:400] for array in load_digits(return_X_y=True))
GIVEN = {
    "move": 0.05,
    "window": 0.7,
    "damping": 0.2,
    "input_dropout": 0.1,
    "u_rule": "drawn",
    "scaling": "feature",
    "dtype": "float64",
}


def test_a_parameter_does_what_the_option_does():
    base = {"hidden": (9,), "epochs": 2}
    own = GIVEN | {"smoothing": 0.3}
    by_name = ZeroOneClassifier(**base, **own).fit(X, Y)
    by_option = ZeroOneClassifier(**base, options=own).fit(X, Y)
    assert by_name.record_["settings"] == by_option.record_["settings"]
    assert np.array_equal(by_name.predict_proba(X), by_option.predict_proba(X))
    used = by_name.record_["settings"]
    assert {k: (used | used["stochastic"])[k] for k in own} == own
    copied = clone(by_name)
    assert copied.get_params() == by_name.get_params()
    for name, value in own.items():
        assert getattr(ZeroOneClassifier().set_params(**{name: value}), name) == value
        with pytest.raises(ValueError, match=f"options repeats {name}"):
            ZeroOneClassifier(**{name: value}, options={name: value}).fit(X, Y)


def test_none_is_the_solver_s_own():
    none = dict.fromkeys([*GIVEN, "smoothing", "threads"])
    plain = ZeroOneClassifier((9,), epochs=2).fit(X, Y)
    assert np.array_equal(
        ZeroOneClassifier((9,), epochs=2, **none).fit(X, Y).predict_proba(X), plain.predict_proba(X)
    )
    with pytest.raises(ValueError, match="move is a setting of solver='stochastic'"):
        ZeroOneClassifier((9,), solver="exact", move=0.1).fit(X, Y)


def test_the_regressor_s_defaults_give_way():
    small = {"hidden": (9,), "epochs": 1}
    used = ZeroOneRegressor(**small).fit(X, Y).record_["settings"]["stochastic"]
    assert (used["move"], used["damping"], used["head_step"]) == (0.16, 0.3, 0.1)
    assert used["batch"] == 64
    own = GIVEN | {"batch": 100}
    model = ZeroOneRegressor(**small, **own, options={"head_step": 0.2}).fit(X, Y)
    used = model.record_["settings"]
    assert {k: (used | used["stochastic"])[k] for k in own} == own
    assert used["stochastic"]["head_step"] == 0.2
    few = ZeroOneRegressor(**small).fit(X[:200], Y[:200])
    assert few.record_["plan"]["batches"] == 1


def test_searches_over_settings_in_a_pipeline():
    pipeline = make_pipeline(MaxAbsScaler(), ZeroOneClassifier((9,), epochs=2))
    grid = {"zerooneclassifier__move": [0.01, 0.1], "zerooneclassifier__scaling": ["feature"]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(csr_matrix(X), Y)
    assert search.best_params_["zerooneclassifier__move"] == 0.1


def test_a_batch_larger_than_the_data_is_all_of_it():
    whole = ZeroOneClassifier((9,), epochs=3, batch=400).fit(X, Y)
    with pytest.warns(UserWarning, match="batch=1000 is more than the 400 training samples"):
        clipped = ZeroOneClassifier((9,), epochs=3, batch=1000).fit(X, Y)
    assert np.array_equal(clipped.predict_proba(X), whole.predict_proba(X))
    weight = np.arange(400) < 100
    with pytest.warns(UserWarning, match="than the 80 training samples"):
        held = ZeroOneClassifier((9,), epochs=1, batch=90, validation=0.2).fit(X, Y, weight)
    assert held.record_["plan"]["batches"] == 1
    with pytest.warns(UserWarning, match="than the 4 training samples"):
        ZeroOneRegressor((3,), epochs=1, batch=8).fit(X[:4], Y[:4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ZeroOneClassifier((9,), batch=300).partial_fit(X[:100], Y[:100], classes=range(10))


def test_threads_are_given_back(monkeypatch):
    used = []
    scores = Network.scores

    def watched(self, X):
        used.append(torch.get_num_threads())
        return scores(self, X)

    monkeypatch.setattr(Network, "scores", watched)
    before = torch.get_num_threads()
    model = ZeroOneClassifier((9,), epochs=1, threads=before + 1).fit(X, Y)
    assert model.record_["machine"]["threads"] == before + 1
    model.predict(X)
    model.partial_fit(X, Y)
    assert used == [before + 1]
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="one class only"):
        model.fit(X, np.zeros(len(X)))
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="threads must be a whole number"):
        ZeroOneClassifier(threads=0).fit(X, Y)


def test_importances_are_norms_of_columns():
    model = ZeroOneClassifier((9,), epochs=2).fit(X, Y)
    shares = model.feature_importances_
    norms = np.linalg.norm(model.network_.operators[0].linear.numpy().astype(float), axis=0)
    constant = np.ptp(X, axis=0) == 0
    norms[constant] = 0
    assert constant.any()
    assert shares == pytest.approx(norms / norms.sum())
    assert shares.sum() == pytest.approx(1)
    assert not shares[constant].any()
    assert (shares[~constant] > 0).all()
    sparse = ZeroOneClassifier((9,), epochs=2).fit(csr_matrix(X), Y)
    assert np.array_equal(sparse.feature_importances_ == 0, constant)


def test_importances_follow_what_matters():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(1000, 6))
    model = ZeroOneClassifier((32,), epochs=40).fit(Z, (Z[:, 1] + Z[:, 4] > 0).astype(int))
    shares = model.feature_importances_
    assert set(np.argsort(shares)[-2:]) == {1, 4}
    priced = ZeroOneClassifier((32,), lam=0.5, epochs=60).fit(Z, (Z[:, 1] > 0).astype(int))
    empty = (priced.network_.operators[0].linear == 0).all(dim=0).numpy()
    assert np.array_equal(priced.feature_importances_ == 0, empty)
    assert not empty[1]
    assert empty.any()


def test_importances_after_pieces_and_of_convolutions():
    Z = np.random.default_rng(0).normal(size=(90, 3))
    Z[:, 1], Z[:, 2] = 4.0, 7.0
    pieces = ZeroOneClassifier((5,)).partial_fit(Z, Z[:, 0] > 0, classes=[False, True])
    assert pieces.feature_importances_.tolist() == [1, 0, 0]
    Z[:, 2] = 8.0  # constant in each piece, but not in all of them
    pieces.partial_fit(Z, Z[:, 0] > 0)
    assert (pieces.feature_importances_ > 0).tolist() == [True, False, True]
    images = ZeroOneClassifier(("conv3x3:3",), image_shape=(8, 8), epochs=1).fit(X, Y)
    assert not hasattr(images, "feature_importances_")


def test_logarithms_of_probabilities():
    model = ZeroOneClassifier((9,), epochs=2).fit(X, Y)
    assert np.array_equal(model.predict_log_proba(X), np.log(model.predict_proba(X)))
    hard = ZeroOneClassifier((9,), epochs=2, head="hardmax").fit(X, Y)
    assert np.isneginf(hard.predict_log_proba(X)).any()
