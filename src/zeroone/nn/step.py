"""The 0/1 activation as a torch module: its backward pass is the U block.

``Step`` returns 1 where u > 0 and 0 elsewhere. Autograd carries residuals through it, not
derivatives: the layers above ask the bits for a change D, and a U rule turns D into the change E
that the layer below is asked for. A U rule is one function,

    rule(D, B, window) -> E

where B holds the pre-activations divided by the scale of their unit. ``register_u_rule`` adds one.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zeroone.nn.functional import compare
from zeroone.utils.checks import InputError, one_of

How = tuple[str, tuple[float, ...], int]  # the U rule, the thresholds, the axis of units
URule = Callable[[Tensor, Tensor, Tensor], Tensor]
U_RULES: dict[str, URule] = {}


def register_u_rule(name: str) -> Callable[[URule], URule]:
    """Make a U rule known by name: ``Step(rule=name)``."""

    def register(rule: URule) -> URule:
        U_RULES[name] = rule
        return rule

    return register


@register_u_rule("expected")
def expected(D: Tensor, B: Tensor, window: Tensor) -> Tensor:
    """Return the expectation of randomised rounding: E = D where |b| <= window (Lemma 2), else 0.

    A bit flips with a probability proportional to |D| and is then pushed towards sign(D). The
    common factor is dropped, because the W block chooses its own step size.
    """
    return D * (B.abs() <= window)


@register_u_rule("drawn")
def drawn(D: Tensor, B: Tensor, window: Tensor) -> Tensor:
    """Draw the flips of randomised rounding: sign(D) with probability min(1, |D| / scale).

    The scale is ten times the mean |D| inside the window, so that about one bit in ten flips.
    """
    E = D * (B.abs() <= window)
    scale = 10 * E.abs().sum() / (E != 0).sum().clamp_min(1)
    flips = torch.rand_like(E) * scale < E.abs()
    return torch.where(flips, scale * E.sign(), torch.zeros_like(E))


@register_u_rule("half")
def half(D: Tensor, B: Tensor, window: Tensor) -> Tensor:
    """Apply the printed U block (Lemma 2): a bit flips where V = step(B) + D crosses 1/2.

    D counts in units of bits per sample, so the loss must be a mean over the batch. A flip moves
    b just across its threshold: E = -b.
    """
    V = (B > 0).to(D.dtype) + D * len(D)
    flips = ((V > 0.5) != (B > 0)) & (B.abs() <= window)
    return torch.where(flips, -B, torch.zeros_like(B)) / len(D)


class _StepFunction(torch.autograd.Function):
    """Bits forward; backward minus the U block's residual in place of a derivative."""

    @staticmethod
    def forward(ctx: Any, U: Tensor, scale: Tensor, window: Tensor, how: How) -> Tensor:
        ctx.save_for_backward(U, scale, window)
        ctx.rule, ctx.thresholds, ctx.dim = how
        return compare(U, ctx.thresholds, ctx.dim)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        U, scale, window = ctx.saved_tensors
        parts = grads[0].chunk(len(ctx.thresholds), ctx.dim)
        if len(ctx.thresholds) > 1 and scale.ndim == 0 and U_RULES[ctx.rule] is expected:
            passed = partial(_inside, U=U, reach=window * scale)
        else:
            passed = partial(_passed, U=U, scale=scale, window=window, rule=ctx.rule)
        residuals = [passed(*both) for both in zip(parts, ctx.thresholds, strict=True)]
        total = residuals[0]
        for residual in residuals[1:]:  # those of a unit's bits add up
            total = total.add_(residual)
        if passed.func is _inside and not torch.equal(scale, torch.ones_like(scale)):
            total = total / scale
        return total, None, None, None


def _passed(
    grad: Tensor, threshold: float, *, U: Tensor, scale: Tensor, window: Tensor, rule: str
) -> Tensor:
    """Return what the bits of one threshold pass on of a gradient."""
    B = U - threshold if threshold else U
    if U_RULES[rule] is not expected:
        return -U_RULES[rule](-grad, B / scale, window) / scale
    # The same, in fewer passes over memory.
    inside = torch.le(B.abs(), window * scale, out=torch.empty_like(B))
    return (grad * inside).div_(scale)


