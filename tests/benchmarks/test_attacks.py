"""Attacks find what is there: on linear classifiers the distance to the boundary is known."""

import pytest
import torch

from benchmarks import attacks
from benchmarks.attacks import Surrogate, Victim

SIDE, N = 6, 40
WINDOW = Surrogate("window", 1.0)


@pytest.fixture(scope="module")
def linear():
    """A linear classifier of images well inside [0, 1]; l-infinity and l2 distances."""
    rng = torch.Generator().manual_seed(0)
    W = torch.randn(2, SIDE**2, generator=rng)
    X = 0.5 + 0.2 * (torch.rand(N, SIDE**2, generator=rng) - 0.5)
    b = -(X @ W.T).mean(dim=0)
    victim = Victim([W], [b], steps=False, scales=[])
    scores = victim.scores(X)
    w, gap = W[1] - W[0], (scores[:, 1] - scores[:, 0]).abs()
    return victim, X, scores.argmax(dim=1), gap / w.abs().sum(), gap / w.norm()


def steps_network(seed=0, n_in=SIDE**2):
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=rng)

    weights = [draw(30, n_in), draw(20, 30), draw(3, 20)]
    victim = Victim(weights, [draw(len(W)) for W in weights], steps=True, scales=[])
    X = torch.rand(N, n_in, generator=rng)
    for k in range(3):  # so that units, and then classes, differ between images
        victim.biases[k] -= victim.pre_activations(X)[k].mean(dim=0)
    victim.scales = [u.std(dim=0) for u in victim.pre_activations(X)[:-1]]
    return victim, X


@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_pgd_fools_exactly_what_lies_within_the_ball(linear, factor):
    victim, X, y, distance, _ = linear
    rng, radius = torch.Generator().manual_seed(0), float(distance.median())
    certain = (distance - radius).abs() > 0.02 * radius
    fooled, last = attacks.pgd(victim, X, y, radius, WINDOW, 0.0, 100, rng)
    assert torch.equal(fooled[certain], (distance < radius)[certain])
    assert float((last - X).abs().max()) <= radius + 1e-6
    for k in (int(distance.argmin()), int(distance.argmax())):
        one = X[k : k + 1], y[k : k + 1], factor * float(distance[k])
        assert bool(attacks.pgd(victim, *one, WINDOW, 1.0, 200, rng)[0]) == (factor > 1)


def test_square_stays_in_the_ball_and_fools_what_is_near(linear):
    victim, X, y, distance, _ = linear
    radius = float(distance.median())
    when = attacks.square(victim, X, y, radius, 3000, torch.Generator().manual_seed(0))
    assert not (when > 0)[distance > radius].any()
    assert (when > 0)[distance < 0.9 * radius].all()
    assert int(when.max()) <= 3000


def test_rays_find_the_nearest_corner(linear):
    victim, X, y, distance, _ = linear
    search = attacks.rays(victim, X, y, 1500, precision=1e-4)
    ratio = search.distance / distance
    assert float(ratio.min()) > 0.999
    assert float(ratio.median()) < 1.1
    early = search.after(200)
    assert (early >= search.distance).all()
    assert (search.after(0) == float("inf")).all()


@pytest.mark.parametrize("probe", [1 / SIDE**2, 0.3])
def test_hop_skip_jump_finds_the_boundary(linear, probe):
    victim, X, y, _, distance = linear
    start = X[[int((y != label).nonzero()[0]) for label in y]]
    rng = torch.Generator().manual_seed(0)
    search = attacks.hop_skip_jump(victim, X, y, start, 2000, probe, rng)
    ratio = search.distance / distance
    assert float(ratio.min()) > 0.99
    assert float(ratio.median()) < 1.1
    assert int(search.queries.min()) >= 2000


def test_random_points_stay_in_the_ball(linear):
    victim, X, y, distance, _ = linear
    rng, seen = torch.Generator().manual_seed(0), []
    for kind in (attacks.corners, attacks.noise_in_ball):
        draw = kind(X, 0.05, rng)
        seen.append(draw(torch.arange(N)))
        fooled = attacks.random_points(victim, X, y, draw, 20)
        assert not fooled[distance > 0.05].any()
    for moved in seen:
        assert float((moved - X).abs().max()) <= 0.05 + 1e-6
    assert (seen[0] - X).abs().allclose(torch.tensor(0.05), atol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_the_gradient_is_that_of_autograd(temperature):
    victim, X = steps_network()
    y = victim.scores(X).argmax(dim=1)
    for steps in (False, True):  # a smooth network is differentiable, and so is ReLU
        victim.steps = steps
        smooth, scales = Surrogate("smooth", 0.5), iter(victim.scales)
        V = X.clone().requires_grad_()
        U = V
        for k, (W, b) in enumerate(zip(victim.weights, victim.biases, strict=True)):
            if k:
                U = torch.sigmoid(U / (0.5 * next(scales))) if steps else U.relu()
            U = U @ W.T + b
        if temperature:
            loss = torch.nn.functional.cross_entropy(U / temperature, y, reduction="sum")
        else:
            loss = -attacks.margins(U, y).sum()
        (expected,) = torch.autograd.grad(loss, V)
        pull = attacks.gradient(victim, X, smooth, lambda s: attacks.descent(s, y, temperature))
        factor = float((pull * expected).sum() / expected.square().sum())
        assert factor > 0
        assert torch.allclose(pull, factor * expected, atol=1e-4 * float(pull.abs().max()))


def test_surrogates_of_a_step():
    u = torch.tensor([-2.0, -0.5, 0.0, 1.0])
    assert Surrogate("window", 1.0).slope(u).tolist() == [0, 1, 1, 1]
    slope = Surrogate("sigmoid", 0.5).slope(u)
    assert slope.argmax() == 2
    assert slope[0] < slope[3] < slope[1]


def test_every_attack_fools_a_network_of_steps_in_a_large_ball():
    victim, X = steps_network()
    y = victim.scores(X).argmax(dim=1)
    rng = torch.Generator().manual_seed(0)
    fooled, _ = attacks.pgd(victim, X, y, 1.0, Surrogate("smooth", 0.3), 0.0, 300, rng)
    when = attacks.square(victim, X, y, 1.0, 1000, rng)
    start = X[[int((y != label).nonzero()[0]) for label in y]]
    search = attacks.hop_skip_jump(victim, X, y, start, 300, 0.3, rng)
    assert fooled.float().mean() > 0.95
    assert (when > 0).float().mean() > 0.95
    assert search.distance.isfinite().all()
    assert (attacks.rays(victim, X, y, 500).distance <= 1).float().mean() > 0.95
