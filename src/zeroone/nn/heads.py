"""Heads: a loss on the scores U_h of a network, and its U_h block.

A head knows its loss per sample and the minimiser over U_h of

    1/N sum_s loss(u_s, y_s) + tau/2 ||U_h - B||^2,   B = W_h V_{h-1},

which falls apart into one small problem for each sample,  min_u loss(u, y) + mu/2 ||u - b||^2  with
mu = tau N. ``gap`` tells by how much a given U_h misses that minimum. ``register_head`` makes a
head known by its ``kind``.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from zeroone.nn.functional import hardmax, next_up, one_hot
from zeroone.nn.targets import Classes, Indicators, Numbers, SoftClasses, Targets
from zeroone.utils.checks import InputError, not_negative, one_of, share

PRINTED_EPSILON = 1e-10  # what the paper adds to 'just exceed' a threshold
NEWTON_STEPS = 60  # at most
HEADS: dict[str, "type[Head]"] = {}


def register_head(head: "type[Head]") -> "type[Head]":
    """Make a head known by its ``kind``, in settings, on the command line and in model files."""
    HEADS[head.kind] = head
    return head


def make_head(kind: str, margin: float = 0.0, smoothing: float = 0.0) -> "Head":
    """Build the head of that name; a head without a margin ignores it."""
    head = HEADS[one_of("head", kind, HEADS)]
    made = head(margin) if head.has_margin else head()
    if share("smoothing", smoothing) == 1:
        raise InputError(f"smoothing must be below 1, got {smoothing!r}.")
    made.smoothing = smoothing
    return made


class Head(ABC):
    """A loss on the scores and its U_h block."""

    kind: ClassVar[str]
    targets: ClassVar[Targets] = Classes()  # what y may be, and what the network answers
    has_margin: ClassVar[bool] = False  # whether it is built with a margin
    has_smoothing: ClassVar[bool] = True  # whether its training smooths the labels
    undoes_smoothing: ClassVar[bool] = False  # whether its probabilities depend on the smoothing
    smoothing: float = 0.0  # with which the network was trained

    def __init__(self, margin: float = 0.0) -> None:
        self.margin = not_negative("margin", margin)

    @abstractmethod
    def losses(self, U: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each sample."""

    @abstractmethod
    def u_step(self, B: Tensor, y: Tensor, mu: float) -> Tensor:
        """Solve the U_h block."""

    def training_losses(self, B: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:  # noqa: ARG002
        """Return what stochastic BCD minimises: minus its gradient is E_h = U_h - B."""
        return self.losses(B, y)

    @abstractmethod
    def gap(self, U: Tensor, B: Tensor, y: Tensor, mu: float) -> Tensor:
        """Return by how much each row of U exceeds the minimum of its problem (at least 0)."""

    @abstractmethod
    def probabilities(self, U: Tensor) -> Tensor:
        """Return class probabilities; each row sums to 1 if a sample has one class."""

    def describe(self) -> dict[str, Any]:
        """Return what a model file says of the head."""
        smooth = self.undoes_smoothing and self.smoothing
        return (
            {"kind": self.kind}
            | ({"margin": self.margin} if self.has_margin else {})
            | ({"smoothing": self.smoothing} if smooth else {})
        )


@register_head
class HardmaxMSE(Head):
    """The paper's head: loss(u, y) = 1/2 ||y - hardmax(u)||^2, optionally with a margin.

    With ``margin`` m > 0 the hardmax is taken after every competitor's score was raised by m,
    so a sample counts as right only if its class leads by more than m. Margin 0 is the paper.
    """

    kind = "hardmax"
    has_margin = True

    def _raised(self, U: Tensor, y: Tensor) -> Tensor:
        return U + self.margin * (1 - one_hot(y, U.shape[1], U.dtype))

    def losses(self, U: Tensor, y: Tensor) -> Tensor:
        """Return 1/2 ||y - hardmax(u)||^2: 0 if right, 1 if a wrong class leads, more at a tie."""
        raised = self._raised(U, y)
        return (one_hot(y, U.shape[1], U.dtype) - hardmax(raised)).square().sum(dim=1) / 2

    def u_step(self, B: Tensor, y: Tensor, mu: float) -> Tensor:
        """Solve min_u 1/2 ||y - hardmax(u)||^2 + mu/2 ||u - b||^2 for each row  (u-outproblem).

        Two answers compete. Make y the only leader, for which the cheapest way is the projection
        of b onto {u_y >= u_j + margin for all j}: it raises u_y *and* lowers the competitors
        above it. Or leave y wrong at a loss of 1, which costs no move, except that a tie between
        several wrong leaders (a loss above 1) is broken by the smallest step there is.
        The infimum is not attained, as the lead must be strict: we take ``next_up``.
        Tie rule: where both cost the same, b stays.

        Deviates from Lemma 1 (u-outlemma), which raises u_y only and often pays more (erratum E2);
        ``lemma_1`` is that lemma to the letter, with its epsilon of 1e-10.
        """
        projected = self._project(B, y)
        too_dear = mu / 2 * (projected - B).square().sum(dim=1) >= 1
        kept = self._break_ties(B, y)
        stays = too_dear & (self.losses(B, y) > 0)
        return torch.where(stays[:, None], kept, projected)

    def training_losses(self, B: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return 1/2 ||b - u||^2, u the projection of b; its gradient is b - u, as {u} is convex.

        E_h = u - b is the U_h block for mu -> 0: every sample is worth its projection.
        ``smoothing`` pulls against too much certainty, as label smoothing does: where the class
        leads by more than the margin, it lowers the score by that share of the excess.
        """
        with torch.no_grad():
            U = self._project(B, y)
            runner_up = self._raised(B, y).scatter(1, y[:, None], -torch.inf).amax(dim=1)
        excess = (B.gather(1, y[:, None])[:, 0] - runner_up).clamp_min(0)
        return (B - U).square().sum(dim=1) / 2 + smoothing / 2 * excess.square()

    def _project(self, B: Tensor, y: Tensor) -> Tensor:
        """Project onto {u_y >= u_j + margin} by sorting, then make the lead of u_y strict.

        All competitors above a level t come down to t - margin and b_y rises to t. With the k
        highest raised competitors c_1 >= ... >= c_k moving, t is the mean of b_y and those; k is
        the number of them that lie above their own mean.
        """
        own = y[:, None]
        raised = (B + self.margin).scatter(1, own, -torch.inf)
        highest = raised.sort(dim=1, descending=True).values
        counts = torch.arange(1, B.shape[1] + 1, dtype=B.dtype, device=B.device)
        b_y = B.gather(1, own)
        means = (b_y + highest.cumsum(dim=1)) / (1 + counts)
        k = (highest > means).sum(dim=1, keepdim=True)
        level = torch.cat([b_y, means], dim=1).gather(1, k)
        U = torch.where(raised > level, level - self.margin, B)
        top = (U + self.margin).scatter(1, own, -torch.inf).amax(dim=1, keepdim=True)
        return U.scatter(1, own, torch.maximum(level, next_up(top)))

    def _break_ties(self, B: Tensor, y: Tensor) -> Tensor:
        """Where several (raised) scores lead, lift the first of them by the least that counts."""
        raised = self._raised(B, y)
        first = raised.argmax(dim=1, keepdim=True)
        top = raised.gather(1, first)
        tied = (raised == top).sum(dim=1, keepdim=True) > 1
        b_first = B.gather(1, first)
        # Both candidates exceed b; with a margin either one may be lost to rounding, not both.
        lifted = torch.maximum(next_up(b_first), next_up(next_up(top)) - self.margin)
        return B.scatter(1, first, torch.where(tied, lifted, b_first))

    def lemma_1(self, B: Tensor, y: Tensor, mu: float) -> Tensor:
        """Apply Lemma 1 as printed (soultion-Uh): raise u_y by Delta + 1e-10 or keep b."""
        own = y[:, None]
        b_y = B.gather(1, own)
        top = self._raised(B, y).amax(dim=1, keepdim=True)
        delta = top - b_y
        worth = mu / 2 * delta.square() < self.losses(B, y)[:, None]
        return B.scatter(1, own, torch.where(worth, b_y + (delta + PRINTED_EPSILON), b_y))

    def gap(self, U: Tensor, B: Tensor, y: Tensor, mu: float) -> Tensor:
        """Return loss(u) + mu/2 ||u - b||^2 minus its infimum, the cheaper of two answers."""
        value = self.losses(U, y) + mu / 2 * (U - B).square().sum(dim=1)
        project = mu / 2 * (self._project(B, y) - B).square().sum(dim=1)
        return (value - project.clamp_max(1.0)).clamp_min(0)

    def probabilities(self, U: Tensor) -> Tensor:
        """Return the hardmax, shared evenly between tied leaders."""
        leaders = hardmax(U)
        return leaders / leaders.sum(dim=1, keepdim=True)


@register_head
class SoftmaxCE(Head):
    """Extension I: loss(u, y) = -log softmax(u)_y (per sample: the paper prints no 1/N, E11).

    Labels may be rows of class probabilities p: the loss is then -sum_j p_j log softmax(u)_j.
    """

    kind = "softmax"
    targets = SoftClasses()
    undoes_smoothing = True

    def losses(self, U: Tensor, y: Tensor) -> Tensor:
        """Return the cross entropy of each sample."""
        return functional.cross_entropy(U, y, reduction="none")

    def u_step(self, B: Tensor, y: Tensor, mu: float) -> Tensor:
        """Solve min_u CE(y, softmax(u)) + mu/2 ||u - b||^2 for each row, by damped Newton steps.

        The Hessian diag(p) + mu I - p p^T is a diagonal plus rank one, so a Newton step costs as
        much as a gradient. The paper drops U_h in this extension and leaves the W_h and V_{h-1}
        problems to gradient descent; keeping U_h keeps those two blocks exact.
        """
        Y = _shares(y, B)
        U = B.clone()
        eps = torch.finfo(B.dtype).eps
        for _ in range(NEWTON_STEPS):
            P = torch.softmax(U, dim=1)
            G = P - Y + mu * (U - B)
            if float(G.abs().max()) <= 16 * eps:
                break
            U = self._line_search(U, _newton_direction(P, G, mu), G, B, y, mu)
        return U

    def training_losses(self, B: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the cross entropy, of which U_h takes one gradient step."""
        return functional.cross_entropy(B, y, label_smoothing=smoothing, reduction="none")

    def _line_search(
        self, U: Tensor, direction: Tensor, G: Tensor, B: Tensor, y: Tensor, mu: float
    ) -> Tensor:
        """Halve each row's step until it lowers the value enough (Armijo), up to rounding."""
        value = self._value(U, B, y, mu)
        slack = 4 * torch.finfo(U.dtype).eps * (1 + value.abs())
        slope = (G * direction).sum(dim=1)
        size = torch.ones_like(value)
        for _ in range(40):
            trial = U + size[:, None] * direction
            too_far = self._value(trial, B, y, mu) > value + 1e-4 * size * slope + slack
            if not bool(too_far.any()):
                break
            size = torch.where(too_far, size / 2, size)
        return trial

    def _value(self, U: Tensor, B: Tensor, y: Tensor, mu: float) -> Tensor:
        return self.losses(U, y) + mu / 2 * (U - B).square().sum(dim=1)

    def gap(self, U: Tensor, B: Tensor, y: Tensor, mu: float) -> Tensor:
        """Return a bound: gap <= ||gradient||^2/(2 mu), as the problem is mu-strongly convex."""
        G = torch.softmax(U, dim=1) - _shares(y, U) + mu * (U - B)
        return G.square().sum(dim=1) / (2 * mu)

    def probabilities(self, U: Tensor) -> Tensor:
        """Return the softmax without the smoothing of the labels."""
        return _unsmoothed(torch.softmax(U, dim=1), self.smoothing)


def _shares(y: Tensor, U: Tensor) -> Tensor:
    """Return labels as rows of probabilities, which they may be already."""
    return one_hot(y, U.shape[1], U.dtype) if y.ndim == 1 else y


def _unsmoothed(q: Tensor, s: float) -> Tensor:
    """Undo the smoothing s of labels over K classes, in the last dimension.

    q estimates (1 - s) p + s/K. So p is (q - s/K)/(1 - s), but at least s q: never 0, and in the
    order of the scores.
    """
    p = torch.maximum((q - s / q.shape[-1]) / (1 - s), s * q)
    return functional.normalize(p, p=1, dim=-1).clamp_min(torch.finfo(p.dtype).tiny)


def _newton_direction(P: Tensor, G: Tensor, mu: float) -> Tensor:
    """Return -(diag(p) + mu I - p p^T)^-1 g by the Sherman-Morrison formula."""
    D = 1 / (P + mu)
    # 1 - sum p^2/(p+mu) = sum p mu/(p+mu), written so that nothing cancels.
    denominator = (P * mu * D).sum(dim=1, keepdim=True)
    return -D * (G + P * ((P * D * G).sum(dim=1, keepdim=True) / denominator))


@register_head
class LogisticCE(Head):
    """Any number of labels: loss(u, y) = sum_j log(1 + exp(u_j)) - y_j u_j, with y_j 0 or 1."""

    kind = "logistic"
    targets = Indicators()
    undoes_smoothing = True

    def losses(self, U: Tensor, y: Tensor) -> Tensor:
        """Return the binary cross entropy of each sample, summed over the labels."""
        return functional.binary_cross_entropy_with_logits(U, y, reduction="none").sum(dim=1)

    def u_step(self, B: Tensor, y: Tensor, mu: float) -> Tensor:
        """Solve min_u log(1 + exp(u)) - y u + mu/2 (u - b)^2 for each entry, by Newton steps.

        The derivative rises, and is 0 between b - (1 - y)/mu and b + y/mu. A Newton step that would
        leave what is left of this interval is replaced by its middle.
        """
        low, high, U = B - (1 - y) / mu, B + y / mu, B
        eps = torch.finfo(B.dtype).eps
        for _ in range(NEWTON_STEPS):
            P = torch.sigmoid(U)
            G = P - y + mu * (U - B)
            if float(G.abs().max()) <= 16 * eps:
                break
            low, high = torch.where(G < 0, U, low), torch.where(G > 0, U, high)
            newton = U - G / (P * (1 - P) + mu)
            inside = (low < newton) & (newton < high)
            U = torch.where(inside, newton, (low + high) / 2)
        return U

    def training_losses(self, B: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the cross entropy with each label as (1 - s) y + s/2."""
        return self.losses(B, (1 - smoothing) * y + smoothing / 2)

    def gap(self, U: Tensor, B: Tensor, y: Tensor, mu: float) -> Tensor:
        """Return a bound: gap <= ||gradient||^2/(2 mu), as the problem is mu-strongly convex."""
        G = torch.sigmoid(U) - y + mu * (U - B)
        return G.square().sum(dim=1) / (2 * mu)

    def probabilities(self, U: Tensor) -> Tensor:
        """Return the probability of each label, without the smoothing; rows do not sum to 1."""
        both = torch.stack([torch.sigmoid(U), torch.sigmoid(-U)], dim=-1)
        return _unsmoothed(both, self.smoothing)[..., 0]


@register_head
class LinearSE(Head):
    """Real numbers: loss(u, y) = 1/2 ||u - y||^2."""

    kind = "linear"
    targets = Numbers()
    has_smoothing = False

    def losses(self, U: Tensor, y: Tensor) -> Tensor:
        """Return half the squared error of each sample."""
        return (U - y).square().sum(dim=1) / 2

    def u_step(self, B: Tensor, y: Tensor, mu: float) -> Tensor:
        """Solve min_u 1/2 ||u - y||^2 + mu/2 ||u - b||^2: u = (y + mu b)/(1 + mu)."""
        return (y + mu * B) / (1 + mu)

    def gap(self, U: Tensor, B: Tensor, y: Tensor, mu: float) -> Tensor:
        """Return the gap (1 + mu)/2 ||u - u*||^2 to the minimiser u*."""
        return (1 + mu) / 2 * (U - self.u_step(B, y, mu)).square().sum(dim=1)

    def probabilities(self, U: Tensor) -> Tensor:  # noqa: ARG002
        """Refuse: numbers have no probabilities."""
        raise InputError("this network predicts numbers, and numbers have no probabilities.")
