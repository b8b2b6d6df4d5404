"""``ZeroOneClassifier``: a 0/1 network with scikit-learn's ``fit`` and ``predict``."""

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from zeroone.checks import InputError
from zeroone.training import TrainSettings, train


class ZeroOneClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A 0/1 network as a classifier.

    hidden: widths of the hidden layers; None takes the preset's, else 256, 256
    solver: 'stochastic' (mini-batches, trains every layer) or 'exact' (Algorithm 3 of the paper)
    epochs: passes over the data of the stochastic solver; None takes 10, more on small data
    head: 'softmax' or 'hardmax' (the paper's)
    lam: the price of a unit, 0 prunes nothing; None takes the preset's, else 0
    keep: the share of hidden units that the stochastic solver keeps; None keeps all
    max_iter: sweeps of the exact solver; None takes the preset's or the solver's
    preset: 'paper' for the printed settings, with their solver and head
    options: further settings of ``zeroone.TrainSettings`` or of the solver, by name
    random_state: the seed of the start and of the batches

    After ``fit``: ``network_``, ``classes_``, ``n_iter_``, ``status_``, ``record_``,
    ``loss_curve_`` (the loss of each epoch, or F after each sweep), ``n_active_`` (active units
    per hidden layer).
    """

    def __init__(
        self,
        hidden: tuple[int, ...] | None = None,
        *,
        solver: str = "stochastic",
        epochs: int | None = None,
        head: str = "softmax",
        lam: float | None = None,
        keep: float | None = None,
        max_iter: int | None = None,
        preset: str | None = None,
        options: dict[str, Any] | None = None,
        random_state: Any = 0,
    ) -> None:
        self.hidden = hidden
        self.solver = solver
        self.epochs = epochs
        self.head = head
        self.lam = lam
        self.keep = keep
        self.max_iter = max_iter
        self.preset = preset
        self.options = options
        self.random_state = random_state

    def _settings(self) -> TrainSettings:
        given = {
            name: getattr(self, name) for name in ("hidden", "epochs", "lam", "keep", "max_iter")
        }
        if self.preset is None:
            given |= {"solver": self.solver, "head": self.head}
        given["seed"] = self._seed()
        given = {name: value for name, value in given.items() if value is not None}
        options = self.options or {}
        for name in options.keys() & given.keys():
            raise InputError(f"options repeats {name}, which has an argument of its own.")
        return TrainSettings.from_options(self.preset, **given, **options)

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def fit(self, X: ArrayLike, y: ArrayLike) -> "ZeroOneClassifier":
        """Train on the samples X (rows) with the class labels y."""
        settings = self._settings()
        X, y = validate_data(self, X, y)
        check_classification_targets(y)
        run = train(X, y, settings)
        if run.status == "diverged":
            raise InputError(f"training diverged: {run.reason}; take smaller steps.")
        self.network_ = run.network
        self.classes_ = np.unique(y)
        self.n_iter_ = run.n_iter
        self.status_ = str(run.status)
        self.record_ = run.record
        done = run.record["history"][1:]
        self.loss_curve_ = [entry.get("F", entry["loss"]) for entry in done]
        self.n_active_ = run.record["result"]["active_units"]
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class label of each sample."""
        scores = self._scores(X)
        labels: NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return labels

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """The class probabilities of each sample."""
        check_is_fitted(self)
        return self.network_.predict_proba(validate_data(self, X, reset=False))

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """The scores of each sample, one column a class; with two classes their difference."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _scores(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        scores: NDArray[Any] = self.network_.scores(validate_data(self, X, reset=False)).numpy()
        return scores
