"""Targets: what a network learns to answer, one class for each form that y may have.

A kind of targets turns y into a tensor, scores into answers, and both into errors. A head names its
kind as ``Head.targets``; nothing else asks what y looks like.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from zeroone.nn.functional import classes_ahead, classify
from zeroone.nn.inputs import as_array
from zeroone.nn.labels import ClassLabel, encode_labels, label_vector
from zeroone.nn.operators import Operator
from zeroone.utils.checks import InputError

TOP = 5
LARGEST = 1e15  # a target beyond it would leave float32 too little room


@dataclass(frozen=True)
class TargetScaling:
    """y -> (y - centre) / scale: numbers in the units in which a network learns them."""

    centre: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, y: Tensor, weights: Tensor | None = None, *, centred: bool) -> "TargetScaling":
        """Give each target variance 1 and, if there is a bias, mean 0."""
        w = torch.ones(len(y), dtype=y.dtype) if weights is None else weights.to(y.dtype)
        w = w / w.sum()
        centre = w @ y if centred else torch.zeros(y.shape[1], dtype=y.dtype)
        scale = (w @ (y - centre).square()).sqrt()
        constant = scale <= 1e-9 * centre.abs()  # up to rounding
        return cls(centre, torch.where(constant | (scale == 0), 1.0, scale))

    def apply(self, y: Tensor) -> Tensor:
        """Return scaled targets."""
        return (y - self.centre) / self.scale

    def fold(self, last: Operator) -> None:
        """Give a last layer that predicts scaled targets the user's units."""
        weight = last.weight.double() * self.scale[:, None]
        if last.bias:
            weight[:, -1] += self.centre
        last.weight = weight.to(last.weight.dtype)

    def unfold(self, last: Operator) -> None:
        """Undo ``fold``."""
        weight = last.weight.double()
        if last.bias:
            weight[:, -1] -= self.centre
        last.weight = (weight / self.scale[:, None]).to(last.weight.dtype)


