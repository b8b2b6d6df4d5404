"""The errors of a network, clean and in noise: one scorer for 0/1 networks and baselines."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from zeroone.analysis.counts import Layered
from zeroone.nn.network import fitting_rows
from zeroone.nn.scaling import Scaling
from zeroone.utils.memmap import Rows, split_rows
from zeroone.utils.parallel import ALONE, Team

NOISE_SEED = 0  # the same noise for every network, so that their errors compare
TOP = 5


class Model(Layered, Protocol):
    """A network that can be scored: a 0/1 network or a baseline."""

    scaling: Scaling

    def forward(self, V: Tensor) -> Tensor:
        """Compute the scores of scaled inputs."""


def error_rate(model: Model, X: Rows, y: Tensor, team: Team = ALONE) -> float:
    """Measure the share of raw samples that the forward pass misclassifies."""
    return error_rates(model, X, y, team)["error"]


def error_rates(
    model: Model, X: Rows, y: Tensor, team: Team = ALONE, noise: "Noise | None" = None
) -> dict[str, float]:
    """Measure the top-1 and, with more than five classes, the top-5 error on raw samples.

    The ranks of ``team`` score other samples of the same part.
    """
    tops = (1, TOP) if model.operators[-1].n_out > TOP else (1,)
    wrong = torch.zeros(len(tops), dtype=torch.long)
    size = fitting_rows(model.operators, getattr(model, "body", None) is not None)
    with torch.no_grad():
        for rows, labels in zip(split_rows(X, size), torch.split(y, size), strict=True):
            V0 = model.scaling.apply(noise.add(rows) if noise else rows)
            ahead = classes_ahead(model.forward(V0).cpu(), labels)
            wrong += torch.stack([(ahead >= top).sum() for top in tops])
    *counts, n = team.total(*wrong.tolist(), len(y))
    return dict(zip(("error", "top5_error"), (count / n for count in counts), strict=False))


def noise_errors(model: Model, X: Tensor, y: Tensor, levels: Sequence[float]) -> dict[str, Any]:
    """Measure the error on raw samples with Gaussian noise of each level, see ``Noise``."""
    errors = []
    for level in levels:
        noise = Noise(level, model.scaling, X.dtype == torch.uint8)
        errors.append(error_rates(model, X, y, noise=noise)["error"])
    return {"levels": list(levels), "errors": errors}


def classes_ahead(scores: Tensor, y: Tensor) -> Tensor:
    """Count the classes that come before the right one; all of them if y is negative.

    Of classes that tie, the first one leads, as in ``classify``. A NaN beats every number, and
    loses as the score of the right class.
    """
    own = scores.gather(1, y.clamp(min=0)[:, None])
    later = torch.arange(scores.shape[1]) >= y[:, None]
    behind = (scores < own) | ((scores == own) & later)
    behind.scatter_(1, y.clamp(min=0)[:, None], value=True)  # itself, even if it is NaN
    return torch.where(y >= 0, (~behind).sum(dim=1), scores.shape[1])


class Noise:
    """Gaussian noise on raw inputs, the same for every network.

    ``level`` is its standard deviation: for bytes as a share of their range, 255; for other inputs
    in units of the scale (common, or each feature's) by which the network divides them.
    """

    def __init__(self, level: float, scaling: Scaling, is_bytes: bool) -> None:
        self.std = level * (torch.tensor(255.0) if is_bytes else scaling.scale.cpu())
        self.dtype = scaling.centre.dtype
        self.rng = torch.Generator().manual_seed(NOISE_SEED)

    def add(self, rows: Tensor) -> Tensor:
        """Add noise to the next rows, without clipping."""
        # Drawn in float32 for every dtype, so that all networks get the same numbers.
        drawn = torch.empty(rows.shape, dtype=torch.float32).normal_(generator=self.rng)
        return rows.to(self.dtype) + drawn.to(self.dtype) * self.std


def noisy_probabilities(
    model: Model, X: Tensor, levels: Sequence[float]
) -> list[list[list[float]]]:
    """Compute the softmax of the scores for each level of noise and each raw sample."""
    probabilities = []
    for level in levels:
        noisy = Noise(level, model.scaling, X.dtype == torch.uint8).add(X)
        with torch.no_grad():
            scores = model.forward(model.scaling.apply(noisy))
        probabilities.append(scores.softmax(dim=1).tolist())
    return probabilities
