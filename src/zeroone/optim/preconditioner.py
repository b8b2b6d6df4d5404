"""The preconditioner of a W block: second moments of its inputs and residuals.

0/1 inputs have a large common mean and a few strong directions, so plain gradient steps crawl. The
W sub-problem, min ||E - D (V - m)||^2 + delta ||D||^2 over changes D of the weights, has the
solution G = E^T (V - m) (Q + delta I)^-1 with the covariance Q of the inputs. A batch is too small
to estimate Q, and a full running Q costs more than the network itself. ``LowRank`` keeps

    Q = P diag(s) P^T + tail (I - P P^T),

the strongest directions P and the mean variance of all others. Time and memory are linear in the
number of inputs. ``Diagonal`` is for one-hot inputs, the tokens of an embedding.

Units that serve the same scores receive similar residuals E, so E has few strong directions, too.
``LowRank.unit_map`` divides E by its own second moment before the W block is solved;
docs/stochastic.md derives it from the V block.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

# The number of directions, including the mean: processors multiply 16 columns as fast as 9.
RANK = 16
MEMORY = 0.98  # the largest weight of the past in a running moment
FAR = 1e5  # squared mean over variance from which float32 loses more than half of a small change


def memory(k: int) -> float:
    """Return the weight of the past at observation k."""
    return min(MEMORY, (k + 1) / (k + 10)) if k else 0.0


@dataclass
class Solution:
    """The W block's solution -G for the gradients of one layer, not yet formed as a matrix."""

    change: Tensor  # the mean square change of each unit's pre-activations, (groups, units)
    grad: (
        Tensor  # times ``dense``, which broadcasts, it is G's dense part, (groups, units, columns)
    )
    dense: Tensor
    left: Tensor  # times ``right``, it is G's low-rank part, (groups, units, r)
    right: Tensor  # (groups, columns, r)
    bias: Tensor | None  # the bias's part, (groups, units)
    # The mean of inputs far from 0, where ``bias`` does not contain what G does to the mean: it
    # makes up for the change of the weights as it was rounded.
    far_mean: Tensor | None = None

    def add_to(self, W: Tensor, offset: Tensor | None, size: Tensor) -> None:
        """Add size * G to W and size * bias to the offset, with one size per unit."""
        each, before = size[:, :, None], W if self.far_mean is None else W.clone()
        W.addcmul_(self.grad, each * self.dense)
        W.baddbmm_(self.left * each, self.right.mT)
        if offset is not None and self.bias is not None:
            offset.addcmul_(self.bias, size)
            if self.far_mean is not None:
                offset.sub_(((W - before) @ self.far_mean[:, :, None])[:, :, 0])


@dataclass(frozen=True)
class DampedInverse:
    """(Q + delta I)^-1 = c I + P diag(w) P^T, with everything that ``solve`` derives from it."""

    c: Tensor  # (groups, 1)
    right: Tensor  # P, followed by the mean m if there is a bias, (groups, columns, r)
    w: Tensor  # one value per column of ``right``, 0 for the mean, (groups, 1, r)
    gains: Tensor  # of the squares of C ``right`` in the predicted change, (groups, r, 1)
    tail_gain: Tensor  # of the square of C itself, (groups, 1)
    mean_along: Tensor  # m^T ``right``, (groups, 1, r)
    bias_along: Tensor  # the coefficients of C ``right`` in the bias, (groups, r, 1)


@dataclass(frozen=True)
class UnitMap:
    """I + left right^T, a map of a layer's units; both factors are (1, units, rank)."""

    left: Tensor
    right: Tensor

    def apply(self, E: Tensor) -> Tensor:
        """Map a tensor (1, units, any)."""
        return torch.baddbmm(E, self.left, (E.mT @ self.right).mT)


