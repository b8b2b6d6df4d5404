"""What a trained network does on its data: confusions, mistakes, noise, strongest inputs."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zeroone.analysis.metrics import noise_errors
from zeroone.commands.report.images import as_pixels, data_uri
from zeroone.data.splits import Split
from zeroone.nn.functional import classify
from zeroone.nn.network import Network
from zeroone.training.training_data import Subset

LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # of noise on bytes, as shares of their range
COARSE_LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of noise on other inputs, in units of their scale
IN_NOISE = 2000  # samples that are scored in noise
MISTAKES, CONFUSIONS, INPUTS = 24, 20, 20  # how many the page shows
TABLED = 20  # classes, up to which all confusions fit into a table


@dataclass(frozen=True)
class Mistake:
    """A misclassified sample and the probability of its predicted class."""

    sample: int
    truth: str
    guess: str
    probability: float
    image: str | None


@dataclass(frozen=True)
class Evaluation:
    """All that the page shows of a network on data."""

    part: str  # of the data
    classes: list[str]
    confusion: list[list[int]]  # truth down, guess across
    mistakes: list[Mistake]
    noise: dict[str, Any] = field(default_factory=dict)

    @property
    def tabled(self) -> bool:
        """Whether all confusions fit into a table."""
        return len(self.classes) <= TABLED

    @property
    def frequent(self) -> list[tuple[str, str, int]]:
        """The most frequent confusions: truth, guess, count."""
        counts = np.array(self.confusion)
        np.fill_diagonal(counts, 0)
        order = np.argsort(-counts, axis=None, kind="stable")[:CONFUSIONS]
        found = zip(*np.unravel_index(order, counts.shape), strict=True)
        names = self.classes
        return [(names[t], names[g], int(counts[t, g])) for t, g in found if counts[t, g]]


def evaluate(network: Network, part: Subset, split: Split, name: str) -> Evaluation:
    """Evaluate a network on a part of the data; every network meets the same noise.

    ``split`` gives the names of classes and the shape of images, ``name`` is that of the part.
    """
    scores = network.scores(part.X[:])
    guesses, n_classes, known = classify(scores), len(network.classes), part.y >= 0
    pairs = part.y[known] * n_classes + guesses[known]
    confusion = torch.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)
    names = [split.class_name(label) for label in network.classes]
    shares = network.head.probabilities(scores)
    few = part.sample(IN_NOISE)
    is_bytes = part.X.dtype == torch.uint8
    noise = noise_errors(network, few.X[:], few.y, LEVELS if is_bytes else COARSE_LEVELS)
    unit = "share of the range of grey levels" if is_bytes else "units of the inputs' scale"
    return Evaluation(
        name,
        names,
        confusion.tolist(),
        _mistakes(part, guesses, shares, split, names),
        noise | {"samples": len(few.y), "unit": unit},
    )


def _mistakes(
    part: Subset, guesses: Tensor, shares: Tensor, split: Split, names: list[str]
) -> list[Mistake]:
    """The mistakes with the highest probabilities, highest first."""
    wrong = torch.nonzero((guesses != part.y) & (part.y >= 0))[:, 0]
    sure = shares[wrong, guesses[wrong]]
    worst = wrong[torch.argsort(sure, descending=True, stable=True)[:MISTAKES]]
    high = 255.0 if part.X.dtype == torch.uint8 else float(part.X[:].max())
    found = []
    for k in worst.tolist():
        image = None
        if split.shape is not None and len(split.shape) == 3:
            image = data_uri(as_pixels(part.X[k].numpy(), split.shape, high))
        guess = int(guesses[k])
        probability = float(shares[k, guess])
        found.append(Mistake(k, names[int(part.y[k])], names[guess], probability, image))
    return found


def strongest_inputs(network: Network) -> list[tuple[str, float]]:
    """List the inputs with the largest weights, as shares of the largest; none for images."""
    operator = network.operators[0]
    if network.backbone is not None or operator.kernel:
        return []
    norms = operator.linear.detach().norm(dim=0).numpy()
    largest = max(float(norms.max()), 1e-30)
    names = network.feature_names or [f"input {k}" for k in range(len(norms))]
    order = np.argsort(-norms, kind="stable")[:INPUTS]
    return [(names[k], float(norms[k]) / largest) for k in order]
