"""Weights of few values: the nearest binary or ternary matrix, each row with a scale of its own.

The step ignores a row's scale, so such a layer needs one or two bits a weight and a threshold.
"""

import torch
from torch import Tensor

WEIGHTS = ("real", "ternary", "binary")
START = 1.534  # the best scale of Gaussian weights, relative to their mean size
ROUNDS = 2


def project(W: Tensor, kind: str) -> Tensor:
    """Solve min ||W_r - a q||^2 for each row r, over a >= 0 and a row q of few values.

    binary: q in {-1, 1}^n. q = sign(W_r), 1 at 0, and a is the mean of |W_r|, which is the minimum
    (Rastegari et al. 2016).

    ternary: q in {-1, 0, 1}^n. Given a, an entry is not 0 where |w| > a/2; given q, a is the mean
    of |w| there. These two take turns, ``ROUNDS`` times from the best scale of Gaussian weights (Li
    and Liu 2016 stop there): near the minimum, which would need the weights sorted.
    """
    size = W.abs()
    scale = size.mean(dim=1, keepdim=True)
    if kind == "binary":
        return torch.where(W < 0, -scale, scale)
    scale = START * scale
    for _ in range(ROUNDS):
        on = size > scale / 2
        scale = (size * on).sum(dim=1, keepdim=True) / on.sum(dim=1, keepdim=True).clamp_min(1)
    return torch.where(size > scale / 2, W.sign() * scale, 0.0)