def _inside(grad: Tensor, threshold: float, *, U: Tensor, reach: Tensor) -> Tensor:
    """Return the gradient where |u - threshold| <= reach, else 0, in one pass over memory.

    Where u is not a number, the gradient passes.
    """
    if torch.compiler.is_compiling():  # a number would end the graph, and the compiler fuses this
        return grad * ((U - threshold).abs() <= reach)
    kind = np.float64 if U.dtype == torch.float64 else np.float32  # in which torch compares
    far = float(reach)
    low = np.nextafter(kind(threshold - far), kind(-np.inf))  # the bounds themselves are inside
    high = np.nextafter(kind(threshold + far), kind(np.inf))
    passed: Tensor = torch.ops.aten.hardtanh_backward(grad, U, float(low), float(high))
    return passed


def step(
    U: Tensor,
    window: float | Tensor = 1.0,
    scale: float | Tensor = 1.0,
    rule: str = "expected",
    *,
    thresholds: Sequence[float] = (0.0,),
    dim: int = 1,
) -> Tensor:
    """Return 1 where u > 0, else 0; residuals pass back where |u| <= window * scale.

    ``thresholds`` and the axis of units, ``dim``, are those of ``Step``.
    """
    window, scale = (torch.as_tensor(T, dtype=U.dtype, device=U.device) for T in (window, scale))
    how = (one_of("rule", rule, U_RULES), tuple(thresholds), dim)
    bits: Tensor = _StepFunction.apply(U, scale, window, how)  # type: ignore[no-untyped-call]
    return bits


class Step(nn.Module):
    """The 0/1 activation: 1 where u > 0, else 0 (0 at 0, at -0.0 and at NaN).

    With several thresholds, each unit gives one bit per threshold: those of the first threshold for
    all units, then those of the second, and so on. The next layer takes as many times more inputs.
    Several thresholds count in units of u, as does their window: put a ``BatchNorm`` without
    trained parameters before them.

    ``BCD`` keeps ``scale``, the standard deviation of each unit's pre-activations (1 if there are
    several thresholds), and ``window``, the multiple of it up to which a bit may flip. The forward
    pass uses neither, so neither is saved with the model.
    """

    scale: Tensor
    window: Tensor

    def __init__(
        self, rule: str = "expected", *, dim: int = 1, thresholds: Sequence[float] = (0.0,)
    ) -> None:
        """Choose a U rule.

        Args:
            rule: the name of a U rule: 'expected', 'drawn', 'half', or one that you registered.
            dim: the axis of units: 1 after convolutions and dense layers, -1 where a ``Linear``
                takes samples of several axes.
            thresholds: what u must exceed, in rising order; one bit for each.

        """
        super().__init__()
        self.rule, self.dim = one_of("rule", rule, U_RULES), dim
        self.thresholds = tuple(float(threshold) for threshold in thresholds)
        rising = all(a < b for a, b in pairwise(self.thresholds))
        if not (self.thresholds and rising and all(map(math.isfinite, self.thresholds))):
            raise InputError(f"thresholds must be finite and rise, got {thresholds!r}.")
        # No buffers: averages of models copy those, and the scale changes its shape.
        self.scale, self.window = torch.ones(()), torch.ones(())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Step":
        """Move to a device or a dtype."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.scale, self.window = fn(self.scale), fn(self.window)
        return self

    def forward(self, U: Tensor) -> Tensor:
        """Return the bits."""
        if not (torch.is_grad_enabled() and U.requires_grad):
            return compare(U, self.thresholds, self.dim)
        scale = self.along_units(self.scale, U) if self.scale.ndim else self.scale
        return step(U, self.window, scale, self.rule, thresholds=self.thresholds, dim=self.dim)

    def along_units(self, values: Tensor, U: Tensor) -> Tensor:
        """Shape one value for each unit so that it meets the units of U."""
        shape = [1] * U.ndim
        shape[self.dim] = -1
        return values.view(shape)

    def take_scale(self, variance: Tensor, memory: float) -> None:
        """Update the scale from the variance of each unit in a batch."""
        if len(self.thresholds) > 1:
            return
        if self.scale.shape == variance.shape:
            variance = self.scale.square().lerp(variance.to(self.scale), 1 - memory)
        self.scale = variance.sqrt()

    def extra_repr(self) -> str:
        """Show the rule, and what is unusual: the axis of units, the thresholds."""
        several = f", thresholds={self.thresholds}" if self.thresholds != (0.0,) else ""
        return f"rule={self.rule!r}" + (f", dim={self.dim}" if self.dim != 1 else "") + several
