"""The one judge of all methods: errors of a network, of 0/1 units or not, clean and in noise."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from zeroone.analysis.counts import Layered
from zeroone.nn.network import fitting_rows
from zeroone.nn.scaling import Scaling
from zeroone.utils.memmap import Rows, split_rows
from zeroone.utils.parallel import ALONE, Team

NOISE_SEED = 0  # the same noise for every network, so that they can be compared
TOP = 5


class Model(Layered, Protocol):
    """What can be scored: a 0/1 network or a baseline."""

    scaling: Scaling

    def forward(self, V: Tensor) -> Tensor:
        """The scores of already scaled inputs."""


def error_rate(model: Model, X: Rows, y: Tensor, team: Team = ALONE) -> float:
    """The share of raw samples that the (for 0/1 networks: consistent) forward pass gets wrong.

    ``team``: whose ranks score other samples of the same part.
    """
    return _error_rates(model, X, y, (1,), team=team)[0]


def error_rates(model: Model, X: Rows, y: Tensor, team: Team = ALONE) -> dict[str, float]:
    """Top-1 and, if there are more than five classes, top-5 error."""
    tops = (1, TOP) if model.operators[-1].n_out > TOP else (1,)
    errors = _error_rates(model, X, y, tops, team=team)
    return dict(zip(("error", "top5_error"), errors, strict=False))


def _error_rates(
    model: Model,
    X: Rows,
    y: Tensor,
    tops: Sequence[int],
    noise: "Noise | None" = None,
    team: Team = ALONE,
) -> list[float]:
    wrong = torch.zeros(len(tops), dtype=torch.long)
    size = fitting_rows(model.operators, getattr(model, "body", None) is not None)
    with torch.no_grad():
        for rows, labels in zip(split_rows(X, size), torch.split(y, size), strict=True):
            V0 = model.scaling.apply(noise.add(rows) if noise else rows)
            ahead = classes_ahead(model.forward(V0).cpu(), labels)
            wrong += torch.stack([(ahead >= top).sum() for top in tops])
    *counts, n = team.total(*wrong.tolist(), len(y))
    return [count / n for count in counts]


def classes_ahead(scores: Tensor, y: Tensor) -> Tensor:
    """How many classes come before the right one; all of them if y is no class.

    Of classes that tie, the first one leads, as in ``classify``; a score that is not a number
    beats every other and loses as the right one.
    """
    known = y >= 0
    own = scores.gather(1, y.clamp(min=0)[:, None])
    later = torch.arange(scores.shape[1]) >= y[:, None]
    behind = (scores < own) | ((scores == own) & later)
    behind |= torch.zeros_like(behind).scatter_(1, y.clamp(min=0)[:, None], value=True)
    return torch.where(known, (~behind).sum(dim=1), scores.shape[1])


class Noise:
    """Gaussian noise on raw inputs, drawn alike for every network that is scored with it.

    ``level`` is its standard deviation: of bytes as a share of their range, 255; of other inputs in
    units of the spread (common, or each feature's) by which the network scales them.
    """

    def __init__(self, level: float, scaling: Scaling, is_bytes: bool) -> None:
        self.std = level * (torch.tensor(255.0) if is_bytes else scaling.scale.cpu())
        self.dtype = scaling.centre.dtype
        self.rng = torch.Generator().manual_seed(NOISE_SEED)

    def add(self, rows: Tensor) -> Tensor:
        """The next rows with noise; nothing is clipped."""
        # Drawn in float32 whatever the network's dtype: the same numbers for all.
        drawn = torch.empty(rows.shape, dtype=torch.float32).normal_(generator=self.rng)
        return rows.to(self.dtype) + drawn.to(self.dtype) * self.std


def noisy_probabilities(
    model: Model, X: Tensor, levels: Sequence[float]
) -> list[list[list[float]]]:
    """For each level of noise and each raw sample, the softmax of its scores, of any head."""
    looked = []
    for level in levels:
        noisy = Noise(level, model.scaling, X.dtype == torch.uint8).add(X)
        with torch.no_grad():
            scores = model.forward(model.scaling.apply(noisy))
        looked.append(scores.softmax(dim=1).tolist())
    return looked


def noise_errors(model: Model, X: Tensor, y: Tensor, levels: Sequence[float]) -> dict[str, Any]:
    """The error on raw samples with Gaussian noise of each level, see ``Noise``."""
    errors = []
    for level in levels:
        noise = Noise(level, model.scaling, X.dtype == torch.uint8)
        errors += _error_rates(model, X, y, (1,), noise)
    return {"levels": list(levels), "errors": errors}
