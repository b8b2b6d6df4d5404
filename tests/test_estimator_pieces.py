"""The classifier learns in pieces and continues: ``partial_fit``, ``warm_start``."""

import math
import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

from zeroone import ZeroOneClassifier
from zeroone.data.load import load_data
from zeroone.optim import BCD
from zeroone.optim.preconditioner import LowRank


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


@pytest.fixture(scope="module")
def tumours():
    return load_data("breast-cancer")


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
        with pytest.raises(ValueError, match="continues with hidden"):
            clone_of(short).set_params(hidden=other, image_shape=(8, 8)).fit(digits.X, digits.y)
    with pytest.raises(ValueError, match="has dtype='float32', not 'float64'"):
        clone_of(short).set_params(options={"dtype": "float64"}).fit(digits.X, digits.y)
    exact = ZeroOneClassifier((20,), solver="exact", max_iter=2, warm_start=True)
    losses = [exact.fit(digits.X, digits.y).loss_curve_[-1] for _ in range(2)]
    assert losses[1] < losses[0]


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
    with pytest.raises(ValueError, match=r"warm_start continues with hidden=\(9,\)"):
        clf.set_params(hidden=(12,)).fit(X, y)


def test_pieces_after_a_failure_and_other_settings(monkeypatch):
    X, y = load_digits(return_X_y=True)
    clf = ZeroOneClassifier((20,)).partial_fit(X[:500], y[:500], classes=range(10))
    good = clf.network_
    with monkeypatch.context() as broken:
        never = SimpleNamespace(**vars(math) | {"isfinite": lambda _: False})
        broken.setattr("zeroone.training.epochs.math", never)
        with pytest.raises(ValueError, match="diverged"):
            clf.partial_fit(X[500:900], y[500:900])
    assert clf.network_ is good
    clf.partial_fit(X[500:900], y[500:900])
    clf.set_params(weights="ternary").partial_fit(X[900:], y[900:])
    assert all(len(row.abs().unique()) <= 2 for row in clf.network_.operators[0].linear)


def test_a_later_piece_that_spoils_the_network_is_refused(monkeypatch):
    def spoil(bcd):
        step(bcd)
        bcd.param_groups[0]["params"][-1].data.fill_(math.nan)

    X, y = load_digits(return_X_y=True)
    clf = ZeroOneClassifier((20,)).partial_fit(X[:200], y[:200], classes=range(10))
    good, step = clf.network_, BCD.step
    monkeypatch.setattr(BCD, "step", spoil)
    with pytest.raises(ValueError, match="no longer finite after epoch 2"):
        clf.partial_fit(X[200:400], y[200:400])
    assert clf.network_ is good


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


def test_pieces_keep_their_learner_with_a_random_state():
    X, y = load_digits(return_X_y=True)
    clf = ZeroOneClassifier((9,), random_state=np.random.RandomState(0))
    learners = {id(clf.partial_fit(X[k::3], y[k::3], range(10))._learner) for k in range(3)}
    assert len(learners) == 1
