"""Measures of a trained network: errors, active units, parameters."""

from typing import Any, Protocol

import torch
from torch import Tensor

from zeroone.network import BATCH_ROWS, Network
from zeroone.ops import classify
from zeroone.penalty import active_columns
from zeroone.scaling import Scaling


class Model(Protocol):
    """What can be scored: a 0/1 network or a rival."""

    scaling: Scaling

    def forward(self, V: Tensor) -> Tensor:
        """The scores of already scaled inputs."""


def error_rate(model: Model, X: Tensor, y: Tensor) -> float:
    """The share of raw samples that the (for 0/1 networks: consistent) forward pass gets wrong."""
    wrong = 0
    with torch.no_grad():
        for rows, labels in zip(
            torch.split(X, BATCH_ROWS), torch.split(y, BATCH_ROWS), strict=True
        ):
            wrong += int((classify(model.forward(model.scaling.apply(rows))) != labels).sum())
    return wrong / len(y)


def _alive(network: Network) -> list[Tensor]:
    """Masks of the units that can reach the head, from the inputs up to the classes.

    A unit that feeds only dead units is dead as well, so the masks are made from the head down.
    """
    alive = [torch.ones(network.n_classes, dtype=torch.bool)]
    for op in reversed(network.operators):
        reaching = active_columns(op.weight[alive[0]], op.group, op.n_free)
        alive.insert(0, reaching)
    return alive


def active_units(network: Network) -> list[int]:
    """How many units of each hidden layer still reach the head."""
    return [int(mask.sum()) for mask in _alive(network)[1:-1]]


def active_inputs(network: Network) -> int:
    """How many input features still reach the head."""
    return int(_alive(network)[0].sum())


def parameters(network: Network) -> int:
    """How many weights and biases are left once every unit that reaches nothing is removed."""
    alive = [int(mask.sum()) for mask in _alive(network)]
    return sum(
        above * (below * op.group + op.n_free)
        for op, below, above in zip(network.operators, alive[:-1], alive[1:], strict=True)
    )


def network_sizes(network: Network) -> dict[str, Any]:
    """Of a 0/1 network, dead units left out."""
    return {
        "active_units": active_units(network),
        "active_inputs": active_inputs(network),
        "parameters": parameters(network),
    }
