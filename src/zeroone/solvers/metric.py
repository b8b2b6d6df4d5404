"""The metric of a W block: the running second moment of a layer's inputs, and its inverse.

0/1 inputs have a large common mean, so plain gradient steps crawl. The W sub-problem,
min ||E - D V||^2 over changes D of the weights, has the solution E^T V (V^T V)^-1; a batch is too
small for its own V^T V, so a running mean of it takes its place.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from zeroone.operators import Dense, Operator
from zeroone.parallel import ALONE, Share, Team
from zeroone.solvers.linalg import bordered_inverse, damped_inverse
from zeroone.solvers.pruning import without

MEMORY = 0.98  # what an observation leaves of the past, once there is a past
OBSERVE_EVERY = 10  # batches; the first ten are all observed
MOST_ROWS = 10_000  # samples times positions that are observed in a batch
REFRESH_EVERY = 50  # batches; the early ones more often
EARLY = (0, 1, 2, 4, 8, 16, 25)


def refreshes(k: int) -> bool:
    """Whether batch k begins with a new inverse."""
    return k in EARLY or k % REFRESH_EVERY == 0


def _meets_samples(op: Operator, n: int) -> bool:
    """Whether R is cheaper to multiply with n samples than with what they add up to."""
    return isinstance(op, Dense) and op.n_out > n


class Metric:
    """Running mean of V^T V / n (``moment``); of it the damped inverse ``R`` and the ``mean``.

    ``bias``: whether the layer has one. The inputs are then centred, and a change D of the weights
    comes with -D ``mean`` in the bias. A shortcut has no bias of its own: it uses that of its
    layer's operator, ``bias_of``, and leaves to it the mean of what is asked for.
    """

    def __init__(self, damping: float, *, bias: bool) -> None:
        self.damping, self.bias = damping, bias
        self.moment = self.R = torch.empty(0, 0)
        self.mean = torch.empty(0)
        self.dead = torch.empty(0, dtype=torch.long)  # inputs that were removed but still come

    def observe(
        self,
        k: int,
        op: Operator,
        V: Tensor,
        weights: Tensor | None = None,
        share: Share | None = None,
        team: Team = ALONE,
    ) -> None:
        """Take the inputs of batch k into account, every so often.

        ``share``: which samples of the team's batch these are.
        """
        if k >= OBSERVE_EVERY and k % OBSERVE_EVERY:
            return
        share = share or Share(len(V))
        most = -(-MOST_ROWS // op.positions)  # of images, as many as make enough patches
        some = share.first(most)
        fresh = op.gram(V[some], self.bias, None if weights is None else weights[some])
        team.sum_symmetric_(fresh)
        heavy: float = min(most, share.total)
        if weights is not None:
            heavy = team.total(float(weights[some].sum()))[0]
        fresh /= heavy * op.positions
        if k == 0:
            self.moment = fresh
        else:
            self.moment.lerp_(fresh, 1 - min(MEMORY, (k + 1) / (k + 10)))

    def refresh(self) -> None:
        """Invert the moment; inputs that were removed have no part in it."""
        self.moment[self.dead] = 0
        self.moment[:, self.dead] = 0
        self.R, self.mean = damped_inverse(self.moment, self.damping, bias=self.bias)
        self.R[self.dead] = 0
        self.R[:, self.dead] = 0

    def add_step(
        self, op: Operator, E: Tensor, V: Tensor, size: float, bias_of: Operator | None = None
    ) -> None:
        """W += size * E^T V M^-1, the W block's solution in the metric M (bias included)."""
        sums = self.sums(op, E, V, len(V))
        self.add(op, self.solution(op, sums[0], len(V))(), sums[1:], size, bias_of)

    def sums(self, op: Operator, E: Tensor, V: Tensor, n: int) -> list[Tensor]:
        """What a step takes of the samples, sums over all n of a batch: E^T (V - m), and E^T 1.

        If they are fewer than the units above, the inputs meet R before they are added up.
        """
        C = op.centred_cross(E, V, self.mean, self.R if _meets_samples(op, n) else None)
        return [C, op.total(E)] if op.bias else [C]

    def solution(self, op: Operator, C: Tensor, n: int, team: Team = ALONE) -> Callable[[], Tensor]:
        """G = E^T (V - m) R, perhaps on its way: each rank of a team multiplies some of the rows.

        With M^-1 as in ``bordered_inverse`` G is the linear part of the W block's solution.
        """
        if _meets_samples(op, n):
            return lambda: C
        return team.gather_later(C[team.chunk(len(C))] @ self.R, len(C))

    def add(
        self,
        op: Operator,
        G: Tensor,
        totals: list[Tensor],
        size: float,
        bias_of: Operator | None = None,
    ) -> None:
        """Take a step of that size.

        The bias part of the solution is E^T 1 - G m: the mean of what was asked for is met by the
        bias. ``bias_of``: the operator whose bias it is. ``totals``: E^T 1, if it has one.
        """
        op.linear.add_(G, alpha=size)
        offset = (bias_of or op).offset
        if offset is not None:
            shift = G @ self.mean
            offset.add_(totals[0] - shift if totals else -shift, alpha=size)

    def empty(self, op: Operator, columns: Tensor, bias_of: Operator | None = None) -> None:
        """Empty columns, and let the others and the bias take over (see ``pruning.without``)."""
        offset = (bias_of or op).offset
        if op.bias or offset is None:
            op.weight = without(op.weight, self.inverse(), columns)
            return
        W = without(op.weight, self.R, columns)
        offset.sub_((W - op.weight) @ self.mean)
        op.weight = W

    def inverse(self) -> Tensor:
        """M^-1, bias included."""
        return bordered_inverse(self.R, self.mean) if self.bias else self.R

    def select(self, columns: Tensor) -> None:
        """Keep only these columns, and the constant's; ``refresh`` follows."""
        if self.bias:
            columns = torch.cat([columns, torch.tensor([len(self.moment) - 1])])
        self.moment = self.moment[columns][:, columns].contiguous()

    def state(self) -> dict[str, Tensor]:
        """All that the next batch depends on."""
        return {"moment": self.moment, "R": self.R, "mean": self.mean, "dead": self.dead}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()``, whose tensors are where they belong."""
        self.moment, self.R, self.mean = state["moment"], state["R"], state["mean"]
        self.dead = state["dead"].cpu()
