"""``ZeroOneClassifier``: a 0/1 network with scikit-learn's ``fit`` and ``predict``."""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import fields, replace
from numbers import Integral, Number
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor

from zeroone.analysis.counts import active_units
from zeroone.exact.solver import ExactSettings
from zeroone.nn.inputs import as_array, check_weights
from zeroone.nn.network import Network
from zeroone.training import Callback, StochasticSettings, TrainSettings, train
from zeroone.training.online import OnlineLearner
from zeroone.training.text_progress import Lines
from zeroone.utils.checks import InputError, count

SETTINGS = {f.name for c in (TrainSettings, StochasticSettings, ExactSettings) for f in fields(c)}
TINY = 1_000  # numbers in X up to which float64 costs no time worth mentioning
WIDTHS: dict[int, float] = {64: 500, 128: 20_000, 256: math.inf}  # units: the most samples


class ZeroOneClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A 0/1 network as a scikit-learn classifier.

    Args:
        hidden: the hidden layers: widths, or convolutions such as 'conv5x5:32:max2'; None takes the
            preset's, or two layers of 64, 128 or 256 units by the number of samples.
        solver: 'stochastic' (mini-batches, trains every layer) or 'exact' (Algorithm 3 of the
            paper).
        epochs: passes over the data of the stochastic solver; None takes 10, or more on small data.
        head: 'softmax' or 'hardmax' (the paper's).
        lam: the price of a unit, 0 prunes nothing; None takes the preset's, or 0.
        keep: the share of hidden units that the stochastic solver keeps; None keeps all.
        weights: 'ternary' or 'binary' weights of the hidden layers (stochastic solver); None keeps
            them real.
        batch: samples per batch; None takes 256, or all samples if there are fewer.
        validation: the share of the samples that ``fit`` holds out and scores after every epoch.
        patience: stop after so many epochs without a better validation error and restore the best
            weights.
        max_iter: sweeps of the exact solver, or epochs if these are not given; None takes the
            preset's or the solver's.
        device: where ``fit`` trains, 'cpu' or a GPU such as 'cuda'; None takes 'cpu'. The fitted
            network is on the CPU.
        preset: 'paper' for the printed settings, with their solver and head.
        image_shape: (channels, height, width) or (height, width) of a sample, for convolutions; X
            may then have these axes.
        class_weight: None, 'balanced' or a weight for each class; multiplies ``sample_weight``.
        warm_start: whether ``fit`` continues with the network of the last ``fit``.
        verbose: whether to print progress to stderr.
        callbacks: observe the training, see ``zeroone.Callback``.
        options: further settings of ``zeroone.TrainSettings`` or of the solver, by name. Unless
            they set ``dtype``, tiny data are trained in float64.
        random_state: the seed of the start and of the batches.

    Attributes:
        network_: the trained ``zeroone.Network``.
        classes_: the labels.
        n_iter_: the number of epochs or sweeps, or of calls of ``partial_fit``.
        status_: why training stopped.
        record_: the record of the last ``fit``.
        loss_curve_: the loss of each epoch, F after each sweep, or the loss of each call of
            ``partial_fit``.
        n_active_: the number of active units of each hidden layer.

    """

    network_: Network
    classes_: NDArray[Any]
    loss_curve_: list[float]
    _hidden: tuple[int | str, ...]  # as planned when the network was new
    _learned_by: TrainSettings  # by the last partial_fit

    def __init__(
        self,
        hidden: tuple[int | str, ...] | None = None,
        *,
        solver: str = "stochastic",
        epochs: int | None = None,
        head: str = "softmax",
        lam: float | None = None,
        keep: float | None = None,
        weights: str | None = None,
        batch: int | None = None,
        validation: float | None = None,
        patience: int | None = None,
        max_iter: int | None = None,
        device: str | None = None,
        preset: str | None = None,
        image_shape: tuple[int, ...] | None = None,
        class_weight: Any = None,
        warm_start: bool = False,
        verbose: bool | int = False,
        callbacks: Sequence[Callback] | None = None,
        options: dict[str, Any] | None = None,
        random_state: Any = 0,
    ) -> None:
        self.hidden = hidden
        self.solver = solver
        self.epochs = epochs
        self.head = head
        self.lam = lam
        self.keep = keep
        self.weights = weights
        self.batch = batch
        self.validation = validation
        self.patience = patience
        self.max_iter = max_iter
        self.device = device
        self.preset = preset
        self.image_shape = image_shape
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.verbose = verbose
        self.callbacks = callbacks
        self.options = options
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> "ZeroOneClassifier":
        """Train on samples X, one per row, with class labels y.

        Args:
            X: an array, a tensor or a sparse matrix.
            y: the class labels.
            sample_weight: how often each sample counts.

        """
        image = self._image()
        X, y = validate_data(self, self._flat(X), _plain(y), accept_sparse="csr")
        check_classification_targets(y)
        settings = self._settings(X)
        start = self.network_ if self.warm_start and hasattr(self, "network_") else None
        if start is not None and getattr(self, "_hidden", settings.hidden) != settings.hidden:
            raise InputError(
                f"warm_start continues with hidden={self._hidden}, not {settings.hidden}."
            )
        planned = settings.layers
        if start is not None and self.keep is None:
            settings = replace(settings, hidden=None)  # units that were removed stay removed
        run = train(
            X,
            y,
            settings,
            image=image,
            callbacks=self._callbacks(),
            sample_weight=self._sample_weight(y, sample_weight),
            start=start,
            feature_names=getattr(self, "feature_names_in_", None),
            scores=bool(self.verbose) or bool(self.callbacks),
        )
        if run.status == "diverged":
            raise InputError(f"training diverged: {run.reason}; take smaller steps.")
        done = run.record["history"][1:]
        self.network_, self.classes_, self.record_ = run.network, np.unique(y), run.record
        self.n_iter_, self.status_ = run.n_iter, str(run.status)
        self.loss_curve_ = [entry.get("F", entry["loss"]) for entry in done]
        self.n_active_ = run.record["result"]["active_units"]
        self._hidden = planned
        self.__dict__.pop("_learner", None)  # a later partial_fit starts from this network
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> "ZeroOneClassifier":
        """Learn from a piece of the data, in one pass.

        The first piece decides how to scale the inputs. As the end is not known, steps shrink
        slowly and no unit is removed. After ``fit``, training continues with its network.

        Args:
            X: the samples of the piece.
            y: their class labels.
            classes: all labels; the first call needs them.
            sample_weight: how often each sample counts.

        """
        first = not hasattr(self, "network_")
        if first and classes is None:
            raise InputError("the first call of partial_fit needs classes, all labels there are.")
        if self.class_weight == "balanced":
            raise InputError("a piece does not tell how frequent classes are: give class_weight.")
        X, y = validate_data(self, self._flat(X), _plain(y), accept_sparse="csr", reset=first)
        check_classification_targets(y)
        known = self.classes_ if classes is None else np.unique(np.asarray(classes))
        if not first and not np.array_equal(known, self.classes_):
            raise InputError("classes are not those that are known already.")
        learner: OnlineLearner | None = self.__dict__.pop("_learner", None)  # set again on success
        settings = self._settings(X, learner)
        fixed = replace(settings, seed=0)  # a random state draws another seed in every call
        if learner is None or fixed != self._learned_by:
            if first:
                learner = OnlineLearner.begin(X, known, settings, self._image())
                self._hidden = settings.layers
            else:  # removed units stay removed, and no more follow
                plain = replace(settings.stochastic, lam=0.0, keep=None, flash=None)
                learner = OnlineLearner(
                    deepcopy(self.network_), replace(settings, stochastic=plain)
                )
        loss = learner.learn(X, y, self._sample_weight(y, sample_weight))
        before = [] if first else self.loss_curve_
        self._learner, self._learned_by, self.classes_ = learner, fixed, known
        self.loss_curve_, self.n_iter_ = [*before, loss], len(before) + 1
        self.network_, self.status_ = deepcopy(learner.network), "stopped"
        if hasattr(self, "feature_names_in_"):
            self.network_.name_features(self.feature_names_in_.tolist())
        self.n_active_ = active_units(self.network_)
        return self

    def __sklearn_tags__(self) -> Any:
        """Declare support for sparse matrices."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class label of each sample."""
        scores = self._scores(X)
        labels: NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return labels

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class probabilities of each sample, without the smoothing of the labels."""
        inputs = self._inputs(X)  # raises NotFittedError before fit
        return self.network_.predict_proba(inputs)

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Return the scores, one column per class; of two classes, their difference."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _scores(self, X: ArrayLike) -> NDArray[Any]:
        inputs = self._inputs(X)
        scores: NDArray[Any] = self.network_.scores(inputs).numpy()
        return scores

    def _inputs(self, X: ArrayLike) -> Any:
        check_is_fitted(self)
        return validate_data(self, self._flat(X), accept_sparse="csr", reset=False)

    def _callbacks(self) -> list[Callback]:
        given = [] if self.callbacks is None else self.callbacks
        if not isinstance(given, Sequence) or not all(isinstance(c, Callback) for c in given):
            raise InputError(f"callbacks must be a list of zeroone.Callback, got {given!r}.")
        return [*given, Lines("training")] if self.verbose else list(given)

    def _image(self) -> tuple[int, ...] | None:
        """Return channels, height and width of a sample."""
        if self.image_shape is None:
            return None
        shape: Any = self.image_shape
        if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) not in (2, 3):
            raise InputError(f"image_shape is (channels, height, width), got {shape!r}.")
        shape = tuple(count("every side of image_shape", side) for side in shape)
        return shape if len(shape) == 3 else (1, *shape)

    def _flat(self, X: Any) -> Any:
        """Flatten samples that come as images."""
        image = self._image()
        X = np.asarray(X) if image is not None and isinstance(X, list | tuple) else _plain(X)
        shape = getattr(X, "shape", ())
        if image is None or len(shape) <= 2:
            return X
        array = check_array(X, allow_nd=True)
        if array.shape[1:] not in {image, image[1:] if image[0] == 1 else image}:
            raise InputError(
                f"samples of shape {array.shape[1:]} are no images of shape {image} (channels, "
                f"height, width)."
            )
        return array.reshape(len(array), -1)

    def _sample_weight(self, y: NDArray[Any], given: ArrayLike | None) -> NDArray[Any] | None:
        if given is None and self.class_weight is None:
            return None
        if given is None or isinstance(given, Number):
            given = np.full(len(y), 1.0 if given is None else given)
        weight: NDArray[Any] = check_weights(given, len(y), some=False).numpy()
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, y)
        return weight

    def _settings(self, X: Any, learner: OnlineLearner | None = None) -> TrainSettings:
        parameters = self.get_params(deep=False).items()
        given = {k: value for k, value in parameters if k in SETTINGS and value is not None}
        if self.preset is not None:
            given = {k: value for k, value in given.items() if k not in ("solver", "head")}
        elif self.solver == "stochastic" and "max_iter" in given:
            most = given.pop("max_iter")
            given.setdefault("epochs", most)
        given["seed"] = self._seed()
        options = {} if self.options is None else self.options
        if not isinstance(options, dict):
            raise InputError(f"options must be settings by their names, got {options!r}.")
        for name in options.keys() & given.keys():
            raise InputError(f"options repeats {name}, which has an argument of its own.")
        by_data: dict[str, Any] = {"dtype": "float64"} if X.shape[0] * X.shape[1] <= TINY else {}
        if self.preset is None and self.hidden is None:
            width = next(units for units, most in WIDTHS.items() if X.shape[0] <= most)
            by_data["hidden"] = (width, width)
        if learner is not None or (self.warm_start and hasattr(self, "network_")):
            by_data["dtype"] = str(self.network_.dtype).removeprefix("torch.")
            if self.hidden is None and hasattr(self, "_hidden"):
                by_data["hidden"] = self._hidden
        return TrainSettings.from_options(self.preset, **by_data | given | options)

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))


def _plain(values: Any) -> Any:
    """Convert tensors to arrays; scikit-learn handles everything else."""
    return as_array(values) if isinstance(values, Tensor) else values
