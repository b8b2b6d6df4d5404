"""The exact solver as a learner: an iteration is a sweep over all blocks and all samples."""

from typing import Any

from torch import Tensor

from zeroone.exact.solver import ExactBCD
from zeroone.nn.network import Network
from zeroone.training.learner import Iteration, OnBatch, Status, silent


class Sweeps:
    """The exact solver: an iteration is a sweep over all blocks and all samples.

    ``own``: the numbers of the samples that this rank has.
    """

    def __init__(self, solver: ExactBCD, own: Tensor) -> None:
        self.solver, self.own = solver, own
        self.limit = solver.settings.max_iter
        self.at_limit = (Status.MAX_ITER, f"the limit of max_iter={self.limit} was reached")

    @property
    def plan(self) -> dict[str, int]:
        """How many sweeps at most."""
        return {"sweeps": self.limit}

    @property
    def model(self) -> Network:
        """The network."""
        return self.solver.network

    @property
    def settled(self) -> bool:
        """Every sweep prunes: there is no later."""
        return True

    def start(self) -> dict[str, Any]:
        """F by term at the consistent point."""
        terms = self.solver.terms.weighted(self.solver.weights)
        return {"F": sum(terms.values()), **terms, "seconds": 0.0}

    def iterate(self, k: int, on_batch: OnBatch = silent) -> Iteration:
        """One sweep; its convergence is looked at every ``check_every`` sweeps."""
        settings = self.solver.settings
        sweep = self.solver.sweep()
        on_batch(1, 1)
        entry = self.start() | {
            "seconds": sweep.seconds,
            "flipped": sweep.flipped,
            "moved": sweep.moved,
            "blocks": sweep.blocks,
        }
        if not sweep.finite:
            return Iteration(entry, (Status.DIVERGED, f"F was no longer finite after sweep {k}"))
        if k % settings.check_every == 0 or k == self.limit:
            residuals = self.solver.residuals()
            entry["residuals"] = residuals
            if settings.tol and max(residuals.values()) <= settings.tol:
                reason = f"every stationarity residual is at most {settings.tol:g}"
                return Iteration(entry, (Status.CONVERGED, reason))
        return Iteration(entry)

    def state(self) -> dict[str, Tensor]:
        """The blocks of all samples, of all ranks."""
        team, n = self.solver.team, self.solver.n_samples
        return {
            name: team.joined(T, self.own, n) if _is_of_samples(name) else T
            for name, T in self.solver.state().items()
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()``, perhaps with another number of ranks than then."""
        self.solver.restore(
            {name: T[self.own] if _is_of_samples(name) else T for name, T in state.items()}
        )


def _is_of_samples(name: str) -> bool:
    """Whether a tensor of the state is a block U or V, one row a sample."""
    return name[0] in "UV"
