"""``ZeroOneClassifier``: a 0/1 network with scikit-learn's ``fit`` and ``predict``."""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from numbers import Integral, Number
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_array,
    check_is_fitted,
    validate_data,
)
from torch import Tensor

from zeroone.analysis.counts import active_units
from zeroone.nn.inputs import as_array, check_weights
from zeroone.nn.network import Network
from zeroone.training import Callback, Run, TrainSettings, train
from zeroone.training.online import OnlineLearner
from zeroone.training.text_progress import Lines
from zeroone.utils.checks import InputError, count

# That are settings of a training by the same names.
ARGUMENTS = (
    "hidden",
    "epochs",
    "lam",
    "keep",
    "weights",
    "batch",
    "validation",
    "patience",
    "max_iter",
    "device",
)
TINY = 1_000  # numbers in X, up to which float64 costs nothing that would be noticed
WIDTHS: dict[int, float] = {64: 500, 128: 20_000, 256: math.inf}  # units, by the most samples


class ZeroOneClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A 0/1 network as a classifier.

    hidden: the hidden layers, widths or convolutions such as 'conv5x5:32:max2'; None takes the
        preset's, else two layers of 64, 128 or 256 units by the number of samples
    solver: 'stochastic' (mini-batches, trains every layer) or 'exact' (Algorithm 3 of the paper)
    epochs: passes over the data of the stochastic solver; None takes 10, more on small data
    head: 'softmax' or 'hardmax' (the paper's)
    lam: the price of a unit, 0 prunes nothing; None takes the preset's, else 0
    keep: the share of hidden units that the stochastic solver keeps; None keeps all
    weights: of the hidden layers: 'ternary' or 'binary' (stochastic solver); None leaves them real
    batch: samples a batch; None takes 256, or all if there are fewer
    validation: the share of the samples that ``fit`` holds out and scores after every epoch
    patience: stop after so many epochs without a better error there, and go back to the best
    max_iter: sweeps of the exact solver, or epochs where these are not given; None takes the
        preset's or the solver's
    device: where ``fit`` trains: 'cpu', or a GPU such as 'cuda'; None takes 'cpu'. The network
        comes back to the CPU
    preset: 'paper' for the printed settings, with their solver and head
    image_shape: (channels, height, width) or (height, width) of a sample, for convolutions; X may
        then have these axes, too
    class_weight: None, 'balanced' or a weight for each class, times ``sample_weight``
    warm_start: whether ``fit`` goes on with the network of the last ``fit``
    verbose: whether to say how training goes, on stderr
    callbacks: of the training, see ``zeroone.Callback``
    options: further settings of ``zeroone.TrainSettings`` or of the solver, by name. Without a
        ``dtype`` among them, tiny data are trained in float64
    random_state: the seed of the start and of the batches

    After ``fit``: ``network_``, ``classes_``, ``n_iter_``, ``status_``, ``record_``,
    ``loss_curve_`` (the loss of each epoch, or F after each sweep; of ``partial_fit`` one entry a
    call), ``n_active_`` (active units per hidden layer).
    """

    network_: Network
    classes_: NDArray[Any]
    loss_curve_: list[float]
    _hidden: tuple[int | str, ...]  # of the last fit
    _learned_by: TrainSettings  # of the last partial_fit

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
        """Train on the samples X (rows) with the class labels y."""
        image = self._image()
        X, y = validate_data(self, self._flat(X), _plain(y), accept_sparse="csr")
        check_classification_targets(y)
        settings = self._settings(X)
        start = self.network_ if self.warm_start and hasattr(self, "network_") else None
        if start is not None and getattr(self, "_hidden", settings.hidden) != settings.hidden:
            raise InputError(
                f"warm_start goes on with hidden={self._hidden}, not {settings.hidden}."
            )
        run = train(
            X,
            y,
            settings,
            image=image,
            callbacks=self._callbacks(),
            sample_weight=self._weights(y, sample_weight),
            start=start,
            feature_names=getattr(self, "feature_names_in_", None),
            scores=bool(self.verbose) or bool(self.callbacks),
        )
        if run.status == "diverged":
            raise InputError(f"training diverged: {run.reason}; take smaller steps.")
        self._keep_run(run, np.unique(y))
        self._hidden = settings.hidden
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> "ZeroOneClassifier":
        """Learn from a piece of the data, in one pass; the first call needs all ``classes``.

        The first piece decides how inputs are scaled. Batches have no end here: steps shrink
        slowly, and no unit is removed. After ``fit`` its network learns on.
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
        learner: OnlineLearner | None = self.__dict__.pop("_learner", None)  # back if all goes well
        settings = self._settings(X, learner)
        fixed = replace(settings, seed=0)  # of a random state, the next draw is another
        if learner is None or fixed != self._learned_by:
            if first:
                learner = OnlineLearner.begin(X, known, settings, self._image())
            else:  # what was removed stays so, and nothing more is
                plain = replace(settings.stochastic, lam=0.0, keep=None)
                learner = OnlineLearner(
                    deepcopy(self.network_), replace(settings, stochastic=plain)
                )
        loss = learner.learn(X, y, self._weights(y, sample_weight))
        before = [] if first else self.loss_curve_
        self._learner, self._learned_by, self.classes_ = learner, fixed, known
        self.loss_curve_, self.n_iter_ = [*before, loss], len(before) + 1
        self.network_, self.status_ = deepcopy(learner.network), "stopped"
        if hasattr(self, "feature_names_in_"):
            self.network_.name_features(self.feature_names_in_.tolist())
        self.n_active_ = active_units(self.network_)
        return self

    def __sklearn_tags__(self) -> Any:
        """It takes sparse matrices."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The class label of each sample."""
        scores = self._scores(X)
        labels: NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return labels

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """The class probabilities of each sample."""
        inputs = self._inputs(X)  # says so if nothing was fitted
        return self.network_.predict_proba(inputs)

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """The scores of each sample, one column a class; with two classes their difference."""
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
        return [*given, *([Lines("training")] if self.verbose else [])]

    def _image(self) -> tuple[int, ...] | None:
        """Channels, height, width."""
        if self.image_shape is None:
            return None
        shape: Any = self.image_shape
        if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) not in (2, 3):
            raise InputError(f"image_shape is (channels, height, width), got {shape!r}.")
        shape = tuple(count("every side of image_shape", side) for side in shape)
        return shape if len(shape) == 3 else (1, *shape)

    def _flat(self, X: Any) -> Any:
        """One sample a row, if samples come as images."""
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

    def _weights(self, y: NDArray[Any], given: ArrayLike | None) -> NDArray[Any] | None:
        if given is None and self.class_weight is None:
            return None
        if given is None or isinstance(given, Number):
            given = np.full(len(y), 1.0 if given is None else given)
        weights: NDArray[Any] = check_weights(given, len(y), some=False).numpy()
        if self.class_weight is not None:
            weights = weights * compute_sample_weight(self.class_weight, y)
        return weights

    def _settings(self, X: Any, learner: OnlineLearner | None = None) -> TrainSettings:
        given = {name: getattr(self, name) for name in ARGUMENTS}
        if self.preset is None:
            given |= {"solver": self.solver, "head": self.head}
            if self.solver == "stochastic":
                most = given.pop("max_iter")
                given["epochs"] = most if self.epochs is None else self.epochs
        given["seed"] = self._seed()
        given = {name: value for name, value in given.items() if value is not None}
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

    def _keep_run(self, run: Run, classes: NDArray[Any]) -> None:
        self.network_ = run.network
        self.classes_ = classes
        self.n_iter_ = run.n_iter
        self.status_ = str(run.status)
        self.record_ = run.record
        done = run.record["history"][1:]
        self.loss_curve_ = [entry.get("F", entry["loss"]) for entry in done]
        self.n_active_ = run.record["result"]["active_units"]
        self.__dict__.pop("_learner", None)  # what partial_fit has learned is over


def _plain(values: Any) -> Any:
    """Tensors as arrays; scikit-learn knows what to do with all else."""
    return as_array(values) if isinstance(values, Tensor) else values
