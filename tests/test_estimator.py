"""``ZeroOneClassifier`` among scikit-learn's own tools."""

import pickle
import subprocess
import sys
from types import SimpleNamespace

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
from zeroone.data.embedded import load_embedded
from zeroone.optim.preconditioner import LowRank


@pytest.fixture(scope="module")
def digits():
    return load_embedded("digits")


@pytest.fixture(scope="module")
def tumours():
    return load_embedded("breast-cancer")


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


def test_learning_in_pieces(digits):
    classifier = ZeroOneClassifier((150,), random_state=1)
    with pytest.raises(ValueError, match="first call of partial_fit needs classes"):
        classifier.partial_fit(digits.X, digits.y)
    scores = []
    for start in range(0, 1400, 200):
        piece = slice(start, start + 200)
        classifier.partial_fit(digits.X[piece], digits.y[piece], classes=range(10))
        scores.append(classifier.score(digits.X_test, digits.y_test))
    for _ in range(5):
        classifier.partial_fit(digits.X, digits.y)
    assert scores[-1] > scores[0]
    assert classifier.score(digits.X_test, digits.y_test) > 0.93
    assert len(classifier.loss_curve_) == classifier.n_iter_ == 12
    again = pickle.loads(pickle.dumps(classifier)).partial_fit(digits.X, digits.y)
    classifier.partial_fit(digits.X, digits.y)
    assert np.array_equal(again.predict(digits.X_test), classifier.predict(digits.X_test))
    with pytest.raises(ValueError, match="not among the classes"):
        classifier.partial_fit(digits.X[:3], [1, 2, 77])
    with pytest.raises(ValueError, match="classes are not those"):
        classifier.partial_fit(digits.X, digits.y, classes=range(9))
    with pytest.raises(ValueError, match="need to know when the training ends"):
        ZeroOneClassifier((9,), keep=0.5).partial_fit(digits.X, digits.y, classes=range(10))


def test_weights_of_pieces(tumours):
    X, y = tumours.X, tumours.y
    rows = np.arange(0, 200)

    def learn(times, **options):
        classifier = ZeroOneClassifier((10,), **options)
        for piece in (rows[y[rows] == 0], rows[y[rows] == 1]):
            weights = None if times is None else np.full(len(piece), float(times))
            classifier.partial_fit(X[piece], y[piece], classes=[0, 1], sample_weight=weights)
        return classifier

    plain = learn(None)
    assert np.allclose(learn(9).decision_function(X), plain.decision_function(X))  # all alike
    assert np.allclose(learn(1).decision_function(X), plain.decision_function(X))
    heavy = learn(None, class_weight={0: 50, 1: 1})
    assert not np.allclose(heavy.decision_function(X), plain.decision_function(X))
    with pytest.raises(ValueError, match="does not tell how frequent classes are"):
        learn(None, class_weight="balanced")


def test_what_was_removed_stays_removed(tumours):
    X, y = tumours.X, tumours.y
    half = ZeroOneClassifier((40,), epochs=20, keep=0.5, warm_start=True)
    assert [half.fit(X, y).n_active_ for _ in range(3)] == [[20]] * 3
    assert half.partial_fit(X, y).n_active_ == [20]
    again = pickle.loads(pickle.dumps(half))
    assert again.fit(X, y).n_active_ == [20]
    priced = ZeroOneClassifier((40,), epochs=60, lam=0.5, warm_start=True).fit(X, y)

    def inputs_left():
        return int((priced.network_.operators[0].linear != 0).any(dim=0).sum())

    left = inputs_left()
    assert left < 30
    priced.partial_fit(X, y)
    assert inputs_left() == left
    priced.set_params(lam=None).fit(X, y)
    assert inputs_left() == left


def test_the_network_that_was_handed_out_is_nobody_else_s(tumours):
    classifier = ZeroOneClassifier((10,))
    with pytest.raises(ValueError, match="NaN"):
        classifier.partial_fit(np.full((4, 2), np.nan), [0, 1, 0, 1], classes=[0, 1])
    with pytest.raises(NotFittedError):
        classifier.predict(np.zeros((1, 2)))
    classifier.partial_fit(tumours.X, tumours.y, classes=[0, 1])
    network = classifier.network_
    before = network.operators[0].weight.clone()
    classifier.partial_fit(tumours.X, tumours.y)
    assert torch.equal(network.operators[0].weight, before)


def test_partial_fit_goes_on_from_fit(digits):
    classifier = ZeroOneClassifier((60,), epochs=5).fit(digits.X, digits.y)
    before = classifier.network_
    bits = before.operators[0].weight.clone()
    score = classifier.score(digits.X_test, digits.y_test)
    classifier.partial_fit(digits.X, digits.y)
    assert classifier.score(digits.X_test, digits.y_test) > score - 0.05
    assert torch.equal(before.operators[0].weight, bits)  # that of fit is its own


def clone_of(fitted):
    """A copy that is fitted, too."""
    return pickle.loads(pickle.dumps(fitted))


