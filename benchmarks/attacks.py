"""Attacks on dense networks with inputs in [0, 1], each of them on many images at once.

An attack says which images it fools: those whose class changes within a ball around the image. It
takes only images that the network classifies correctly. ``pgd`` reads the weights; ``square`` sees
scores; ``rays`` and ``hop_skip_jump`` see classes only; ``random_points`` looks at random.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ROWS = 20_000  # images that pass the network at once
ALPHAS = (0.5, 0.01)  # the first and the last step of pgd, relative to the radius
MOMENTUM = 0.75


@dataclass
class Victim:
    """A trained network with its scaling folded into the first layer.

    Attributes:
        weights: one matrix for each layer, (units out, units in).
        biases: one vector for each layer.
        steps: whether hidden units are 0/1 steps; otherwise they are ReLU.
        scales: the standard deviation of each hidden unit's pre-activation.

    """

    weights: list[Tensor]
    biases: list[Tensor]
    steps: bool
    scales: list[Tensor]

    @classmethod
    def of(cls, model: Any, X: Tensor, *, steps: bool) -> "Victim":
        """Take the layers of a 0/1 network or a baseline that was trained on bytes.

        Args:
            model: the network.
            X: images in [0, 1], for the scales of the hidden units.
            steps: whether hidden units are 0/1 steps.

        """
        scaling, operators = model.scaling, list(model.operators)
        used = slice(None) if scaling.taken is None else scaling.taken
        scale = scaling.scale.double().expand_as(scaling.centre)[used]
        W = operators[0].linear.double() / scale
        offsets = [
            op.weight.new_zeros(op.n_out) if op.offset is None else op.offset for op in operators
        ]
        whole = W.new_zeros(len(W), len(scaling.centre))
        whole[:, used] = 255 * W
        biases = [(offsets[0].double() - W @ scaling.centre.double()[used]).float()]
        weights = [whole.float(), *(op.linear.clone() for op in operators[1:])]
        victim = cls(weights, biases + [b.clone() for b in offsets[1:]], steps, [])
        victim.scales = [u.std(dim=0).clamp_min(1e-6) for u in victim.pre_activations(X)[:-1]]
        return victim

    def pre_activations(
        self, X: Tensor, value: Callable[[int, Tensor], Tensor] | None = None
    ) -> list[Tensor]:
        """Return those of each layer, the last of which are the scores."""
        found: list[Tensor] = []
        for k, (W, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            if k:
                X = self.activate(found[-1]) if value is None else value(k - 1, found[-1])
            found.append(torch.addmm(b, X, W.T))
        return found

    def activate(self, U: Tensor) -> Tensor:
        """Return a hidden layer's activations."""
        return (U > 0).to(U.dtype) if self.steps else U.relu()

    def scores(self, X: Tensor) -> Tensor:
        """Return the scores of images."""
        return torch.cat([self.pre_activations(rows)[-1] for rows in X.split(ROWS)])

    def fooled(self, X: Tensor, y: Tensor) -> Tensor:
        """Tell which images get another class."""
        return self.scores(X).argmax(dim=1) != y


def margins(scores: Tensor, y: Tensor) -> Tensor:
    """Return how far the right class leads; below 0 it does not."""
    others = scores.scatter(1, y[:, None], -math.inf)
    return scores.gather(1, y[:, None])[:, 0] - others.amax(dim=1)


