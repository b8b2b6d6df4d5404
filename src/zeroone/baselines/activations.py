"""Hidden activations of the rivals."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class StepSTE(torch.autograd.Function):
    """step(u) forward, the straight-through estimator backward: dL/du = dL/dv where |u| <= 1.

    Hinton's lectures (2012), Bengio et al. (2013); the window is that of Hubara et al. (2016).
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:  # noqa: D102
        ctx.save_for_backward(u)
        return (u > 0).to(u.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: D102
        (u,) = ctx.saved_tensors
        inside: Tensor = gradient * (u.abs() <= 1)
        return inside


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "step-ste": StepSTE.apply,
}
