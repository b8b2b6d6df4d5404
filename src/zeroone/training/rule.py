"""Stochastic BCD as a rule that learns from batches, with a count of the bits that flip."""

from typing import Any

import torch
from torch import Tensor

from zeroone.network import Network
from zeroone.parallel import Share
from zeroone.solvers.stochastic import StochasticBCD

PROBE = 1000  # samples on which flipped bits are counted


class StochasticRule:
    """Stochastic BCD as a rule, with the count of flipped bits."""

    def __init__(self, solver: StochasticBCD, probe: Tensor) -> None:
        """``probe``: scaled inputs on which flipped bits are counted from epoch to epoch."""
        self.solver, self.probe = solver, probe
        self.bits = self._bits()

    @property
    def model(self) -> Network:
        """The network."""
        return self.solver.network

    @property
    def settled(self) -> bool:
        """Whether no more units will be removed."""
        return self.solver.settled

    def update(
        self,
        V0: Tensor,
        y: Tensor,
        rng: torch.Generator,
        weights: Tensor | None = None,
        share: Share | None = None,
    ) -> Tensor:
        """Every block once."""
        return self.solver.update(V0, y, rng, weights, share)

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """The head's."""
        return self.solver.network.head.losses(scores, y)

    def _bits(self) -> list[tuple[Tensor, Tensor]]:
        """For each hidden layer the names of its units and their bits."""
        return list(zip(self.solver.units, self.model.hidden_bits(self.probe), strict=True))

    def notes(self) -> dict[str, Any]:
        """The share of hidden bits that differ from the last time, a layer; removed units aside."""
        before, self.bits = self.bits, self._bits()
        flipped = [
            float((old[:, torch.searchsorted(old_units, units)] != new).float().mean())
            for (old_units, old), (units, new) in zip(before, self.bits, strict=True)
        ]
        return {"flipped": flipped, "flip_rate": self.solver.flip_rate}

    def state(self) -> dict[str, Tensor]:
        """The solver's."""
        return self.solver.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()``."""
        self.solver.restore(state)
        self.bits = self._bits()
