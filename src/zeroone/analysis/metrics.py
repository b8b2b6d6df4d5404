"""The errors of a network, clean and in noise: one scorer for 0/1 networks and baselines."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from zeroone.nn.network import fitting_rows
from zeroone.nn.operators import Operator
from zeroone.nn.scaling import Scaling
from zeroone.nn.targets import Targets
from zeroone.utils.memmap import Rows, split_rows
from zeroone.utils.parallel import ALONE, Team

NOISE_SEED = 0  # the same noise for every network, so that their errors compare


class Model(Protocol):
    """A network that can be scored and counted: a 0/1 network or a baseline."""

    scaling: Scaling

    @property
    def n_features(self) -> int:
        """The number of raw inputs."""

    @property
    def targets(self) -> Targets:
        """What it answers."""

    @property
    def backbone(self) -> nn.Module | None:
        """What is below its layers."""

    @property
    def operators(self) -> Sequence[Operator]:
        """The operators from the inputs, or the backbone's features, to the classes."""

    @property
    def streams(self) -> Sequence[bool]:
        """Whether each layer adds the sums of the layer below to its own."""

    @property
    def takes_bits(self) -> Sequence[bool]:
        """Whether the inputs of each operator have two values only."""

    def forward(self, V: Tensor) -> Tensor:
        """Compute the scores of scaled inputs."""


def error_rate(model: Model, X: Rows, y: Tensor, team: Team = ALONE) -> float:
    """Measure the error on raw samples: the share of wrong answers, or 1 - R^2 of numbers."""
    return error_rates(model, X, y, team)["error"]


def error_rates(
    model: Model, X: Rows, y: Tensor, team: Team = ALONE, noise: "Noise | None" = None
) -> dict[str, float]:
    """Measure the errors on raw samples, those of the model's kind of targets.

    The ranks of ``team`` score other samples of the same part.
    """
    sums, targets = torch.zeros((), dtype=torch.float64), model.targets
    size = fitting_rows(model)
    with torch.no_grad():
        for rows, known in zip(split_rows(X, size), torch.split(y, size), strict=True):
            V0 = model.scaling.apply(noise.add(rows) if noise else rows)
            sums = sums + targets.tally(model.forward(V0).cpu(), known)
    *totals, n = team.total(*sums.tolist(), len(y))
    return targets.rates(totals, n)


def noise_errors(model: Model, X: Tensor, y: Tensor, levels: Sequence[float]) -> dict[str, Any]:
    """Measure the error on raw samples with Gaussian noise of each level, see ``Noise``."""
    errors = []
    for level in levels:
        noise = Noise(level, model.scaling, X.dtype == torch.uint8)
        errors.append(error_rates(model, X, y, noise=noise)["error"])
    return {"levels": list(levels), "errors": errors}


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
