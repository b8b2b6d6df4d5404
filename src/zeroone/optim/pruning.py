"""The l2,0 penalty in stochastic BCD: which units leave, and how the others compensate.

In the W block's own metric M = R^-1, the prox of the l2,0 penalty would search all sets of columns.
We take its greedy form: the units that are cheapest to remove leave, and the remaining columns
change so that the whole set costs least. This has a closed form (optimal brain surgeon, Hassibi and
Stork 1993, here for whole columns).
"""

import torch
from torch import Tensor

from zeroone.optim.preconditioner import Preconditioner

BEGIN, END = 0.1, 0.6  # the part of the training in which units leave
EVENTS = 40  # the number of removals in a training, if units left throughout
RIDGE = 8.0  # damping of M, times the mean variance of the inputs


def kept_share(keep: float, progress: float) -> float:
    """Return the share of units to keep now: from 1 to ``keep``, fast first, then slower.

    This is the cubic schedule of Zhu and Gupta (2017).
    """
    t = min(max((progress - BEGIN) / (END - BEGIN), 0.0), 1.0)
    return keep + (1 - keep) * (1 - t) ** 3


def removal_costs(W: Tensor, diagonal: Tensor) -> Tensor:
    """For each column j: min tr(D M D^T) over changes D of W that empty it, ||W_j||^2 / R_jj.

    tr(D M D^T) is the mean square change of the pre-activations, with the damping's ridge.
    ``diagonal`` is that of R = M^-1.
    """
    return W.square().sum(dim=0) / diagonal.clamp_min(1e-30)


def without(W: Tensor, R_gone: Tensor, gone: Tensor) -> Tensor:
    """Solve min tr((X - W) M (X - W)^T) over X with empty columns ``gone``, M = R^-1.

    The other columns take over as much as they can: X = W - W_gone (R_gone,gone)^-1 R_gone, where
    ``R_gone`` has the rows ``gone`` of R.
    """
    X: Tensor = W - W[:, gone] @ torch.linalg.solve(R_gone[:, gone], R_gone)
    X[:, gone] = 0
    return X


def empty_columns(
    W: Tensor, bias: Tensor | None, moments: Preconditioner, damping: float, gone: Tensor
) -> None:
    """Empty columns of W in place; the others and the bias compensate."""
    X = without(W, moments.inverse_rows(damping, gone), gone)
    if bias is not None:
        bias.sub_((X - W) @ moments.mean[0])
    W.copy_(X)
