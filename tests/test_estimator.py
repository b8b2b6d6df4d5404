import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

from zeroone import ZeroOneClassifier
from zeroone.data.embedded import load_embedded


def test_fit_predict_score_clone_pickle():
    data = load_embedded("digits")
    classifier = ZeroOneClassifier(hidden=(150,), epochs=20).fit(data.X, data.y)
    assert classifier.score(data.X_test, data.y_test) > 0.95
    assert classifier.predict_proba(data.X_test).sum(axis=1) == pytest.approx(1.0)
    assert len(classifier.loss_curve_) == classifier.n_iter_ == 20
    assert classifier.n_active_ == [150]
    again = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(again.predict(data.X_test), classifier.predict(data.X_test))
    fresh = clone(classifier).fit(data.X, data.y)
    assert np.array_equal(fresh.predict(data.X_test), classifier.predict(data.X_test))


def test_two_classes_and_cross_validation():
    data = load_embedded("breast-cancer")
    X = data.X  # thirty features in units of their own: the scaling sees that
    classifier = ZeroOneClassifier(hidden=(60,), epochs=30)
    assert cross_val_score(classifier, X, data.y, cv=3).mean() > 0.94
    classifier.fit(X, np.where(data.y == 1, "benign", "malignant"))
    decision = classifier.decision_function(X)
    assert decision.shape == (len(X),)
    assert set(classifier.predict(X)) == {"benign", "malignant"}
    assert np.array_equal(decision > 0, classifier.predict(X) == "malignant")


def test_presets_and_options():
    X, y = np.eye(6), np.array([0, 1, 2] * 2)
    paper = ZeroOneClassifier(hidden=(4,), preset="paper").fit(X, y)
    assert paper.record_["settings"]["exact"]["lam"] == 0.052
    assert paper.n_iter_ == 35
    assert ZeroOneClassifier(preset="paper")._settings().hidden == (2000, 2000)
    assert ZeroOneClassifier(preset="paper", lam=0.0)._settings().exact.lam == 0
    assert len(ZeroOneClassifier((4,), solver="exact", max_iter=3).fit(X, y).loss_curve_) == 3
    assert ZeroOneClassifier(random_state=np.int64(3))._settings().seed == 3
    assert ZeroOneClassifier(hidden=np.array([3, 4]))._settings().hidden == (3, 4)
    with pytest.raises(ValueError, match="options repeats head"):
        ZeroOneClassifier(options={"head": "hardmax"}).fit(X, y)
    data = load_embedded("digits")
    with pytest.raises(ValueError, match="training diverged"):
        ZeroOneClassifier((4,), epochs=5, options={"top_step": 1e38}).fit(data.X, data.y)
    exact = {"solver": "exact", "max_iter": 1, "options": {"tau": 2.0}}
    other = ZeroOneClassifier(hidden=(4,), lam=0.5, **exact).fit(X, y)
    assert other.record_["settings"]["exact"]["lam"] == 0.5
    assert other.record_["settings"]["exact"]["tau"] == 2.0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"solver": "adam"}, "unknown solver 'adam'"), ({"hidden": (0,)}, "every hidden width")],
)
def test_bad_arguments(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        ZeroOneClassifier(**options).fit(np.eye(4), [0, 1, 0, 1])


def test_bad_data():
    with pytest.raises(ValueError, match="NaN"):
        ZeroOneClassifier().fit(np.full((4, 2), np.nan), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="one class only"):
        ZeroOneClassifier().fit(np.eye(4), [1, 1, 1, 1])


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
