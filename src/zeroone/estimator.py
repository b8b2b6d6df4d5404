"""``ZeroOneClassifier`` and ``ZeroOneRegressor``: 0/1 networks as scikit-learn's estimators."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets

from zeroone.base_estimator import ZeroOneEstimator
from zeroone.utils.checks import InputError


@dataclass(eq=False, repr=False, kw_only=True)
class ZeroOneClassifier(ClassifierMixin, ZeroOneEstimator):  # type: ignore[misc]
    """A 0/1 network as a scikit-learn classifier.

    For several labels per sample, y is an indicator matrix; ``predict`` then returns one, too.

    Args:
        hidden: the hidden layers: widths, or convolutions such as 'conv5x5:32:max2'; None takes the
            preset's, or two layers of 64, 128 or 256 units by the number of samples.
        solver: 'stochastic' (mini-batches, trains every layer) or 'exact' (Algorithm 3 of the
            paper).
        epochs: passes over the data of the stochastic solver; None takes 10, or more on small data.
        head: 'softmax' or 'hardmax' (the paper's). For an indicator matrix, 'softmax' stands for
            'logistic', one binary cross entropy per label.
        lam: the price of a unit, 0 prunes nothing; None takes the preset's, or 0.
        keep: the share of hidden units that the stochastic solver keeps; None keeps all.
        weights: 'ternary' or 'binary' weights of the hidden layers (stochastic solver); None keeps
            them real.
        batch: samples per batch; None takes 256, or all samples if there are fewer.
        move: the step size of the hidden layers (stochastic solver, as the next five); for this and
            the next seven, None takes the default of ``zeroone.StochasticSettings`` or
            ``zeroone.TrainSettings``.
        window: how far from its threshold a unit may flip, in standard deviations.
        damping: damping of the W block, relative to the variance of a layer's inputs.
        smoothing: the share of label smoothing.
        input_dropout: the share of inputs to drop while training.
        u_rule: the rule of the U block, such as 'expected'.
        scaling: 'common' or 'feature' scale of the inputs, or 'auto'.
        dtype: 'float32' or 'float64'; None trains tiny data in float64.
        validation: the share of the samples that ``fit`` holds out and scores after every epoch.
        patience: stop after so many epochs without a better validation error and restore the best
            weights.
        max_iter: sweeps of the exact solver, or epochs if these are not given; None takes the
            preset's or the solver's.
        device: where ``fit`` trains, 'cpu' or a GPU such as 'cuda'; None takes 'cpu'. The fitted
            network is on the CPU.
        threads: torch's CPU threads while it fits or predicts; None fits small layers with one
            thread, and otherwise keeps torch's choice.
        preset: 'paper' for the printed settings, with their solver and head.
        image_shape: (channels, height, width) or (height, width) of a sample, for convolutions; X
            may then have these axes.
        class_weight: None, 'balanced' or a weight for each class; multiplies ``sample_weight``.
        warm_start: whether ``fit`` continues with the network of the last ``fit``.
        verbose: whether to print progress to stderr.
        callbacks: observe the training, see ``zeroone.Callback``.
        options: further settings of ``zeroone.TrainSettings`` or of the solver, by name.
        random_state: the seed of the start and of the batches.

    Attributes:
        network_: the trained ``zeroone.Network``.
        classes_: the labels; for an indicator matrix, the numbers of its columns.
        n_iter_: the number of epochs or sweeps, or of calls of ``partial_fit``.
        status_: why training stopped.
        record_: the record of the last ``fit``.
        loss_curve_: the loss of each epoch, F after each sweep, or the loss of each call of
            ``partial_fit``.
        n_active_: the number of active units of each hidden layer.
        feature_importances_: how much the first layer uses each input; see there.

    """

    head: str = "softmax"
    smoothing: float | None = None
    preset: str | None = None
    class_weight: Any = None
    _widths: ClassVar[dict[int, float]] = {64: 500, 128: 20_000, 256: math.inf}

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn from a piece of the data, in one pass.

        The first piece decides how to scale the inputs. As the end is not known, steps shrink
        slowly and no unit is removed. After ``fit``, training continues with its network.

        Args:
            X: the samples of the piece.
            y: their class labels, or an indicator matrix.
            classes: all labels; the first call needs them, unless y is a matrix.
            sample_weight: how often each sample counts.

        """
        first = not hasattr(self, "network_")
        if self.class_weight == "balanced":
            raise InputError("a piece does not tell how frequent classes are: give class_weight.")
        if first and classes is None and np.ndim(y) < 2 and not hasattr(y, "tocsr"):
            raise InputError("the first call of partial_fit needs classes, all labels there are.")
        X, y = self._check(X, y, reset=first)
        known = self._labels(y) if first else self.classes_
        known = known if classes is None else np.unique(np.asarray(classes))
        if not first and not np.array_equal(known, self.classes_):
            raise InputError("classes are not those that are known already.")
        self._fit_piece(X, y, known, sample_weight)
        self.classes_: NDArray[Any] = known
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class probabilities of each sample, without the smoothing of the labels.

        Of several labels per sample, each has a probability of its own.
        """
        scores = self._scores(X)  # raises NotFittedError before fit
        probabilities: NDArray[Any] = self.network_.head.probabilities(scores).numpy()
        return probabilities

    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return the logarithms of ``predict_proba``; those of the hardmax head may be infinite."""
        with np.errstate(divide="ignore"):
            logarithms: NDArray[Any] = np.log(self.predict_proba(X))
        return logarithms

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Return the scores, one column per class or label; of two classes, their difference."""
        scores: NDArray[Any] = self._scores(X).numpy()
        two = scores.shape[1] == 2 and self.network_.targets.one_class
        return scores[:, 1] - scores[:, 0] if two else scores

    def __sklearn_tags__(self) -> Any:
        """Declare support for several labels per sample."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _check_targets(self, y: NDArray[Any]) -> NDArray[Any]:
        check_classification_targets(y)
        return y

    def _labels(self, y: NDArray[Any]) -> NDArray[Any]:
        return np.unique(y) if y.ndim == 1 else np.arange(y.shape[1])

    def _keep_targets(self, y: NDArray[Any]) -> None:
        self.classes_ = self._labels(y)

    def _head(self, y: NDArray[Any] | None) -> str | None:
        several = y is not None and y.ndim == 2 and self.preset is None
        return "logistic" if several and self.head == "softmax" else None

    def _sample_weight(self, y: NDArray[Any], given: ArrayLike | None) -> NDArray[Any] | None:
        if self.class_weight is None:
            return super()._sample_weight(y, given)
        if y.ndim > 1 and isinstance(self.class_weight, str):
            raise InputError("class_weight='balanced' is for one class per sample.")
        weight = super()._sample_weight(y, 1.0 if given is None else given)
        weighted: NDArray[Any] = weight * compute_sample_weight(self.class_weight, y)
        return weighted


class ZeroOneRegressor(RegressorMixin, ZeroOneEstimator):  # type: ignore[misc]
    """A 0/1 network as a scikit-learn regressor, of one target or several, by squared error.

    Its last layer is real, so it predicts real numbers. While it learns, targets have mean 0 and
    variance 1; the fitted network predicts in the units of y.

    The parameters and attributes are those of ``ZeroOneClassifier``, without what is about classes:
    head, preset, smoothing, class_weight, classes_. Some defaults differ: numbers overfit sooner
    than classes, and need more bits. ``hidden`` is (512, 512), ``batch`` is 64 for 256 to 20,000
    samples, ``move`` 0.16, ``window`` 0.5, ``damping`` 0.3, and ``head_step`` (in ``options``) 0.1.
    """

    # Chosen by cross-validation on make_friedman1(2000, noise=1, random_state=7).
    _widths: ClassVar[dict[int, float]] = {512: math.inf}
    _solver_defaults: ClassVar[dict[str, float]] = {
        "move": 0.16,
        "window": 0.5,
        "damping": 0.3,
        "head_step": 0.1,
    }
    _small_batch: ClassVar[int | None] = 64

    def partial_fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from a piece of the data, in one pass.

        The first piece decides how to scale the inputs and the targets. All else is as for
        ``ZeroOneClassifier.partial_fit``.

        Args:
            X: the samples of the piece.
            y: their targets.
            sample_weight: how often each sample counts.

        """
        X, y = self._check(X, y, reset=not hasattr(self, "network_"))
        self._fit_piece(X, y, range(1 if y.ndim == 1 else y.shape[1]), sample_weight)
        return self

    def _check_targets(self, y: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(y, dtype=np.float64)

    def _head(self, y: NDArray[Any] | None) -> str | None:  # noqa: ARG002
        return "linear"
