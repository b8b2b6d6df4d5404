"""The exact solver as a learner: an iteration is a sweep over all blocks and all samples."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from zeroone.exact.solver import ExactBCD
from zeroone.nn.network import Network
from zeroone.training.callbacks import Callback
from zeroone.training.loop import Status, Stop


class Sweeps:
    """Iterate the exact solver; ``own`` holds the numbers of this rank's samples."""

    settled = True  # every sweep prunes, so no network is larger than requested

    def __init__(self, solver: ExactBCD, own: Tensor) -> None:
        self.solver, self.own, self.team = solver, own, solver.team
        self.limit = solver.settings.max_iter
        self.at_limit = (Status.MAX_ITER, f"the limit of max_iter={self.limit} was reached")
        self.plan = {"sweeps": self.limit}

    @property
    def model(self) -> Network:
        """The network."""
        return self.solver.network

    @property
    def optimizer(self) -> ExactBCD:
        """The solver."""
        return self.solver

    def start(self) -> dict[str, Any]:
        """Return F by term."""
        return self.solver.terms() | {"seconds": 0.0}

    def iterate(
        self, k: int, callbacks: Sequence[Callback] = ()
    ) -> tuple[dict[str, Any], Stop | None]:
        """Run one sweep; test for convergence every ``check_every`` sweeps."""
        settings = self.solver.settings
        entry = self.solver.sweep()
        for callback in callbacks:
            callback.on_batch(k, 1, 1)
        if not math.isfinite(entry["F"]):
            return entry, (Status.DIVERGED, f"F was no longer finite after sweep {k}")
        if k % settings.check_every == 0 or k == self.limit:
            residuals = self.solver.residuals()
            entry["residuals"] = residuals
            if settings.tol and max(residuals.values()) <= settings.tol:
                reason = f"every stationarity residual is at most {settings.tol:g}"
                return entry, (Status.CONVERGED, reason)
        return entry, None

    def state(self) -> dict[str, Tensor]:
        """Return the blocks of the samples of all ranks."""
        return {
            name: self.team.joined(T, self.own, self.solver.n_samples)
            if _is_per_sample(name)
            else T
            for name, T in self.solver.state().items()
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from the result of ``state()``; the number of ranks may differ."""
        self.solver.restore(
            {name: T[self.own] if _is_per_sample(name) else T for name, T in state.items()}
        )


def _is_per_sample(name: str) -> bool:
    """Whether a tensor of the state is a block U or V, with one row per sample."""
    return name[0] in "UV"