@dataclass
class Moments:
    """Running moments, made of tensors alone."""

    mean: Tensor  # of each input, (groups, columns); 0 if the layer has no bias

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name, for a checkpoint."""
        return {name: T for name, T in vars(self).items() if isinstance(T, Tensor)}


@dataclass
class LowRank(Moments):
    """Q by its strongest directions, for each group of a grouped convolution."""

    basis: Tensor  # the directions P, (groups, columns, rank)
    strength: Tensor  # the variances s along them, (groups, rank)
    total: Tensor  # the sum of the variances of all inputs, (groups,)
    _inverses: "dict[tuple[float, bool], DampedInverse]" = field(init=False, default_factory=dict)

    @classmethod
    def observe(
        cls,
        rows: Tensor,
        past: "Self | None",
        k: int,
        *,
        centre: bool,
        weights: Tensor | None = None,
    ) -> Self:
        """Return the moments after observation k, of inputs (groups, samples, columns).

        The strongest directions of the running covariance are those of a stack: the past directions
        times their standard deviations, and the new rows. ``weights`` say how often each row
        counts; without ``centre`` the mean stays 0.
        """
        n, columns = rows.shape[1:]
        keep = 0.0 if past is None else memory(k)
        if weights is None:
            share = rows.new_full((n, 1), 1 / n)
        else:
            share = (weights / weights.sum().clamp_min(1e-30))[:, None].to(rows)
        fresh = (rows * share).sum(dim=1) if centre else rows.new_zeros(len(rows), columns)
        mean = fresh if past is None else past.mean.lerp(fresh, 1 - keep)
        stack = (rows - mean[:, None]) * (share * (1 - keep)).sqrt()
        total = stack.square().sum(dim=(1, 2))
        if past is not None:
            total = total + keep * past.total
            kept = past.basis * (keep * past.strength).sqrt()[:, None]
            stack = torch.cat([kept.mT, stack], dim=1)
        basis, strength = strongest(stack, min(RANK - centre, columns))
        return cls(mean, basis, strength, total)

    def damped(self, damping: float, *, bias: bool = False) -> "DampedInverse":
        """Return (Q + delta I)^-1 with delta = damping * total variance, computed once."""
        known = self._inverses.get((damping, bias))
        if known is not None:
            return known
        columns, rank = self.basis.shape[1:]
        tail = (self.total - self.strength.sum(dim=1)).clamp_min(0) / max(1, columns - rank)
        delta = damping * self.total.clamp_min(columns * torch.finfo(tail.dtype).eps)
        c = 1 / (tail + delta)[:, None]
        w = 1 / (self.strength + delta[:, None]) - c
        tail_gain = tail[:, None] * c.square()
        gains, right = self.strength * (w + c).square() - tail_gain, self.basis
        if bias:
            right = torch.cat([right, self.mean[:, :, None]], dim=2)
            w, gains = (functional.pad(T, (0, 1)) for T in (w, gains))
        mean_along = self.mean[:, None] @ right
        bias_along = w * mean_along[:, 0]
        if bias:
            bias_along[:, -1:] = c
        gains, bias_along = gains[:, :, None], bias_along[:, :, None]
        made = DampedInverse(c, right, w[:, None], gains, tail_gain, mean_along, bias_along)
        self._inverses[damping, bias] = made
        return made

    @cached_property
    def far(self) -> bool:
        """Whether some mean is so large that rounding errors drown the inputs' spread."""
        return bool((self.mean.square().sum(dim=1) > FAR * self.total).any())

    def solve(self, grad: Tensor, bias_grad: Tensor | None, damping: float) -> Solution:
        """Return G = c C + (C P) diag(w) P^T for the centred sums C = grad - bias_grad m^T.

        C is not formed, unless the inputs are far from 0. Each unit's predicted change
        tr(G Q G^T) follows from C P and the norms of C.
        """
        if bias_grad is not None and self.far:
            C = grad - bias_grad[:, :, None] * self.mean[:, None]
            return replace(self.solve(C, None, damping), bias=bias_grad, far_mean=self.mean)
        inverse = self.damped(damping, bias=bias_grad is not None)
        along = grad @ inverse.right
        squares = torch.linalg.vector_norm(grad, dim=2).square_()
        bias = None
        if bias_grad is not None:
            b = bias_grad[:, :, None]
            squares += bias_grad * (bias_grad * inverse.mean_along[:, :, -1] - 2 * along[:, :, -1])
            along.addcmul_(b, inverse.mean_along, value=-1)
            bias = torch.baddbmm(b, along, inverse.bias_along, alpha=-1)[:, :, 0]
        left = along * inverse.w
        if bias_grad is not None:
            torch.mul(bias_grad, -inverse.c, out=left[:, :, -1])
        change = (along.square_() @ inverse.gains)[:, :, 0].addcmul_(squares, inverse.tail_gain)
        dense = inverse.c[:, :, None]
        return Solution(change.clamp_min_(0), grad, dense, left, inverse.right, bias)

    def unit_map(self, damping: float, scale: Tensor) -> "UnitMap":
        """Return (Q + delta I)^-1 up to a factor, as a map of unscaled residuals.

        These are the moments of residuals times each unit's scale; delta is ``damping`` times
        their mean variance.
        """
        inverse = self.damped(damping / len(scale))
        each = scale.view(1, -1, 1)
        varies = each > 0  # rounding errors give constant units a part in the directions
        weighted = self.basis * (inverse.w / inverse.c[:, :, None])
        left = torch.where(varies, weighted / torch.where(varies, each, 1), 0)
        return UnitMap(left, self.basis * each)

    def inverse_rows(self, damping: float, columns: Tensor) -> Tensor:
        """Return some rows of the first group's (Q + delta I)^-1, (len(columns), all columns)."""
        inverse = self.damped(damping)
        rows = (self.basis[0, columns] * inverse.w[0]) @ self.basis[0].T
        rows[torch.arange(len(columns)), columns] += inverse.c[0, 0]
        return rows

    def inverse_diagonal(self, damping: float) -> Tensor:
        """Return the diagonal of (Q + delta I)^-1, (groups, columns)."""
        inverse = self.damped(damping)
        return inverse.c + (self.basis.square() * inverse.w).sum(dim=2)

    def select(self, columns: Tensor) -> Self:
        """Return the moments of some columns, with orthogonal directions again."""
        left = self.basis[:, columns]
        share = len(columns) / self.basis.shape[1]
        tail = (self.total - self.strength.sum(dim=1)).clamp_min(0)
        kept = (left.square().sum(dim=1) * self.strength).sum(dim=1) + share * tail
        stack = (left * self.strength.sqrt()[:, None]).mT
        basis, strength = strongest(stack, min(self.basis.shape[2], len(columns)))
        return type(self)(self.mean[:, columns].contiguous(), basis, strength, kept)


