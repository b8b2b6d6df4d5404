"""Baselines: hidden activations, one small class each, with its formula and its source.

``register_baseline`` makes one known by name. A 1-bit activation has no useful derivative, so it
names the slope that takes its place in the backward pass. Where the sources binarise weights too,
ours stay floating point, as in the 0/1 paper.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from zeroone.nn.functional import compare

Map = Callable[[Tensor], Tensor]
Kind = type["Activation"]
ACTIVATIONS: dict[str, Kind] = {}
CACHED = 2**18  # numbers of one tensor that a processor's cache holds beside others


def register_baseline(name: str) -> Callable[[Kind], Kind]:
    """Make an activation known by name: ``BaselineSettings(activation=name)``."""

    def register(activation: Kind) -> Kind:
        ACTIVATIONS[name] = activation
        return activation

    return register


class Activation(nn.Module):
    """The activation of a layer of ``n_units`` units or filters (axis 1 of its input)."""

    one_bit: ClassVar[bool] = False  # whether a unit has two values only

    def __init__(self, n_units: int) -> None:
        super().__init__()
        self.n_units = n_units


@register_baseline("relu")
class ReLU(Activation):
    """max(u, 0). Nair and Hinton (2010)."""

    forward = staticmethod(torch.relu)


@register_baseline("sigmoid")
class Sigmoid(Activation):
    """1 / (1 + exp(-u))."""

    forward = staticmethod(torch.sigmoid)


@register_baseline("swish")
class Swish(Activation):
    """u sigmoid(kappa u) with kappa = 0.7, the 0/1 paper's. Ramachandran et al. (2017)."""

    kappa: ClassVar[float] = 0.7

    def forward(self, u: Tensor) -> Tensor:  # noqa: D102
        return functional.silu(self.kappa * u) / self.kappa


@register_baseline("selu")
class SELU(Activation):
    """1.0507 u for u > 0, else 1.0507 * 1.6732 (exp(u) - 1). Klambauer et al. (2017)."""

    forward = staticmethod(functional.selu)


@register_baseline("tanh")
class Tanh(Activation):
    """(exp(u) - exp(-u)) / (exp(u) + exp(-u))."""

    forward = staticmethod(torch.tanh)


