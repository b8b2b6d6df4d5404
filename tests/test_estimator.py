"""``ZeroOneClassifier`` among scikit-learn's own tools."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from zeroone import Callback, ZeroOneClassifier, load
from zeroone.data.load import load_data


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


@pytest.fixture(scope="module")
def tumours():
    return load_data("breast-cancer")


@pytest.mark.filterwarnings("ignore")  # those that its checks provoke
def test_all_checks_of_scikit_learn():
    results = check_estimator(ZeroOneClassifier((16,), epochs=60), on_skip=None)
    left = {r["check_name"]: str(r["exception"]) for r in results if r["status"] != "passed"}
    # Of arrays from other libraries, scikit-learn checks none unless an environment variable says.
    assert set(left) <= {"check_array_api_input"}
    names = {result["check_name"] for result in results}
    assert "check_sample_weight_equivalence_on_dense_data" in names
    assert "check_class_weight_classifiers" in names
    assert len(results) > 55


def test_fit_predict_score_clone_pickle(digits):
    classifier = ZeroOneClassifier(hidden=(150,), epochs=30).fit(digits.X, digits.y)
    assert classifier.score(digits.X_test, digits.y_test) > 0.95
    assert classifier.predict_proba(digits.X_test).sum(axis=1) == pytest.approx(1.0)
    assert len(classifier.loss_curve_) == classifier.n_iter_ == 30
    assert classifier.n_active_ == [150]
    again = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(again.predict(digits.X_test), classifier.predict(digits.X_test))
    fresh = clone(classifier).fit(digits.X, digits.y)
    assert np.array_equal(fresh.predict(digits.X_test), classifier.predict(digits.X_test))


def test_two_classes_and_cross_validation(tumours):
    X, y = tumours.X, tumours.y  # thirty features in units of their own: the scaling sees that
    classifier = ZeroOneClassifier(hidden=(60,), epochs=30)
    assert cross_val_score(classifier, X, y, cv=3).mean() > 0.94
    classifier.fit(X, np.where(y == 1, "benign", "malignant"))
    decision = classifier.decision_function(X)
    assert decision.shape == (len(X),)
    assert set(classifier.predict(X)) == {"benign", "malignant"}
    assert np.array_equal(decision > 0, classifier.predict(X) == "malignant")


def test_pipelines_searches_and_calibration(tumours):
    X, y = tumours.X, tumours.y
    base = ZeroOneClassifier((20,), epochs=15)
    pipeline = make_pipeline(StandardScaler(), base)
    search = GridSearchCV(pipeline, {"zerooneclassifier__keep": [None, 0.5]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.9
    assert len(search.cv_results_["params"]) == 2
    calibrated = CalibratedClassifierCV(base, cv=2).fit(X, y)
    assert calibrated.score(X, y) > 0.9


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_and_string_labels(tumours, frame):
    names = [f"feature {k}" for k in range(5)]
    table = frame({name: tumours.X[:, k] for k, name in enumerate(names)})
    labels = np.where(tumours.y == 1, "benign", "malignant")
    series = pd.Series(labels) if frame is pd.DataFrame else pl.Series(labels)
    classifier = ZeroOneClassifier((20,), epochs=15).fit(table, series)
    assert list(classifier.feature_names_in_) == names
    assert classifier.score(table, labels) > 0.85
    plain = ZeroOneClassifier((20,), epochs=15).fit(tumours.X[:, :5], labels)
    assert np.array_equal(classifier.predict(table), plain.predict(tumours.X[:, :5]))


def test_tensors_are_arrays(tumours):
    X, y = torch.tensor(tumours.X), torch.tensor(tumours.y)
    given = ZeroOneClassifier((10,), epochs=3).fit(X, y)
    assert np.array_equal(
        given.predict(X), ZeroOneClassifier((10,), epochs=3).fit(tumours.X, tumours.y).predict(X)
    )


@pytest.mark.parametrize(
    "options", [{}, {"head": "hardmax"}, {"keep": 0.5}, {"options": {"damping": 2.0}}]
)
def test_a_weight_counts_as_so_many_samples(options):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 6)), rng.integers(0, 3, 40)
    times = rng.integers(0, 4, 40)
    order = rng.permutation(times.sum())
    base = ZeroOneClassifier((24, 12), epochs=150, **options)
    weighted = clone(base).fit(X, y, sample_weight=2.5 * times)
    repeated = clone(base).fit(X.repeat(times, axis=0)[order], y.repeat(times)[order])
    Z = rng.normal(size=(100, 6))
    np.testing.assert_allclose(
        weighted.decision_function(Z), repeated.decision_function(Z), rtol=1e-9, atol=1e-12
    )
    plain = clone(base).fit(X, y)
    assert not np.allclose(plain.decision_function(Z), repeated.decision_function(Z))


def test_class_weights(tumours):
    X, y = tumours.X[:, :2], tumours.y
    plain = ZeroOneClassifier((10,), epochs=10).fit(X, y)
    heavy = ZeroOneClassifier((10,), epochs=10, class_weight={0: 20, 1: 1}).fit(X, y)
    assert (heavy.predict(X) == 0).sum() > (plain.predict(X) == 0).sum()
    balanced = ZeroOneClassifier((10,), epochs=10, class_weight="balanced").fit(X, y)
    assert balanced.score(X, y) > 0.8


def test_images_through_convolutions(digits):
    layers = ("conv3x3:8:max2", 40)
    flat = ZeroOneClassifier(layers, image_shape=(8, 8), epochs=4).fit(digits.X, digits.y)
    assert flat.score(digits.X_test, digits.y_test) > 0.75
    images = digits.X.reshape(-1, 1, 8, 8)
    same = ZeroOneClassifier(layers, image_shape=(1, 8, 8), epochs=4).fit(images, digits.y)
    assert np.array_equal(
        same.predict(digits.X_test.reshape(-1, 8, 8)), flat.predict(digits.X_test)
    )
    with pytest.raises(ValueError, match="are no images of shape"):
        same.predict(images[:, :, :4])
    with pytest.raises(ValueError, match="channels, height, width"):
        same.predict(images.transpose(0, 2, 3, 1))
    with pytest.raises(ValueError, match="image_shape is"):
        ZeroOneClassifier(layers, image_shape=(64,)).fit(digits.X, digits.y)
    with pytest.raises(ValueError, match="no images of shape"):
        ZeroOneClassifier(layers, image_shape=(7, 7)).fit(digits.X, digits.y)


def test_callbacks(digits):
    seen = []

    class Watch(Callback):
        def on_iteration(self, entry, model):
            seen.append(entry["iteration"])
            return len(seen) == 2

    classifier = ZeroOneClassifier((10,), epochs=5, callbacks=[Watch()]).fit(digits.X, digits.y)
    assert seen == [1, 2]
    assert classifier.status_ == "stopped"


def test_presets_and_options():
    X, y = np.eye(6), np.array([0, 1, 2] * 2)

    def settings(**options):
        return ZeroOneClassifier(**options)._settings(X)

    paper = ZeroOneClassifier(hidden=(4,), preset="paper").fit(X, y)
    assert paper.record_["settings"]["exact"]["lam"] == 0.052
    assert paper.n_iter_ == 35
    assert settings(preset="paper").hidden == (2000, 2000)
    assert settings(preset="paper", lam=0.0).exact.lam == 0
    assert len(ZeroOneClassifier((4,), solver="exact", max_iter=3).fit(X, y).loss_curve_) == 3
    assert settings(random_state=np.int64(3)).seed == 3
    assert settings(hidden=np.array([3, 4])).hidden == (3, 4)
    assert settings(max_iter=7).stochastic.epochs == 7
    assert settings(max_iter=7, epochs=3).stochastic.epochs == 3
    assert settings().dtype == "float64"
    assert settings(options={"dtype": "float32"}).dtype == "float32"
    assert ZeroOneClassifier()._settings(np.zeros((1000, 1000))).dtype == "float32"
    with pytest.raises(ValueError, match="options repeats head"):
        ZeroOneClassifier(options={"head": "hardmax"}).fit(X, y)
    exact = {"solver": "exact", "max_iter": 1, "options": {"tau": 2.0}}
    other = ZeroOneClassifier(hidden=(4,), lam=0.5, **exact).fit(X, y)
    assert other.record_["settings"]["exact"]["lam"] == 0.5
    assert other.record_["settings"]["exact"]["tau"] == 2.0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"solver": "adam"}, "unknown solver 'adam'"),
        ({"hidden": (0,)}, "every hidden width"),
        ({"class_weight": "balanced", "solver": "exact"}, "weights of samples are for"),
    ],
)
def test_bad_arguments(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        ZeroOneClassifier(**options).fit(np.eye(4), [0, 1, 0, 1])


def test_bad_data(digits):
    with pytest.raises(ValueError, match="NaN"):
        ZeroOneClassifier().fit(np.full((4, 2), np.nan), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="one class only"):
        ZeroOneClassifier().fit(np.eye(4), [1, 1, 1, 1])
    with pytest.raises(ValueError, match="not negative"):
        ZeroOneClassifier((4,)).fit(np.eye(4), [0, 1, 0, 1], sample_weight=[1, 1, 1, -1])
    with pytest.raises(ValueError, match="all weights of samples are zero"):
        ZeroOneClassifier((4,)).fit(np.eye(4), [0, 1, 0, 1], sample_weight=[0, 0, 0, 0])
    wild = {"head_step": 1e30, "dtype": "float32"}
    with pytest.raises(ValueError, match="training diverged"):
        ZeroOneClassifier((4,), epochs=5, head="hardmax", options=wild).fit(digits.X, digits.y)


def test_importing_zeroone_stays_light():
    code = (
        "import sys, zeroone; zeroone.Network; zeroone.train;"
        "print([m for m in ('sklearn', 'matplotlib', 'onnx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_habits_of_scikit_learn():
    X, y = np.eye(6), np.array(["a", "b", "c"] * 2, dtype=object)
    with pytest.raises(NotFittedError):
        ZeroOneClassifier().predict(X)
    for random_state in (None, np.random.RandomState(3)):
        classifier = ZeroOneClassifier((4,), epochs=1, random_state=random_state)
        assert set(classifier.fit(X, y).predict(X)) <= {"a", "b", "c"}


def test_tensors_of_any_kind():
    X, y = load_digits(return_X_y=True)
    tensor = torch.tensor(X / 16, requires_grad=True)
    plain = ZeroOneClassifier((9,), epochs=2).fit(X / 16, y, np.ones(len(y)))
    same = ZeroOneClassifier((9,), epochs=2).fit(tensor, torch.tensor(y), torch.ones(len(y)))
    assert np.array_equal(plain.predict_proba(X / 16), same.predict_proba(tensor))
    halves = tensor.to(torch.bfloat16)  # which numpy does not know; sixteenths are exact in it
    assert np.array_equal(plain.predict(X / 16), plain.predict(halves))
    assert np.array_equal(plain.network_.predict(X / 16), plain.network_.predict(halves))


def test_early_stopping_and_batches_by_argument():
    X, y = load_digits(return_X_y=True)
    clf = ZeroOneClassifier((30,), epochs=60, batch=100, validation=0.2, patience=3).fit(X, y)
    assert clf.record_["plan"]["batches"] == 15
    assert clf.record_["data"]["samples"] == {"train": 1437, "validation": 360}
    assert clf.n_iter_ < 60
    assert clf.record_["best_iteration"] <= clf.n_iter_ - 3
    with pytest.raises(ValueError, match="options repeats batch"):
        ZeroOneClassifier(batch=5, options={"batch": 6}).fit(X, y)


def test_verbose_says_how_it_goes(capsys):
    X, y = load_digits(return_X_y=True)
    ZeroOneClassifier((9,), epochs=2).fit(X, y)
    assert capsys.readouterr().err == ""
    ZeroOneClassifier((9,), epochs=2, verbose=True).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["training: epoch 1/2", "training: epoch 2/2"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden": 5},
        {"hidden": "5"},
        {"hidden": (5.5,)},
        {"epochs": "3"},
        {"epochs": 2.5},
        {"lam": "1"},
        {"keep": "half"},
        {"batch": 0},
        {"batch": 2.0},
        {"validation": "0.1"},
        {"patience": 1.5, "validation": 0.1},
        {"head": 3},
        {"preset": 4},
        {"options": [1]},
        {"options": {"epoch": 3}},
        {"image_shape": 8},
        {"image_shape": "8,8"},
        {"callbacks": 3},
        {"random_state": "a"},
    ],
    ids=str,
)
def test_arguments_that_cannot_be(wrong):
    X, y = np.eye(8), np.arange(8) % 2
    with pytest.raises(ValueError, match=r"\w"):  # an InputError is one
        ZeroOneClassifier(**{"epochs": 1} | wrong).fit(X, y)


def test_the_network_keeps_the_names_of_columns(tmp_path):
    frame = pd.DataFrame({"age": [1.0, 2, 3, 4], "size": [4.0, 3, 2, 1]})
    clf = ZeroOneClassifier((3,), epochs=1).fit(frame, [0, 1, 0, 1])
    assert load(clf.network_.save(tmp_path / "m.safetensors")).feature_names == ["age", "size"]


def test_images_as_lists():
    X = np.random.default_rng(0).normal(size=(20, 4, 4)).tolist()
    clf = ZeroOneClassifier(("conv3x3:3",), image_shape=(4, 4), epochs=1).fit(X, [0, 1] * 10)
    assert clf.predict(X).shape == (20,)