@dataclass
class Diagonal(Moments):
    """Q of one-hot inputs: nearly the diagonal of the tokens' frequencies."""

    frequency: Tensor  # of each token, (1, tokens)

    @classmethod
    def observe(cls, rows: Tensor, past: "Self | None", k: int, **_options: Any) -> Self:
        """Update the frequencies from each token's count, ``rows``, (1, 1, tokens)."""
        fresh = rows[:, 0] / rows.sum().clamp_min(1)
        frequency = fresh if past is None else past.frequency.lerp(fresh, 1 - memory(k))
        return cls(torch.zeros_like(frequency), frequency)

    def solve(self, grad: Tensor, bias_grad: Tensor | None, damping: float) -> Solution:
        """Solve for each token's column separately."""
        c = 1 / (self.frequency + damping * self.frequency.sum())
        none = grad.new_zeros(1, grad.shape[1], 0), grad.new_zeros(1, grad.shape[2], 0)
        change = grad.square() @ (self.frequency * c.square())[:, :, None]
        return Solution(change[:, :, 0], grad, c[:, None], *none, bias_grad)


Preconditioner = LowRank | Diagonal


def _eigh(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Decompose symmetric matrices, in float64 where float32 fails.

    MKL's float32 routine raises an error or returns NaN for some matrices with many zero rows, such
    as those of residuals that are 0 for most samples.
    """
    try:
        values, vectors = torch.linalg.eigh(gram)
        if bool(vectors.isfinite().all()):
            return values, vectors
    except RuntimeError:  # LinAlgError
        pass
    values, vectors = torch.linalg.eigh(gram.double())
    return values.to(gram), vectors.to(gram)


def strongest(stack: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return each group's ``rank`` leading eigenvectors and eigenvalues of stack^T stack.

    The smaller of the two Gram matrices is decomposed. Directions without variance are 0.
    """
    n, columns = stack.shape[1:]
    by_rows = n < columns
    gram = stack @ stack.mT if by_rows else stack.mT @ stack
    if not bool(gram.isfinite().all()):  # the loss will tell
        shape = (len(stack), columns, rank)
        return stack.new_full(shape, torch.nan), stack.new_full(shape[::2], torch.nan)
    values, vectors = _eigh(gram)
    lacking = max(0, rank - values.shape[1])
    strength = functional.pad(values[:, -rank:].clamp_min(0), (lacking, 0))
    basis = functional.pad(vectors[:, :, -rank:], (lacking, 0))
    floor = 10 * torch.finfo(stack.dtype).eps * strength[:, -1:]
    strength = torch.where(strength > floor, strength, 0)
    if by_rows:
        length = torch.where(strength > 0, strength, 1).sqrt()
        basis = stack.mT @ (basis / length[:, None])
    return basis * (strength > 0)[:, None], strength