def ball(X: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest pixels of the l-infinity ball that are in [0, 1]."""
    return (X - radius).clamp_(min=0), (X + radius).clamp_(max=1)


# Surrogates of the step.


@dataclass(frozen=True)
class Surrogate:
    """What stands for the derivative of the step while an attack computes gradients.

    Attributes:
        shape: 'window' has slope 1 where |u| is at most the width, 'sigmoid' that of a sigmoid;
            'smooth' replaces the step by the sigmoid in the forward pass, too.
        width: relative to the standard deviation of the unit's pre-activation.

    """

    shape: str
    width: float

    def slope(self, u: Tensor) -> Tensor:
        """Return the derivative at pre-activations relative to their scale, up to a factor."""
        if self.shape == "window":
            return (u.abs() <= self.width).to(u.dtype)
        bit = torch.sigmoid(u / self.width)
        return bit * (1 - bit)

    def __str__(self) -> str:
        return f"{self.shape} {self.width:g}"


def gradient(
    victim: Victim, X: Tensor, surrogate: Surrogate, pull: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the gradient at X of a loss on the scores, whose derivative is ``pull``."""
    smooth = victim.steps and surrogate.shape == "smooth"

    def soft(k: int, U: Tensor) -> Tensor:
        return torch.sigmoid(U / (victim.scales[k] * surrogate.width))

    *hidden, scores = victim.pre_activations(X, soft if smooth else None)
    G = pull(scores)
    for k in range(len(hidden), 0, -1):
        G = G @ victim.weights[k]
        if victim.steps:
            G *= surrogate.slope(hidden[k - 1] / victim.scales[k - 1]).div_(victim.scales[k - 1])
        else:
            G *= hidden[k - 1] > 0
    return G @ victim.weights[0]


def descent(scores: Tensor, y: Tensor, temperature: float) -> Tensor:
    """Return the derivative of the cross-entropy of softmax(scores / temperature).

    With temperature 0 that of the largest wrong score minus the right one: its limit for images
    that are still classified correctly.
    """
    if temperature:
        G = torch.softmax(scores / temperature, dim=1)
    else:
        others = scores.scatter(1, y[:, None], -math.inf).argmax(dim=1)
        G = torch.zeros_like(scores).scatter_(1, others[:, None], 1.0)
    return G.scatter_add_(1, y[:, None], -torch.ones_like(G[:, :1]))


def pgd(
    victim: Victim,
    X: Tensor,
    y: Tensor,
    radius: float,
    surrogate: Surrogate | Sequence[Surrogate],
    temperature: float,
    steps: int,
    rng: torch.Generator,
    *,
    start: Tensor | None = None,
    to_the_end: bool = False,
) -> tuple[Tensor, Tensor]:
    """Follow the signs of surrogate gradients (BPDA for steps; plain PGD for ReLU).

    Args:
        victim: the network.
        X: images.
        y: their classes.
        radius: of the l-infinity ball.
        surrogate: of the step, or several that take turns; ReLU has derivatives of its own.
        temperature: of the cross-entropy, see ``descent``.
        steps: the number of steps.
        rng: the source of the random start.
        start: where to start; None for a random corner of the ball.
        to_the_end: whether to go on with images that are fooled, for a transfer to others.

    Returns:
        Which images were fooled, and the last point of each.

    """
    turns = [surrogate] if isinstance(surrogate, Surrogate) else surrogate
    low, high = ball(X, radius)
    if start is None:
        start = torch.where(torch.randint(2, X.shape, generator=rng).bool(), low, high)
    fooled, last = torch.zeros(len(X), dtype=torch.bool), start.clone()
    left, now, before = torch.arange(len(X)), start, start
    for k in range(steps + 1):
        done = victim.fooled(now, y[left])
        last[left], fooled[left] = now, done
        if k == steps:
            break
        if done.any() and not to_the_end:
            kept = (~done).nonzero()[:, 0]
            left, now, before, low, high = (t[kept] for t in (left, now, before, low, high))
            if not len(left):
                break
        labels = y[left]
        G = gradient(
            victim, now, turns[k % len(turns)], lambda s, y=labels: descent(s, y, temperature)
        )
        alpha = radius * (ALPHAS[0] + (ALPHAS[1] - ALPHAS[0]) * k / steps)
        aim = torch.minimum(torch.maximum(now + alpha * G.sign(), low), high)
        moved = now + MOMENTUM * (aim - now) + (1 - MOMENTUM) * (now - before)
        now, before = torch.minimum(torch.maximum(moved, low), high), now
    return fooled, last


# Without gradients.


def random_points(
    victim: Victim, X: Tensor, y: Tensor, draw: Callable[[Tensor], Tensor], times: int
) -> Tensor:
    """Tell which images are fooled by one of so many random points."""
    fooled = torch.zeros(len(X), dtype=torch.bool)
    for _ in range(times):
        left = (~fooled).nonzero()[:, 0]
        if not len(left):
            break
        fooled[left] = victim.fooled(draw(left), y[left])
    return fooled


def corners(X: Tensor, radius: float, rng: torch.Generator) -> Callable[[Tensor], Tensor]:
    """Draw corners of the ball."""
    low, high = ball(X, radius)

    def draw(rows: Tensor) -> Tensor:
        up = torch.randint(2, (len(rows), X.shape[1]), generator=rng).bool()
        return torch.where(up, high[rows], low[rows])

    return draw


def noise_in_ball(X: Tensor, radius: float, rng: torch.Generator) -> Callable[[Tensor], Tensor]:
    """Draw Gaussian noise, of the radius as its standard deviation, clipped to the ball."""

    def draw(rows: Tensor) -> Tensor:
        noise = torch.empty(len(rows), X.shape[1]).normal_(0, radius, generator=rng)
        return (X[rows] + noise.clamp_(-radius, radius)).clamp_(0, 1)

    return draw


def square(
    victim: Victim, X: Tensor, y: Tensor, radius: float, queries: int, rng: torch.Generator
) -> Tensor:
    """Square attack on the scores: Andriushchenko et al. (2020), l-infinity.

    It starts with vertical stripes and changes one random square at a time, if the margin falls.

    Returns:
        After how many queries each image was fooled; 0 if it was not.

    """
    side = math.isqrt(X.shape[1])
    low, high = ball(X, radius)
    found, left = torch.zeros(len(X), dtype=torch.long), torch.arange(len(X))

    def signs(*shape: int) -> Tensor:
        return torch.randint(2, shape, generator=rng).bool()

    now = torch.where(signs(len(X), 1, side).expand(-1, side, -1).flatten(1), low, high)
    best = margins(victim.scores(now), y)
    places = torch.arange(side)
    for query in range(1, queries + 1):
        if query > 1:
            width = max(1, round(side * math.sqrt(_square_share(query / queries))))
            top = torch.randint(side - width + 1, (2, len(left), 1), generator=rng)
            inside = (places >= top) & (places < top + width)
            there = (inside[0][:, :, None] & inside[1][:, None, :]).flatten(1)
            tried = torch.where(there, torch.where(signs(len(left), 1), low, high), now)
            margin = margins(victim.scores(tried), y[left])
            better = margin < best
            now = torch.where(better[:, None], tried, now)
            best = torch.where(better, margin, best)
        done = best < 0
        if done.any():
            found[left[done]] = query
            kept = (~done).nonzero()[:, 0]
            left, now, best, low, high = (t[kept] for t in (left, now, best, low, high))
            if not len(left):
                break
    return found


def _square_share(progress: float) -> float:
    """Return the share of pixels to change: 0.8, halved at the source's shares of all queries."""
    halvings = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
    return 0.8 / 2 ** sum(progress > share for share in halvings)


@dataclass
class Search:
    """How near a decision-based attack has come: the queries and the distance of each image.

    ``reports`` has both after each round, so that errors can be told for any number of queries.
    """

    queries: Tensor
    distance: Tensor
    reports: list[tuple[Tensor, Tensor]]

    @classmethod
    def begin(cls, n: int) -> "Search":
        return cls(torch.zeros(n, dtype=torch.long), torch.full((n,), math.inf), [])

    def report(self) -> None:
        self.reports.append((self.queries.clone(), self.distance.clone()))

    def after(self, queries: int) -> Tensor:
        """Return the distances of the last reports of no more than so many queries."""
        found = torch.full_like(self.distance, math.inf)
        for used, distance in self.reports:
            found = torch.where(used <= queries, distance, found)
        return found


def rays(victim: Victim, X: Tensor, y: Tensor, queries: int, precision: float = 1e-3) -> Search:
    """RayS on the classes: Chen and Gu (2020), the nearest corner of an l-infinity ball.

    A direction is one sign for each pixel; each round flips the signs of one block of pixels, and
    blocks halve. A direction that is better at the current distance gets a binary search.
    """
    n, d = X.shape
    search, signs = Search.begin(n), torch.ones_like(X)
    level, block = 0, 0

    def is_fooled(rows: Tensor, directions: Tensor, distance: Tensor) -> Tensor:
        search.queries[rows] += 1
        moved = X[rows] + distance[:, None] * directions
        return victim.fooled(moved.clamp_(0, 1), y[rows])

    def consider(rows: Tensor, directions: Tensor) -> None:
        """Take directions in which the current distance, at most 1, is enough."""
        start = search.distance[rows].clamp(max=1.0)
        better = is_fooled(rows, directions, start)
        rows, directions, far = rows[better], directions[better], start[better]
        near = torch.zeros_like(far)
        while len(rows) and float((far - near).max()) > precision:
            middle = (near + far) / 2
            done = is_fooled(rows, directions, middle)
            near, far = torch.where(done, near, middle), torch.where(done, middle, far)
        search.distance[rows], signs[rows] = far, directions

    everyone = torch.arange(n)
    consider(everyone, signs.clone())
    while True:
        rows = (search.queries < queries).nonzero()[:, 0]
        if not len(rows):
            return search
        size = max(1, math.ceil(d / 2**level))
        flipped = signs[rows]
        flipped[:, block * size : (block + 1) * size] *= -1
        consider(rows, flipped)
        search.report()
        block += 1
        if block * size >= d:
            level, block = (0 if size == 1 else level + 1), 0


def hop_skip_jump(
    victim: Victim,
    X: Tensor,
    y: Tensor,
    start: Tensor,
    queries: int,
    probe: float,
    rng: torch.Generator,
    first: int = 50,
) -> Search:
    """HopSkipJump on the classes: Chen, Jordan and Wainwright (2020), l2.

    Args:
        victim: the network.
        X: images.
        y: their classes.
        start: images of another class, where the search starts.
        queries: at least so many for each image; the last round may take more.
        probe: how far to look for the boundary's normal, relative to the distance; the source has
            one over the number of pixels. A network of steps is flat near a point: it needs more.
        rng: the source of random directions.
        first: the number of directions in the first round; later ones grow with its root.

    """
    search = Search.begin(len(X))
    now = _to_boundary(victim, X, y, start, search)
    search.distance = (now - X).norm(dim=1)
    search.report()
    rounds = 0
    while int(search.queries.min()) < queries:
        rounds += 1
        directions = round(first * math.sqrt(rounds))
        G = _normals(victim, now, y, search.distance * probe, directions, rng)
        search.queries += directions
        length, best = search.distance / math.sqrt(rounds), now.clone()
        left = torch.arange(len(X))
        for _ in range(12):
            tried = (now[left] + length[left, None] * G[left]).clamp_(0, 1)
            search.queries[left] += 1
            done = victim.fooled(tried, y[left])
            best[left[done]] = tried[done]
            left = left[~done]
            if not len(left):
                break
            length[left] /= 2
        found = _to_boundary(victim, X, y, best, search)
        distance = (found - X).norm(dim=1)
        nearer = distance < search.distance
        now = torch.where(nearer[:, None], found, now)
        search.distance = torch.where(nearer, distance, search.distance)
        search.report()
    return search


def _to_boundary(victim: Victim, X: Tensor, y: Tensor, far: Tensor, search: Search) -> Tensor:
    """Move points of another class towards their images, by binary search."""
    low, high = torch.zeros(len(X)), torch.ones(len(X))
    for _ in range(10):
        middle = (low + high) / 2
        done = victim.fooled(X + middle[:, None] * (far - X), y)
        low, high = torch.where(done, low, middle), torch.where(done, middle, high)
    search.queries += 10
    return X + high[:, None] * (far - X)


def _normals(
    victim: Victim, at: Tensor, y: Tensor, length: Tensor, directions: int, rng: torch.Generator
) -> Tensor:
    """Estimate the boundary's normals from the classes at random points around it."""
    found = []
    for points, labels, size in _chunks(at, y, length, rows=max(1, ROWS // directions)):
        noise = torch.empty(len(points), directions, at.shape[1]).normal_(generator=rng)
        noise /= noise.norm(dim=2, keepdim=True)
        near = (points[:, None] + size[:, None, None] * noise).clamp_(0, 1)
        noise = (near - points[:, None]) / size[:, None, None]
        bits = victim.fooled(near.flatten(0, 1), labels.repeat_interleave(directions))
        value = 2.0 * bits.view(len(points), directions) - 1
        mean = value.mean(dim=1, keepdim=True)
        value = torch.where(mean.abs() == 1, value, value - mean)
        found.append((value[:, None, :] @ noise)[:, 0])
    G = torch.cat(found)
    return G / G.norm(dim=1, keepdim=True).clamp_min(1e-12)


def _chunks(*tensors: Tensor, rows: int) -> Iterator[tuple[Tensor, ...]]:
    yield from zip(*(tensor.split(rows) for tensor in tensors), strict=True)
