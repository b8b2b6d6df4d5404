"""``ZeroOneRegressor`` among scikit-learn's own tools, and its network on its own."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from zeroone import Callback, TrainSettings, ZeroOneRegressor, from_torch, load, to_torch, train
from zeroone.baselines.settings import BaselineSettings
from zeroone.training.baselines import train_baseline


@pytest.fixture(scope="module")
def friedman():
    return make_friedman1(600, random_state=0)


@pytest.mark.filterwarnings("ignore")  # those that its checks provoke
def test_all_checks_of_scikit_learn():
    results = check_estimator(ZeroOneRegressor((16,), epochs=60), on_skip=None)
    left = {r["check_name"] for r in results if r["status"] != "passed"}
    assert left <= {"check_array_api_input"}
    names = {result["check_name"] for result in results}
    assert "check_sample_weight_equivalence_on_sparse_data" in names
    assert "check_regressor_multioutput" in names


def test_it_learns_and_predicts_in_the_units_of_y(friedman, tmp_path):
    X, y = friedman
    model = ZeroOneRegressor((128, 128), random_state=1).fit(X[:500], y[:500])
    assert model.score(X[500:], y[500:]) > 0.85
    again = load(model.network_.save(tmp_path / "m.safetensors"))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.predict(X).shape == (600,)
    module = from_torch(to_torch(again))
    assert np.allclose(module.predict(X), model.predict(X), atol=1e-4)
    assert model.record_["result"]["train_r2"] == pytest.approx(model.score(X[:500], y[:500]))
    moved = clone(model).fit(X[:500], 1000 * y[:500] - 5e4)
    assert np.allclose(moved.predict(X), 1000 * model.predict(X) - 5e4, atol=1)
    copied = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copied.predict(X), model.predict(X))


def test_targets_of_different_units_count_alike(friedman):
    X, y = friedman
    Y = np.column_stack([y, 1e6 * X[:, 9], -1e-3 * y])
    model = ZeroOneRegressor((128,), epochs=30).fit(X, Y)
    assert model.predict(X).shape == (600, 3)
    each = 1 - ((model.predict(X) - Y) ** 2).mean(axis=0) / Y.var(axis=0)
    assert (each > 0.85).all()
    assert np.array_equal(model.network_.predict(X), model.predict(X))
    assert model.network_.classes == [0, 1, 2]


def test_a_column_is_a_vector(friedman):
    X, y = friedman[0][:80], friedman[1][:80]
    plain = ZeroOneRegressor((8,), epochs=2).fit(X, y)
    with pytest.warns(DataConversionWarning):
        column = ZeroOneRegressor((8,), epochs=2).fit(X, y[:, None])
    assert np.array_equal(column.predict(X), plain.predict(X))


def test_a_weight_counts_as_so_many_samples():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 6)), rng.normal(size=40)
    times = rng.integers(0, 4, 40)
    base = ZeroOneRegressor((24, 12), epochs=100)
    weighted = clone(base).fit(X, y, sample_weight=2.5 * times)
    repeated = clone(base).fit(X.repeat(times, axis=0), y.repeat(times))
    Z = rng.normal(size=(100, 6))
    np.testing.assert_allclose(weighted.predict(Z), repeated.predict(Z), rtol=1e-7, atol=1e-9)


def test_sparse_inputs_pipelines_frames_and_searches(friedman):
    X, y = friedman
    holes = np.where(X > 0.7, X, 0.0)
    dense = ZeroOneRegressor((16,), epochs=4, scaling="common").fit(holes, y)
    sparse = ZeroOneRegressor((16,), epochs=4).fit(csr_matrix(holes), y)
    assert np.allclose(sparse.predict(csr_matrix(holes)), dense.predict(holes), atol=1e-3)
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(10)])
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), sparse)
    grid = {"zerooneregressor__move": [None, 0.01], "zerooneregressor__keep": [None, 0.5]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(frame, pd.Series(y))
    assert search.best_score_ > 0.3
    assert search.best_estimator_[-1].network_.feature_names == list(frame.columns)


def test_units_and_inputs_leave(friedman):
    X, y = friedman  # five of the ten inputs have no effect
    half = ZeroOneRegressor((40, 40), keep=0.5, epochs=20).fit(X, y)
    assert sum(half.n_active_) == 40
    assert half.score(X, y) > 0.7
    priced = ZeroOneRegressor((40,), lam=1.0, epochs=25).fit(X, y)
    empty = ~(priced.network_.operators[0].linear != 0).any(dim=0).numpy()
    assert empty.any()
    assert np.array_equal(priced.feature_importances_ == 0, empty)


def test_it_trains_further(friedman):
    X, y = friedman
    model = ZeroOneRegressor((64,), epochs=2, warm_start=True).fit(X, y)
    losses = [model.loss_curve_[0], *(model.fit(X, y).loss_curve_[0] for _ in range(2))]
    assert losses[2] < losses[1] < losses[0] / 2  # it begins where it ended, in the units of y


def test_learning_in_pieces(friedman):
    X, y = friedman
    model = ZeroOneRegressor((64,))
    for _ in range(8):
        for k in range(3):
            model.partial_fit(X[k::3], 100 + 5 * y[k::3])
    assert model.score(X, 100 + 5 * y) > 0.75
    assert model.n_iter_ == 24
    again = pickle.loads(pickle.dumps(model)).partial_fit(X, 100 + 5 * y)
    assert np.array_equal(model.partial_fit(X, 100 + 5 * y).predict(X), again.predict(X))
    model.fit(X, y).partial_fit(X, y)
    assert model.score(X, y) > 0.75
    with pytest.raises(ValueError, match="y has 2 columns, the network has 1 outputs"):
        model.partial_fit(X, np.column_stack([y, y]))


def test_early_stopping_by_variance():
    X, y = load_diabetes(return_X_y=True)
    model = ZeroOneRegressor((64,), validation=0.3, patience=4, epochs=60).fit(X, y)
    history = model.record_["history"]
    errors = [entry["validation_error"] for entry in history[1:]]
    assert model.record_["best_iteration"] == 1 + int(np.argmin(errors))
    assert model.record_["result"]["validation_error"] == min(errors)
    r2 = model.record_["result"]["validation_r2"]
    assert r2 == pytest.approx(1 - min(errors))
    noise = np.random.default_rng(0).normal(size=len(y))  # errors beyond 1 are allowed
    wild = ZeroOneRegressor((64,), validation=0.3, patience=2, epochs=9).fit(X, noise)
    assert max(entry["validation_error"] for entry in wild.record_["history"]) > 1


def test_the_exact_solver_and_networks_without_a_bias(friedman):
    X, y = friedman
    exact = ZeroOneRegressor((20,), solver="exact", max_iter=5).fit(X, y)
    assert exact.loss_curve_ == sorted(exact.loss_curve_, reverse=True)
    assert exact.predict(X).mean() == pytest.approx(y.mean(), rel=0.2)
    no_bias = ZeroOneRegressor((64,), epochs=20, options={"bias": False}).fit(X, y)
    assert no_bias.network_.operators[-1].offset is None
    assert no_bias.score(X, y) > 0.6


def test_a_run_resumes_bit_for_bit(friedman, tmp_path, monkeypatch):
    X, y = friedman
    settings = TrainSettings.from_options(hidden=(12,), head="linear", epochs=4)
    whole = train(X, y, settings)

    class Interrupt(Callback):
        def on_iteration(self, entry, model):
            if entry["iteration"] == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)
    with pytest.raises(KeyboardInterrupt):
        train(X, y, settings, out=tmp_path, callbacks=[Interrupt()])
    resumed = train(X, y, settings, out=tmp_path, resume=True)
    assert torch.equal(resumed.network.scores(X), whole.network.scores(X))


def test_on_the_command_line(command, tmp_path):
    X, y = load_diabetes(return_X_y=True)
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(10)]).assign(y=y + 0.5)
    frame.to_csv(tmp_path / "d.csv", index=False)
    data = ("--data", "d.csv", "--label", "y")
    words = ("--head", "linear", "--hidden", 20, "--epochs", 2, "--out", "run")
    assert command("train", *data, *words)[0] == 0
    code, out, _ = command("evaluate", "run", *data)
    network = load(tmp_path / "run/model.safetensors")
    residual = network.predict(X) - (y + 0.5)
    assert code == 0
    assert f"data R^2 {1 - (residual**2).mean() / y.var():.4f} on 442 samples" in out
    code, out, _ = command("predict", "run", *data, "--json", "a.json")
    assert code == 0
    assert np.allclose([float(line) for line in out.split()], network.predict(X), atol=1e-2)
    assert "probabilities" not in (tmp_path / "a.json").read_text()
    assert command("report", "run", *data, "--out", "r.html")[0] == 0
    assert "does not choose one class" in (tmp_path / "r.html").read_text()
    code, out, _ = command("compress", "run", *data, "--to", "float", "--out", "s.safetensors")
    assert code == 0
    code, _, error = command("export", "run", "--to", "c", "--out", "s.c")
    assert code == 2
    assert "only networks that choose one class have an integer form" in error


def test_what_it_refuses(friedman):
    X, y = friedman
    with pytest.raises(NotFittedError):
        ZeroOneRegressor().predict(X)
    with pytest.raises(ValueError, match="could not convert string to float"):
        ZeroOneRegressor().fit(X, np.full(600, "a"))
    assert not hasattr(ZeroOneRegressor(), "predict_proba")
    with pytest.raises(ValueError, match="baselines choose one class per sample"):
        train_baseline(X, y, BaselineSettings("relu"), TrainSettings(head="linear"))
