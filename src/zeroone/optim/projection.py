"""Weights of few values: the nearest binary or ternary matrix, each row with a scale of its own.

The step ignores a row's scale, so such a layer needs one or two bits a weight and a threshold.
"""

import torch
from torch import Tensor

WEIGHTS = ("real", "ternary", "binary")
START = 1.534  # the best scale of Gaussian weights, relative to their mean size
ROUNDS = 2
DENSE, THINNING = 0.5, 0.6  # the first density; the share of the training over which it falls


def project(W: Tensor, kind: str, density: float = 1.0) -> Tensor:
    """Solve min ||W_r - a q||^2 for each row r, over a >= 0 and a row q of few values.

    binary: q in {-1, 1}^n. q = sign(W_r), 1 at 0, and a is the mean of |W_r|, which is the minimum
    (Rastegari et al. 2016).

    ternary: q in {-1, 0, 1}^n. Given a, an entry is not 0 where |w| > a/2; given q, a is the mean
    of |w| there. These two take turns, ``ROUNDS`` times from the best scale of Gaussian weights (Li
    and Liu 2016 stop there): near the minimum, which would need the weights sorted.

    ternary with a ``density`` below 1: at most that share of all entries is not 0, those that are
    largest relative to the root mean square of their row; a is the mean of |w| there.
    """
    size = W.abs()
    scale = size.mean(dim=1, keepdim=True)
    if kind == "binary":
        return torch.where(W < 0, -scale, scale)
    if density < 1:
        relative = size / W.square().mean(dim=1, keepdim=True).sqrt().clamp_min(1e-30)
        zeros = W.numel() - round(density * W.numel())
        on = relative > (relative.flatten().kthvalue(zeros).values if zeros else -1)
        return torch.where(on, W.sign() * _mean_where(on, size), 0.0)
    scale = START * scale
    for _ in range(ROUNDS):
        scale = _mean_where(size > scale / 2, size)
    return torch.where(size > scale / 2, W.sign() * scale, 0.0)


def _mean_where(on: Tensor, size: Tensor) -> Tensor:
    return (size * on).sum(dim=1, keepdim=True) / on.sum(dim=1, keepdim=True).clamp_min(1)


def falling_density(density: float, left: float) -> float:
    """Return the density to use where a share ``left`` of the training is left.

    It falls from a half, so that weights compete before most of them are 0.
    """
    return density + max(0.0, DENSE - density) * max(0.0, 1 - (1 - left) / THINNING)
