"""The penalty of one weight matrix: lam * (number of non-zero columns) + gamma/2 * ||W||^2.

A column of W_i is what one unit of the layer below feeds forward, so an empty column makes that
unit superfluous. Columns may come in groups (the entries of one kernel); ``group`` consecutive
columns then count as one. The last ``n_free`` columns (the bias) are not counted and never
emptied: a constant is not a unit. The ridge term covers them as well.
"""

import math

import torch
from torch import Tensor

from zeroone.nn.functional import sum_of_squares
from zeroone.nn.operators import Operator


def column_norms(W: Tensor, group: int = 1, n_free: int = 0) -> Tensor:
    """The norm of each unit's column (or group of columns); free columns are left out."""
    counted = W[:, : W.shape[1] - n_free]
    return counted.square().sum(dim=0).reshape(-1, group).sum(dim=1).sqrt()


def active_columns(W: Tensor, group: int = 1, n_free: int = 0) -> Tensor:
    """Which columns have a non-zero entry, however small (a mask); free columns are left out."""
    in_column = (W[:, : W.shape[1] - n_free] != 0).any(dim=0)
    return in_column.reshape(-1, group).any(dim=1)


def l20(op: Operator) -> int:
    """||W||_{2,0}: the number of non-zero columns."""
    return int(active_columns(op.weight, op.group, op.n_free).sum())


def ridge(W: Tensor) -> float:
    """||W||^2 / 2."""
    return sum_of_squares(W) / 2


def prox_l20(H: Tensor, beta: float, lam: float, group: int = 1, n_free: int = 0) -> Tensor:
    """Solve min_W  lam ||W||_{2,0} + 1/(2 beta) ||W - H||^2   (label Proxl0).

    A column of H stays if its norm is above sqrt(2 beta lam) and becomes zero otherwise.
    Tie rule: a column whose norm equals the threshold becomes zero, the smaller network.
    """
    if lam == 0:
        return H
    keep = column_norms(H, group, n_free) > math.sqrt(2 * beta * lam)
    keep = keep.repeat_interleave(group)
    if n_free:
        keep = torch.cat([keep, keep.new_ones(n_free)])
    return H * keep


def stationarity(
    W: Tensor, gradient: Tensor, beta: float, lam: float, group: int = 1, n_free: int = 0
) -> float:
    """How far W is from P-stationarity (label P-equivalent), in the units of W.

    The largest, over the columns s, of

    - a non-zero column: beta ||gradient_s||, and what ||W_s|| lacks to sqrt(2 beta lam);
    - a zero column: what beta ||gradient_s|| exceeds sqrt(2 beta lam) by;
    - a free column (bias): beta ||gradient_s||.

    Zero exactly when W is a fixed point of the proximal gradient step, up to the tie rule.
    """
    threshold = math.sqrt(2 * beta * lam)
    norms = column_norms(W, group, n_free)
    slopes = beta * column_norms(gradient, group, n_free)
    at_zero = (slopes - threshold).clamp_min(0)
    at_nonzero = torch.maximum(slopes, threshold - norms)
    residual = torch.where(active_columns(W, group, n_free), at_nonzero, at_zero)
    if n_free:
        free = beta * torch.linalg.vector_norm(gradient[:, -n_free:], dim=0)
        residual = torch.cat([residual, free])
    return float(residual.max())