class Targets(ABC):
    """A kind of targets."""

    one_class: ClassVar[bool] = False  # whether an answer is one of the classes
    are_numbers: ClassVar[bool] = False  # which have no probabilities

    @abstractmethod
    def encode(self, y: ArrayLike | Tensor, n_samples: int) -> tuple[Tensor, list[ClassLabel]]:
        """Check targets; return them as a tensor, and the labels of the network's outputs."""

    def encode_known(
        self, y: ArrayLike | Tensor, classes: list[ClassLabel], n_samples: int
    ) -> Tensor:
        """Encode targets for a network with these outputs."""
        encoded, found = self.encode(y, n_samples)
        if len(found) != len(classes):
            raise InputError(f"y has {len(found)} columns, the network has {len(classes)} outputs.")
        return encoded

    def strata(self, y: Tensor) -> Tensor:
        """Return a number for each sample, such that a cut takes its share of each number."""
        return torch.zeros(len(y), dtype=torch.long)

    @abstractmethod
    def answers(self, scores: Tensor, classes: NDArray[Any]) -> NDArray[Any]:
        """Return what a network predicts."""

    @abstractmethod
    def mistakes(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the error of each sample."""

    def tally(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return sums over samples, from which ``rates`` makes errors."""
        return self.mistakes(scores, y).sum(dtype=torch.float64)[None]

    def rates(self, sums: list[float], n: float) -> dict[str, float]:
        """Return the errors, given the sums over all ``n`` samples."""
        return {"error": sums[0] / n}


class Classes(Targets):
    """One class per sample, as a label; the error is the share of wrong answers."""

    one_class = True

    def encode(self, y: ArrayLike | Tensor, n_samples: int) -> tuple[Tensor, list[ClassLabel]]:
        """Return class numbers and the sorted labels."""
        return encode_labels(y, n_samples)

    def encode_known(
        self, y: ArrayLike | Tensor, classes: list[ClassLabel], n_samples: int
    ) -> Tensor:
        """Return class numbers, -1 for labels that the network does not know.

        Labels that are written alike are one class: 3 in a file of numbers, "3" in a file of text.
        """
        labels = label_vector(y, n_samples)
        number = {str(label): code for code, label in enumerate(classes)}
        found = [number.get(str(label), -1) for label in labels.tolist()]
        if found and max(found) < 0:
            raise InputError(
                f"no label is one of the network's classes ({labels[0]!s} is none of "
                f"{', '.join(map(str, classes[:5]))}{', ...' if len(classes) > 5 else ''})."
            )
        return torch.tensor(found, dtype=torch.long)

    def strata(self, y: Tensor) -> Tensor:
        """Return the class numbers."""
        return y

    def answers(self, scores: Tensor, classes: NDArray[Any]) -> NDArray[Any]:
        """Return labels; if several classes lead, the first of them."""
        labels: NDArray[Any] = classes[classify(scores).numpy()]
        return labels

    def mistakes(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return whether each answer is wrong."""
        return classify(scores) != self.strata(y)

    def tally(self, scores: Tensor, y: Tensor) -> Tensor:
        """Count wrong answers and, with more than five classes, those not among the first five."""
        ahead = classes_ahead(scores, self.strata(y))
        tops = (1, TOP) if scores.shape[1] > TOP else (1,)
        return torch.stack([(ahead >= top).sum() for top in tops])

    def rates(self, sums: list[float], n: float) -> dict[str, float]:
        """Return the top-1 and perhaps the top-5 error."""
        return dict(zip(("error", "top5_error"), (wrong / n for wrong in sums), strict=False))


class SoftClasses(Classes):
    """One class per sample, as a label or as a row of probabilities, one column per class.

    A row's likeliest class counts as the right one.
    """

    def encode(self, y: ArrayLike | Tensor, n_samples: int) -> tuple[Tensor, list[ClassLabel]]:
        """Return class numbers, or the probabilities with the columns' numbers as labels."""
        shape = as_array(y).shape
        if len(shape) != 2 or shape[1] < 2:
            return super().encode(y, n_samples)
        P = _matrix(y, n_samples)
        if bool((P < 0).any()) or float((P.sum(dim=1) - 1).abs().max()) > 1e-3:
            raise InputError("y is a matrix whose rows are no probabilities: they must sum to 1.")
        return P / P.sum(dim=1, keepdim=True), list(range(P.shape[1]))

    def encode_known(
        self, y: ArrayLike | Tensor, classes: list[ClassLabel], n_samples: int
    ) -> Tensor:
        """Return class numbers or probabilities."""
        if as_array(y).shape[1:] == (len(classes),):
            return self.encode(y, n_samples)[0]
        return super().encode_known(y, classes, n_samples)

    def strata(self, y: Tensor) -> Tensor:
        """Return the likeliest classes."""
        return y if y.ndim == 1 else classify(y)


class Indicators(Targets):
    """Any number of labels per sample: y is 1 where a label applies, else 0.

    The error is the share of samples with a wrong label, 1 - scikit-learn's accuracy.
    """

    def encode(self, y: ArrayLike | Tensor, n_samples: int) -> tuple[Tensor, list[ClassLabel]]:
        """Return the matrix, with the columns' numbers as labels."""
        if as_array(y).ndim != 2:
            raise InputError("head='logistic' learns several labels: y must be a matrix of 0 or 1.")
        Y = _matrix(y, n_samples)
        if not bool(((Y == 0) | (Y == 1)).all()):
            raise InputError("y is a matrix of labels that apply or not: it must hold 0 or 1.")
        return Y, list(range(Y.shape[1]))

    def answers(self, scores: Tensor, classes: NDArray[Any]) -> NDArray[Any]:  # noqa: ARG002
        """Return 1 where a score is above 0."""
        labels: NDArray[Any] = (scores > 0).long().numpy()
        return labels

    def mistakes(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return whether any label of a sample is wrong."""
        return ((scores > 0) != (y > 0)).any(dim=1)


class Numbers(Targets):
    """One or several real numbers per sample: a regression.

    The error is the share of the targets' variance that is not explained, 1 - R^2, averaged over
    the targets; on bad answers it exceeds 1.
    """

    are_numbers = True

    def encode(self, y: ArrayLike | Tensor, n_samples: int) -> tuple[Tensor, list[ClassLabel]]:
        """Return a matrix, one column per target, with the columns' numbers as labels."""
        Y = _matrix(y, n_samples)
        if float(Y.abs().max()) > LARGEST:
            raise InputError(f"y holds numbers beyond {LARGEST:.0e}: divide them.")
        return Y, list(range(Y.shape[1]))

    def answers(self, scores: Tensor, classes: NDArray[Any]) -> NDArray[Any]:  # noqa: ARG002
        """Return the numbers, a vector if there is one target."""
        numbers: NDArray[Any] = scores.numpy()
        return numbers[:, 0] if numbers.shape[1] == 1 else numbers

    def mistakes(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the mean squared error of each sample; scaled targets have variance 1."""
        return (scores - y).square().mean(dim=1)

    def tally(self, scores: Tensor, y: Tensor) -> Tensor:
        """Add up squared errors, targets and their squares, for each target."""
        Y = y.double()
        return torch.stack([(scores.double() - Y).square(), Y, Y.square()]).sum(dim=1).flatten()

    def rates(self, sums: list[float], n: float) -> dict[str, float]:
        """Return 1 - R^2 as the error, and R^2."""
        missed, total, squares = np.reshape(sums, (3, -1))
        varied = squares - total**2 / n
        # As scikit-learn has it: of a constant, all is explained or nothing.
        shares = np.where(varied > 0, missed / np.where(varied > 0, varied, 1), missed > 0)
        return {"error": float(shares.mean()), "r2": float(1 - shares.mean())}


def _matrix(y: ArrayLike | Tensor, n_samples: int) -> Tensor:
    """Require finite numbers, one row per sample; a vector becomes a column."""
    array = as_array(y)
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2) or not array.size:
        raise InputError(
            f"y must hold numbers, one row per sample, got {array.dtype} {array.shape}."
        )
    if len(array) != n_samples:
        raise InputError(f"X has {n_samples} rows but y has {len(array)}.")
    Y = torch.tensor(array, dtype=torch.float64)
    if not bool(Y.isfinite().all()):
        raise InputError("y contains NaN or infinity.")
    return Y[:, None] if Y.ndim == 1 else Y