def test_a_warm_start_goes_on(digits):
    short = ZeroOneClassifier((60,), epochs=3, warm_start=True)
    first = short.fit(digits.X, digits.y).score(digits.X_test, digits.y_test)
    second = short.fit(digits.X, digits.y).score(digits.X_test, digits.y_test)
    cold = ZeroOneClassifier((60,), epochs=3).fit(digits.X, digits.y)
    assert first == cold.score(digits.X_test, digits.y_test)
    assert second > first
    with pytest.raises(ValueError, match="other inputs or classes"):
        short.fit(digits.X, digits.y % 2)
    for other in ((60, 60), (40,), ("conv3x3:8",)):
        with pytest.raises(ValueError, match=r"other layers or another head|goes on with hidden"):
            clone_of(short).set_params(hidden=other, image_shape=(8, 8)).fit(digits.X, digits.y)
    with pytest.raises(ValueError, match=r"is of torch\.float32, not float64"):
        clone_of(short).set_params(options={"dtype": "float64"}).fit(digits.X, digits.y)
    exact = ZeroOneClassifier((20,), solver="exact", max_iter=2, warm_start=True)
    losses = [exact.fit(digits.X, digits.y).loss_curve_[-1] for _ in range(2)]
    assert losses[1] < losses[0]


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


def test_wild_weights_do_not_hang():
    X, y = load_digits(return_X_y=True)
    distance = np.square(X - X[0]).sum(axis=1)
    for weights in (np.exp(-distance / 8), np.full(len(y), 1e308)):
        clf = ZeroOneClassifier((12,), epochs=1, batch=32, options={"dtype": "float32"})
        assert clf.fit(X, y, weights).predict(X).shape == y.shape
    broken = LowRank.observe(torch.full((1, 5, 3), torch.nan), None, 0, centre=True)
    assert bool(broken.basis.isnan().all())


def test_warm_start_across_sizes():
    X, y = load_digits(return_X_y=True)
    clf = ZeroOneClassifier((9,), epochs=1, warm_start=True).fit(np.tile(X, (2, 1)), np.tile(y, 2))
    assert clf.fit(X, y).network_.dtype == torch.float32  # small data alone would take float64
    with pytest.raises(ValueError, match=r"warm_start goes on with hidden=\(9,\)"):
        clf.set_params(hidden=(12,)).fit(X, y)


def test_pieces_after_a_failure_and_other_settings(monkeypatch):
    X, y = load_digits(return_X_y=True)
    clf = ZeroOneClassifier((20,)).partial_fit(X[:500], y[:500], classes=range(10))
    good = clf.network_
    with monkeypatch.context() as broken:
        never = SimpleNamespace(isfinite=lambda _: False)
        broken.setattr("zeroone.training.online.math", never)
        with pytest.raises(ValueError, match="diverged"):
            clf.partial_fit(X[500:900], y[500:900])
    assert clf.network_ is good
    clf.partial_fit(X[500:900], y[500:900])
    clf.set_params(weights="ternary").partial_fit(X[900:], y[900:])
    assert all(len(row.abs().unique()) <= 2 for row in clf.network_.operators[0].linear)


def test_the_scale_of_weights_does_not_matter_to_pieces():
    X, y = load_digits(return_X_y=True)
    scores = []
    for scale in (1.0, 1000.0):
        clf = ZeroOneClassifier((30,))
        for k in range(6):
            rows = slice(300 * k, 300 * (k + 1))
            clf.partial_fit(X[rows], y[rows], range(10), np.full(len(y[rows]), scale))
        scores.append(clf.score(X, y))
    assert scores[0] == pytest.approx(scores[1], abs=0.02)
    assert scores[0] > 0.7
    clf.partial_fit(X[:5], y[:5], sample_weight=np.zeros(5))  # nothing to learn, nothing breaks


def test_frames_by_name_after_pieces():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=list("abc"))
    y = (frame["a"] > 0).astype(int)
    clf = ZeroOneClassifier((5,)).partial_fit(frame, y, classes=[0, 1])
    assert clf.network_.feature_names == ["a", "b", "c"]
    turned = clf.network_.predict(frame[["c", "a", "b"]])
    assert np.array_equal(turned, clf.network_.predict(frame))
    with pytest.raises(ValueError, match="X lacks 1 of the network's columns: 'b'"):
        clf.network_.predict(frame[["a", "c"]])


def test_images_as_lists():
    X = np.random.default_rng(0).normal(size=(20, 4, 4)).tolist()
    clf = ZeroOneClassifier(("conv3x3:3",), image_shape=(4, 4), epochs=1).fit(X, [0, 1] * 10)
    assert clf.predict(X).shape == (20,)


def test_pieces_keep_their_learner_with_a_random_state():
    X, y = load_digits(return_X_y=True)
    clf = ZeroOneClassifier((9,), random_state=np.random.RandomState(0))
    learners = {id(clf.partial_fit(X[k::3], y[k::3], range(10))._learner) for k in range(3)}
    assert len(learners) == 1
