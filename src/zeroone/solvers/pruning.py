"""The l2,0 penalty inside stochastic BCD: which units go, and what the others take over.

The W block's metric is the damped second moment M = P^-1 of the layer's inputs. The prox of the
l2,0 penalty in that metric would be a search over all sets of columns. We take its greedy form: the
columns whose own removal costs least go, and the others are changed so that the loss of the whole
set is least, which has a closed form (optimal brain surgeon: Hassibi and Stork 1993; here for
whole columns).
"""

import torch
from torch import Tensor


def removal_costs(W: Tensor, P: Tensor, group: int = 1) -> Tensor:
    """For each unit below: min tr(D M D^T) over changes D of W that empty its columns.

    tr(D M D^T) is the mean squared change of the pre-activations (with the damping's ridge). For
    one column the minimum is ||W_j||^2 / P_jj, for the ``group`` columns G of a filter it is
    tr(W_G P_GG^-1 W_G^T). Columns of P beyond those of W (the bias) belong to no unit. A unit that
    was removed before, whose rows of P are 0, costs nothing.
    """
    n = W.shape[1]
    gone = P.diagonal()[:n] == 0
    costs: Tensor
    if group == 1:
        costs = W.square().sum(dim=0) / P.diagonal()[:n].clamp_min(1e-30)
        return costs.masked_fill_(gone, 0)
    blocks = P[:n, :n].reshape(n // group, group, n // group, group)
    own = blocks.diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # P_GG of each unit
    gone = gone.reshape(-1, group)
    own = own + torch.diag_embed(gone.to(P.dtype))  # what is gone needs no solution, but has one
    kernels = W.reshape(len(W), n // group, group).permute(1, 2, 0)
    costs = (kernels * torch.linalg.solve(own, kernels)).sum(dim=(1, 2))
    return costs.masked_fill_(gone.all(dim=1), 0)


def without(W: Tensor, P: Tensor, gone: Tensor) -> Tensor:
    """Solve min tr((X - W) M (X - W)^T) over X with empty columns ``gone``, M = P^-1.

    What the removed columns carried goes to the others, as far as those can carry it:
    X = W - W_gone (P_gone,gone)^-1 P_gone.
    """
    X: Tensor = W - W[:, gone] @ torch.linalg.solve(P[gone][:, gone], P[gone])
    X[:, gone] = 0
    return X


BEGIN, END = 0.1, 0.6  # the part of the training in which units leave
EVENTS = 40  # how often units may leave, in a whole training


def kept_share(keep: float, progress: float) -> float:
    """The share of units that should be left: from 1 to ``keep``, fast first, then slower.

    The cubic schedule of Zhu and Gupta (2017).
    """
    t = min(max((progress - BEGIN) / (END - BEGIN), 0.0), 1.0)
    return keep + (1 - keep) * (1 - t) ** 3