class _Surrogate(torch.autograd.Function):
    """``value`` forward; backward the incoming gradient times ``slope(u)``, plus ``pull(u)``."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, value: Map, slope: Map, pull: Map | None = None) -> Tensor:
        ctx.save_for_backward(u)
        ctx.slope, ctx.pull = slope, pull
        return value(u)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (u,) = ctx.saved_tensors
        passed = gradient * ctx.slope(u)
        return passed if ctx.pull is None else passed + ctx.pull(u), None, None, None


class OneBit(Activation, ABC):
    """Two values forward, a surrogate slope backward."""

    one_bit = True

    @staticmethod
    @abstractmethod
    def value(u: Tensor, /) -> Tensor:
        """Return the activation."""

    @staticmethod
    @abstractmethod
    def slope(u: Tensor, /) -> Tensor:
        """Return what stands for its derivative."""

    def forward(self, u: Tensor, thresholds: Sequence[float] = ()) -> Tensor:
        """Return the activation of u, or of u minus each threshold in turn, side by side."""
        made = _AtThresholds if thresholds else _Surrogate
        about = (self, tuple(thresholds)) if thresholds else (self.value, self.slope)
        v: Tensor = made.apply(u, *about)  # type: ignore[no-untyped-call]
        return v


class _AtThresholds(torch.autograd.Function):
    """As ``_Surrogate`` at each threshold, a few samples at a time, which fit into a cache."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, activation: OneBit, thresholds: tuple[float, ...]) -> Tensor:
        ctx.save_for_backward(u)
        ctx.slope, ctx.thresholds = activation.slope, thresholds
        return torch.cat([activation.value(u - value) for value in thresholds], dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (u,) = ctx.saved_tensors
        total = torch.zeros_like(u)
        rows = max(1, CACHED // max(1, u[:1].numel()))
        parts = (T.split(rows) for T in (u, gradients[0], total))
        for some, gradient, passed in zip(*parts, strict=True):
            each = gradient.chunk(len(ctx.thresholds), dim=1)
            for threshold, g in zip(ctx.thresholds, each, strict=True):
                passed.addcmul_(g, ctx.slope(some - threshold))
        return total, None, None


def _step(u: Tensor) -> Tensor:
    """Return 1 for u > 0 and 0 elsewhere."""
    return compare(u, (0.0,))


def _sign(u: Tensor) -> Tensor:
    """Return 1 for u >= 0 and -1 below, as the 0/1 paper prints it."""
    return torch.ge(u, 0, out=torch.empty_like(u)).mul_(2).sub_(1)


def _hard_tanh_slope(u: Tensor) -> Tensor:
    """Return the derivative of hard tanh: 1 where |u| <= 1."""
    return torch.le(u.abs(), 1, out=torch.empty_like(u))  # casts from bools take longer


@register_baseline("ste")
class StepSTE(OneBit):
    """step(u), 1 for u > 0; slope 1 where |u| <= 1, the straight-through estimator.

    Hinton's lectures (2012), Bengio et al. (2013); Hubara et al. (2016) chose the window. The
    paper's binarisation has 1 at u = 0; ours is the step of the rest of this package.
    """

    value, slope = staticmethod(_step), staticmethod(_hard_tanh_slope)


@register_baseline("ste-sign")
class SignSTE(OneBit):
    """sign(u), slope 1 where |u| <= 1. Hubara et al., Binarized Neural Networks (2016)."""

    value, slope = staticmethod(_sign), staticmethod(_hard_tanh_slope)


@register_baseline("bi-real")
class BiReal(OneBit):
    """sign(u); slope 2 - 2|u| where |u| < 1, that of a piecewise polynomial near sign.

    Liu et al., Bi-Real Net (2018), without its shortcuts around every convolution: all methods
    share their architecture.
    """

    value = staticmethod(_sign)

    @staticmethod
    def slope(u: Tensor) -> Tensor:  # noqa: D102
        return (2 - 2 * u.abs()).clamp_(min=0)


@register_baseline("ccnn")
class CCNN(OneBit):
    """beta step(u) with a trained beta for each layer; slope beta (2 - 4|u|), 0.4 beta, 0.

    The slope holds where |u| <= 0.4, where |u| <= 1 and beyond. Xu and Cheung, Accurate and Compact
    Convolutional Neural Networks with Trained Binarization (2019); beta starts at 1.
    """

    value = staticmethod(_step)

    def __init__(self, n_units: int) -> None:
        super().__init__(n_units)
        self.beta = nn.Parameter(torch.ones(()))

    @staticmethod
    def slope(u: Tensor) -> Tensor:  # noqa: D102
        size = u.abs()
        return torch.where(size <= 0.4, 2 - 4 * size, 0.4 * (size <= 1))

    def forward(self, u: Tensor, thresholds: Sequence[float] = ()) -> Tensor:  # noqa: D102
        return self.beta * super().forward(u, thresholds)


@register_baseline("pcnn")
class PCNN(Activation):
    """The projection of w u onto {-1, 1}, w trained for each unit, with its projection loss.

    The public form of Gu et al., Projection Convolutional Neural Networks (2019): kernels C become
    sign(W C) times a constant, back-propagation passes through |W C| <= 1 and adds the gradient of
    lam / 2 ||sign(W C) - W C||^2. The source projects weights; ours stay floating point, so the
    same projection, with J = 1, lam = 1e-4 and without the look-ahead by a learning rate times the
    gradient, applies to the activations. The 0/1 paper used the authors' own code, which is not
    public.
    """

    one_bit = True
    lam: ClassVar[float] = 1e-4

    def __init__(self, n_units: int) -> None:
        super().__init__(n_units)
        self.w = nn.Parameter(torch.ones(n_units))

    def forward(self, u: Tensor) -> Tensor:  # noqa: D102
        projected = self.w.view(-1, *(1 for _ in u.shape[2:])) * u
        v: Tensor = _Surrogate.apply(  # type: ignore[no-untyped-call]
            projected, _sign, _hard_tanh_slope, self._pull
        )
        return v

    def _pull(self, projected: Tensor) -> Tensor:
        """Return the gradient of the batch's mean projection loss, summed over the units."""
        return self.lam / len(projected) * (projected - _sign(projected))
