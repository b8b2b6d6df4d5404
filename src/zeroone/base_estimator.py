"""What the estimators share: parameters into settings, checks, ``fit``, ``partial_fit``."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, fields, replace
from numbers import Integral, Number
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from zeroone.analysis.counts import active_units
from zeroone.exact.solver import ExactSettings
from zeroone.nn.inputs import as_array, check_weights
from zeroone.nn.network import Network
from zeroone.training import Callback, StochasticSettings, TrainSettings, train
from zeroone.training.online import OnlineLearner
from zeroone.training.stochastic_settings import LEAST_BATCH
from zeroone.training.text_progress import Lines
from zeroone.utils.checks import InputError, count
from zeroone.utils.device import using_threads

SETTINGS = {f.name for c in (TrainSettings, StochasticSettings, ExactSettings) for f in fields(c)}
FEW, MANY = 4, 20_000  # small batches and samples between which batches are small
TINY = 1_000  # numbers in X up to which float64 costs no time worth mentioning


@dataclass(eq=False, repr=False)
class ZeroOneEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """A 0/1 network with scikit-learn's ``fit``; a subclass says what it predicts."""

    hidden: tuple[int | str, ...] | None = None
    _: KW_ONLY
    solver: str = "stochastic"
    epochs: int | None = None
    lam: float | None = None
    keep: float | None = None
    weights: str | None = None
    batch: int | None = None
    move: float | None = None
    window: float | None = None
    damping: float | None = None
    input_dropout: float | None = None
    u_rule: str | None = None
    scaling: str | None = None
    dtype: str | None = None
    validation: float | None = None
    patience: int | None = None
    max_iter: int | None = None
    device: str | None = None
    threads: int | None = None
    image_shape: tuple[int, ...] | None = None
    warm_start: bool = False
    verbose: bool | int = False
    callbacks: Sequence[Callback] | None = None
    options: dict[str, Any] | None = None
    random_state: Any = 0

    _widths: ClassVar[dict[int, float]]  # units of both layers by default: the most samples
    _solver_defaults: ClassVar[dict[str, float]] = {}  # of the stochastic solver
    _small_batch: ClassVar[int | None] = None  # of data that fill some, but not too many

    @abstractmethod
    def _check_targets(self, y: NDArray[Any]) -> NDArray[Any]:
        """Refuse targets that the estimator does not learn."""

    def _keep_targets(self, y: NDArray[Any]) -> None:
        """Keep what ``fit`` found out about the targets, if anything."""

    @abstractmethod
    def _head(self, y: NDArray[Any] | None) -> str | None:
        """Return the head that these targets need; None takes that of the parameters."""

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Train on samples X, one per row, with targets y.

        Args:
            X: an array, a tensor or a sparse matrix.
            y: the targets: of a classifier, class labels or an indicator matrix of several labels
                per sample; of a regressor, one number or several per sample.
            sample_weight: how often each sample counts.

        """
        image = self._image()
        X, y = self._check(X, y, reset=True)
        weight = self._sample_weight(y, sample_weight)
        settings = self._with_batch(self._settings(X, y), len(y), weight)
        start = self.network_ if self.warm_start and hasattr(self, "network_") else None
        if start is not None and getattr(self, "_hidden", settings.hidden) != settings.hidden:
            raise InputError(
                f"warm_start continues with hidden={self._hidden}, not {settings.hidden}."
            )
        planned = settings.layers
        if start is not None and self.keep is None:
            settings = replace(settings, hidden=None)  # units that were removed stay removed
        with using_threads(self._threads(settings, X)):
            run = train(
                X,
                y,
                settings,
                image=image,
                callbacks=self._callbacks(),
                sample_weight=weight,
                start=start,
                feature_names=getattr(self, "feature_names_in_", None),
                scores=bool(self.verbose) or bool(self.callbacks),
            )
        if run.status == "diverged":
            raise InputError(f"training diverged: {run.reason}; take smaller steps.")
        if run.status == "failed":
            warnings.warn(f"training failed: {run.reason}.", ConvergenceWarning, stacklevel=2)
        done = run.record["history"][1:]
        self.network_: Network = run.network
        self.record_: dict[str, Any] = run.record
        self.n_iter_, self.status_ = run.n_iter, str(run.status)
        self.loss_curve_: list[float] = [entry.get("F", entry["loss"]) for entry in done]
        self.n_active_: list[int] = run.record["result"]["active_units"]
        self._hidden: tuple[int | str, ...] = planned
        self._keep_targets(y)
        self.__dict__.pop("_learner", None)  # a later partial_fit starts from this network
        return self

    def _fit_piece(
        self, X: Any, y: Any, known: Sequence[Any] | NDArray[Any], sample_weight: ArrayLike | None
    ) -> None:
        """Learn from a checked piece of the data for a network with these outputs."""
        first = not hasattr(self, "network_")
        learner: OnlineLearner | None = self.__dict__.pop("_learner", None)  # set again on success
        settings = self._settings(X, y, continues=not first)
        if settings.augment != "none":
            raise InputError("learning in pieces has no augmentation: change the pieces yourself.")
        fixed = replace(settings, seed=0)  # a random state draws another seed in every call
        if learner is None or fixed != self._piece_settings:
            if first:
                learner = OnlineLearner.begin(X, y, known, settings, self._image())
                self._hidden = settings.layers
            else:  # removed units stay removed, and no more follow
                plain = replace(settings.stochastic, lam=0.0, keep=None, flash=None)
                settings = replace(settings, stochastic=plain)
                learner = OnlineLearner(deepcopy(self.network_), settings, y)
        with using_threads(self._threads(settings, X)):
            loss = learner.learn(X, y, self._sample_weight(y, sample_weight))
        before = [] if first else self.loss_curve_
        self._learner = learner
        self._piece_settings: TrainSettings = fixed
        self.loss_curve_, self.n_iter_ = [*before, loss], len(before) + 1
        self.network_, self.status_ = learner.trained(), "stopped"
        if hasattr(self, "feature_names_in_"):
            self.network_.name_features(self.feature_names_in_.tolist())
        self.n_active_ = active_units(self.network_)

    def __sklearn_tags__(self) -> Any:
        """Declare support for sparse matrices and several targets."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class label of each sample, an indicator matrix of labels, or numbers."""
        scores = self._scores(X)
        outputs = getattr(self, "classes_", np.arange(scores.shape[1]))
        return self.network_.targets.answers(scores, outputs)

    @property
    def feature_importances_(self) -> NDArray[Any]:
        """How much the first layer uses each input, as shares of 1.

        An input's share is the l2 norm of its column of W_1, in units of the scaled inputs, over
        the sum of all norms. Inputs whose column is empty (``lam`` does that) and inputs that were
        constant in all training data have exactly 0. The shares describe the first layer, not
        the whole network, and say nothing about causes. A convolution has none.
        """
        check_is_fitted(self)
        first = self.network_.operators[0]
        if first.kernel:
            raise AttributeError("a convolution shares its weights: inputs have no importances.")
        norms = first.linear.double().norm(dim=0).numpy()
        if self.network_.scaling.constant is not None:
            norms[self.network_.scaling.constant] = 0.0
        shares: NDArray[Any] = norms / (norms.sum() or 1.0)
        return shares

    def _check(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, NDArray[Any]]:
        """Check samples and targets; a column of targets becomes a vector."""
        how = {"accept_sparse": "csr", "multi_output": True, "reset": reset}
        X, y = validate_data(self, self._flat(X), _plain(y), **how)
        y = y.toarray() if hasattr(y, "toarray") else y
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        return X, self._check_targets(y)

    def _scores(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        inputs = validate_data(self, self._flat(X), accept_sparse="csr", reset=False)
        with using_threads(self.threads):
            return self.network_.scores(inputs)

    def _callbacks(self) -> list[Callback]:
        given = self.callbacks or []
        if not isinstance(given, Sequence) or not all(isinstance(c, Callback) for c in given):
            raise InputError(f"callbacks must be a list of zeroone.Callback, got {given!r}.")
        return [*given, *([Lines("training")] if self.verbose else [])]

    def _image(self) -> tuple[int, ...] | None:
        """Return channels, height and width of a sample."""
        if self.image_shape is None:
            return None
        shape: Any = self.image_shape
        if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) not in (2, 3):
            raise InputError(f"image_shape is (channels, height, width), got {shape!r}.")
        return (1, *(count("every side of image_shape", side) for side in shape))[-3:]

    def _flat(self, X: Any) -> Any:
        """Flatten samples that come as images."""
        image, X = self._image(), _plain(X)
        if image is None or hasattr(X, "tocsr") or np.ndim(X) <= 2:
            return X
        array = check_array(X, allow_nd=True)
        if (1, *array.shape[1:])[-3:] != image:
            raise InputError(
                f"samples of shape {array.shape[1:]} are no images of shape {image} (channels, "
                f"height, width)."
            )
        return array.reshape(len(array), -1)

    def _sample_weight(self, y: NDArray[Any], given: ArrayLike | None) -> NDArray[Any] | None:
        if given is None:
            return None
        if isinstance(given, Number):
            given = np.full(len(y), given)
        weight: NDArray[Any] = check_weights(given, len(y), some=False).numpy()
        return weight

    def _settings(
        self, X: Any, y: NDArray[Any] | None = None, *, continues: bool = False
    ) -> TrainSettings:
        parameters = self.get_params(deep=False)
        preset = parameters.get("preset")  # which a regressor does not have
        given = {k: v for k, v in parameters.items() if k in SETTINGS and v is not None}
        if preset is not None:
            given = {k: value for k, value in given.items() if k not in ("solver", "head")}
        elif self.solver == "stochastic" and "max_iter" in given:
            most = given.pop("max_iter")
            given.setdefault("epochs", most)
        head = self._head(y)
        given |= {"seed": self._seed()} | ({} if head is None else {"head": head})
        options = {} if self.options is None else self.options
        if not isinstance(options, dict):
            raise InputError(f"options must be settings by their names, got {options!r}.")
        for name in options.keys() & given.keys():
            raise InputError(f"options repeats {name}, which has an argument of its own.")
        by_data: dict[str, Any] = {"dtype": "float64"} if X.shape[0] * X.shape[1] <= TINY else {}
        if preset is None and self.hidden is None:
            width = next(units for units, most in self._widths.items() if X.shape[0] <= most)
            by_data["hidden"] = (width, width)
        if self.solver == "stochastic":
            by_data |= self._solver_defaults
        if continues or (self.warm_start and hasattr(self, "network_")):
            by_data["dtype"] = str(self.network_.dtype).removeprefix("torch.")
            if self.hidden is None and hasattr(self, "_hidden"):
                by_data["hidden"] = self._hidden
        return TrainSettings.from_options(preset, **by_data | given | options)

    def _with_batch(
        self, settings: TrainSettings, n: int, weight: NDArray[Any] | None
    ) -> TrainSettings:
        """Choose the batch; one that is larger than the training part becomes all of it."""
        batch = settings.stochastic.batch
        n = n if weight is None else int(np.count_nonzero(weight))
        n -= math.ceil(settings.validation * n)
        if batch is None:
            small = self._small_batch
            batch = small if small is not None and FEW * small <= n <= MANY else None
        elif batch > n:
            warnings.warn(
                f"batch={batch} is more than the {n} training samples: a batch takes all of them.",
                stacklevel=3,
            )
            batch = n if n >= LEAST_BATCH else None
        return replace(settings, stochastic=replace(settings.stochastic, batch=batch))

    def _threads(self, settings: TrainSettings, X: Any) -> int | None:
        return settings.threads_for(X.shape[1]) if self.threads is None else self.threads

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))


def _plain(values: Any) -> Any:
    """Convert tensors to arrays; scikit-learn handles everything else."""
    return as_array(values) if isinstance(values, Tensor) else values
