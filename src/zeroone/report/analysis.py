"""What a trained network does on its data: confusions, mistakes, noise; and its first weights."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zeroone.analysis.metrics import noise_errors
from zeroone.data.splits import Split
from zeroone.nn.functional import classify
from zeroone.nn.network import Network
from zeroone.nn.operators import Conv2d
from zeroone.report.images import as_pixels, data_uri, signed_pixels
from zeroone.training.training_data import Subset

LEVELS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
COARSE_LEVELS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of inputs that are no bytes, in units of their spread
IN_NOISE = 2000  # samples that are scored in noise
MISTAKES, UNITS, INPUTS, CONFUSIONS = 24, 48, 20, 20
TABLED = 20  # classes, up to which all confusions fit into a table


@dataclass(frozen=True)
class Mistake:
    """A sample that the network is wrong about, and how sure it is."""

    sample: int
    truth: str
    guess: str
    probability: float
    image: str | None


@dataclass(frozen=True)
class Looks:
    """All that the page shows of a network on data."""

    part: str  # which was looked at
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
        """The most frequent confusions: truth, guess, how often."""
        counts = np.array(self.confusion)
        np.fill_diagonal(counts, 0)
        order = np.argsort(-counts, axis=None, kind="stable")[:CONFUSIONS]
        found = [np.unravel_index(k, counts.shape) for k in order]
        names = self.classes
        return [(names[t], names[g], int(counts[t, g])) for t, g in found if counts[t, g]]


def look(network: Network, part: Subset, split: Split, name: str) -> Looks:
    """Score the part: each network sees the same samples and the same noise."""
    scores = network.scores(part.X[:])
    shares = network.head.probabilities(scores)
    guesses = classify(scores)
    n_classes = len(network.classes)
    known = part.y >= 0
    flat = part.y[known] * n_classes + guesses[known]
    confusion = torch.bincount(flat, minlength=n_classes**2).reshape(n_classes, n_classes)
    names = [split.class_name(label) for label in network.classes]
    few = part.sample(IN_NOISE)
    is_bytes = part.X.dtype == torch.uint8
    levels = LEVELS if is_bytes else COARSE_LEVELS
    unit = "share of the range of grey levels" if is_bytes else "units of the inputs' spread"
    return Looks(
        name,
        names,
        confusion.tolist(),
        _mistakes(part, guesses, shares, split, names),
        noise_errors(network, few.X[:], few.y, levels) | {"samples": len(few.y), "unit": unit},
    )


def _mistakes(
    part: Subset, guesses: Tensor, shares: Tensor, split: Split, names: list[str]
) -> list[Mistake]:
    """Those of which the network is surest, surest first."""
    wrong = torch.nonzero((guesses != part.y) & (part.y >= 0))[:, 0]
    sure = shares[wrong, guesses[wrong]]
    worst = wrong[torch.argsort(sure, descending=True, stable=True)[:MISTAKES]]
    high = 255.0 if part.X.dtype == torch.uint8 else float(part.X[:].max())
    found = []
    for k in worst.tolist():
        image = None
        if split.shape is not None and len(split.shape) == 3:
            pixels = as_pixels(part.X[k].numpy(), split.shape, high)
            image = data_uri(pixels, enlarge=max(1, 64 // max(pixels.shape)))
        guess = int(guesses[k])
        probability = float(shares[k, guess])
        found.append(Mistake(k, names[int(part.y[k])], names[guess], probability, image))
    return found


def weight_images(network: Network, shape: tuple[int, ...] | None) -> list[str]:
    """Of units of the first layer, the weights as images: those first that matter most above."""
    first = _first_weights(network, shape)
    if first is None:
        return []
    order = np.arange(len(first))
    if network.body is None and len(network.operators) > 1:
        order = np.argsort(-_outgoing(network)[: len(first)], kind="stable")
    images = []
    for unit in order[:UNITS]:
        # Channels side by side: a weight has a sign, so that they cannot be colours.
        strip = np.concatenate(list(first[unit]), axis=1)
        images.append(data_uri(signed_pixels(strip), enlarge=max(1, 56 // strip.shape[0])))
    return images


def _first_weights(network: Network, shape: tuple[int, ...] | None) -> NDArray[Any] | None:
    """Of each unit (channels, height, width), if the first layer sees images."""
    if network.body is not None:
        kernels = next((p for p in network.body.layers.parameters() if p.dim() == 4), None)
        return None if kernels is None else kernels.detach().numpy()
    operator = network.operators[0]
    if isinstance(operator, Conv2d):
        shape = (operator.n_in, operator.kernel, operator.kernel)
    elif shape is None or len(shape) != 3 or operator.n_in != math.prod(shape):
        return None
    return np.asarray(operator.linear.detach().numpy().reshape(-1, *shape))


def _outgoing(network: Network) -> NDArray[Any]:
    """How much each unit of the first layer weighs in the second."""
    above = network.operators[1]
    norms = above.linear.detach().square().sum(dim=0)
    return np.asarray(norms.reshape(network.operators[0].n_out, -1).sum(dim=1).sqrt().numpy())


def strongest_inputs(network: Network) -> list[tuple[str, float]]:
    """The inputs with the largest weights, as shares of the largest; none if they are images."""
    operator = network.operators[0]
    if network.body is not None or isinstance(operator, Conv2d):
        return []
    norms = operator.linear.detach().square().sum(dim=0).sqrt().numpy()
    order = np.argsort(-norms, kind="stable")[:INPUTS]
    largest = max(float(norms.max()), 1e-30)
    names = network.feature_names or [f"input {k}" for k in range(len(norms))]
    return [(names[k], float(norms[k]) / largest) for k in order]
