"""The exact solver as a learner: an iteration is a sweep over all blocks and all samples."""

import math
from collections.abc import Sequence
from typing import Any

from zeroone.exact.solver import ExactBCD
from zeroone.training.callbacks import Callback
from zeroone.training.loop import Status, Stop


class Sweeps:
    """Iterate the exact solver."""

    def __init__(self, solver: ExactBCD) -> None:
        self.trainer = solver
        self.limit = solver.settings.max_iter
        self.at_limit = (Status.MAX_ITER, f"the limit of max_iter={self.limit} was reached")
        self.plan = {"sweeps": self.limit}

    def start(self) -> dict[str, Any]:
        """Return F by term."""
        return self.trainer.terms() | {"seconds": 0.0}

    def iterate(
        self, k: int, callbacks: Sequence[Callback] = ()
    ) -> tuple[dict[str, Any], Stop | None]:
        """Run one sweep; test for convergence every ``check_every`` sweeps."""
        settings = self.trainer.settings
        entry = self.trainer.sweep()
        for callback in callbacks:
            callback.on_batch(k, 1, 1)
        if not math.isfinite(entry["F"]):
            return entry, (Status.DIVERGED, f"F was no longer finite after sweep {k}")
        if k % settings.check_every == 0 or k == self.limit:
            residuals = entry["residuals"] = self.trainer.residuals()
            if settings.tol and max(residuals.values()) <= settings.tol:
                reason = f"every stationarity residual is at most {settings.tol:g}"
                return entry, (Status.CONVERGED, reason)
        return entry, None
