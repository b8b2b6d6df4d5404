"""Several labels per sample: ``ZeroOneClassifier`` with an indicator matrix."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import make_multilabel_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split

from zeroone import ZeroOneClassifier, load


@pytest.fixture(scope="module")
def data():
    X, Y = make_multilabel_classification(800, n_features=20, n_classes=4, random_state=0)
    return train_test_split(X, Y, random_state=0)


@pytest.fixture(scope="module")
def fitted(data):
    X, _, Y, _ = data
    return ZeroOneClassifier((64,), epochs=30).fit(X, Y)


def test_it_answers_as_scikit_learn_s_networks_do(data, fitted, tmp_path):
    X, X_test, Y, Y_test = data
    answers = fitted.predict(X_test)
    assert answers.shape == Y_test.shape
    assert answers.dtype.kind == "i"
    assert (answers == Y_test).mean() > 0.8
    assert fitted.score(X_test, Y_test) == (answers == Y_test).all(axis=1).mean()
    assert fitted.record_["result"]["train_error"] == pytest.approx(1 - fitted.score(X, Y))
    assert fitted.classes_.tolist() == [0, 1, 2, 3]
    shares = fitted.predict_proba(X_test)
    assert shares.shape == Y_test.shape
    assert np.array_equal(shares > 0.5, answers == 1)
    assert np.array_equal(fitted.decision_function(X_test) > 0, answers == 1)
    assert np.array_equal(fitted.predict_log_proba(X_test), np.log(shares))
    again = load(fitted.network_.save(tmp_path / "m.safetensors"))
    assert again.head.describe() == {"kind": "logistic", "smoothing": 0.1}
    assert np.array_equal(again.predict(X_test), answers)
    assert np.array_equal(again.predict_proba(X_test), shares)


def test_each_label_has_a_probability_of_its_own(data, fitted):
    _, X_test, Y, Y_test = data
    shares = fitted.predict_proba(X_test)
    for k in range(4):
        base = np.full(len(Y_test), Y[:, k].mean())
        assert log_loss(Y_test[:, k], shares[:, k]) < log_loss(Y_test[:, k], base)


def test_two_labels_are_not_two_classes(data):
    X, _, Y, _ = data
    pair = ZeroOneClassifier((16,), epochs=3).fit(X, Y[:, :2])
    assert pair.decision_function(X).shape == (len(X), 2)
    assert pair.predict(X).shape == (len(X), 2)


def test_forms_of_y_pieces_and_searches(data, fitted):
    X, X_test, Y, _ = data
    sparse = ZeroOneClassifier((64,), epochs=30).fit(X, csr_matrix(Y))
    assert np.array_equal(sparse.predict(X_test), fitted.predict(X_test))
    pieces = ZeroOneClassifier((32,))
    for k in range(6):
        pieces.partial_fit(X[k % 3 :: 3], Y[k % 3 :: 3])
    assert (pieces.predict(X) == Y).mean() > 0.75
    assert pieces.classes_.tolist() == [0, 1, 2, 3]
    search = GridSearchCV(ZeroOneClassifier((16,), epochs=5), {"smoothing": [0.0, 0.2]}, cv=2)
    assert search.fit(X, Y).best_score_ > 0.1
    heavy = ZeroOneClassifier((16,), epochs=10, class_weight=[{0: 1, 1: 30}] + [{0: 1, 1: 1}] * 3)
    plain = ZeroOneClassifier((16,), epochs=10)
    shares = [model.fit(X, Y).predict(X)[:, 0].mean() for model in (heavy, plain)]
    assert shares[0] > shares[1]


def test_early_stopping_warm_starts_and_the_exact_solver(data):
    X, _, Y, _ = data
    stopped = ZeroOneClassifier((16,), epochs=40, validation=0.2, patience=3).fit(X, Y)
    assert stopped.n_iter_ < 40
    warm = ZeroOneClassifier((16,), epochs=3, warm_start=True).fit(X, Y)
    first = warm.loss_curve_[0]
    assert warm.fit(X, Y).loss_curve_[0] < first
    exact = ZeroOneClassifier((16,), solver="exact", max_iter=4).fit(X, Y)
    assert exact.loss_curve_ == sorted(exact.loss_curve_, reverse=True)


def test_what_it_refuses(data, fitted, command, tmp_path):
    X, _, Y, _ = data
    with pytest.raises(ValueError, match="y must be a vector"):
        ZeroOneClassifier(head="hardmax").fit(X, Y)
    with pytest.raises(ValueError, match="y must be a matrix of 0 or 1"):
        ZeroOneClassifier(head="logistic").fit(X, Y[:, 0])
    with pytest.raises(ValueError, match="must hold 0 or 1"):
        ZeroOneClassifier().fit(X, Y + 3 * Y[:, :1])
    fitted.network_.save(tmp_path / "m.safetensors")
    np.savez(tmp_path / "d.npz", X=X, y=Y[:, 0])
    code, _, error = command("evaluate", "m.safetensors", "--data", "d.npz")
    assert code == 2
    assert "several labels: y must be a matrix" in error
    code, out, _ = command("predict", "m.safetensors", "--data", "d.npz", "--json", "a.json")
    assert code == 0
    rows = [list(map(int, line.split())) for line in out.splitlines()]
    assert np.array_equal(rows, fitted.predict(X))
    assert "probabilities" in (tmp_path / "a.json").read_text()


def test_files_hold_several_labels_and_numbers(command, tmp_path):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(80, 4))
    several, numbers = (inputs[:, :3] > 0).astype(int), 3 * inputs[:, :2]
    for y, head, line in ((several, "logistic", "1 0 1"), (numbers, "linear", None)):
        np.savez(tmp_path / "data.npz", X=inputs, y=y)
        words = ("--head", head, "--hidden", "16", "--out", head, "--quiet")
        assert command("train", "--data", "data.npz", *words)[0] == 0
        code, out, _ = command("predict", head, "--data", "data.npz")
        assert (code, len(out.splitlines())) == (0, 80)
        assert all(len(row.split()) == y.shape[1] for row in out.splitlines())
        assert line is None or line in out
        assert command("evaluate", head, "--data", "data.npz")[0] == 0
    code, _, err = command("export", "linear", "--to", "c", "--out", "n.c", "--data", "data.npz")
    assert (code, "only networks that choose one class" in err) == (2, True)
