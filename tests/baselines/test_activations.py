"""The rivals' activations against their printed formulas, and their slopes against differences."""

import math

import pytest
import torch

from zeroone.baselines import activations
from zeroone.baselines.activations import ACTIVATIONS, OneBit
from zeroone.baselines.networks import AtThresholds

PRINTED = {
    "relu": lambda t: max(t, 0),
    "sigmoid": lambda t: 1 / (1 + math.exp(-t)),
    "swish": lambda t: t / (1 + math.exp(-0.7 * t)),
    "selu": lambda t: 1.0507 * t if t > 0 else 1.0507 * 1.6732 * (math.exp(t) - 1),
    "tanh": lambda t: (math.exp(t) - math.exp(-t)) / (math.exp(t) + math.exp(-t)),
    "ste": lambda t: float(t > 0),
    "ste-sign": lambda t: 1.0 if t >= 0 else -1.0,
    "bi-real": lambda t: 1.0 if t >= 0 else -1.0,
    "ccnn": lambda t: float(t > 0),
    "pcnn": lambda t: 1.0 if t >= 0 else -1.0,
}


def hard_tanh(u):
    return u.clamp(-1, 1)


def near_sign(u):
    """Bi-Real Net's piecewise polynomial."""
    inside = torch.where(u < 0, 2 * u + u * u, 2 * u - u * u)
    return torch.where(u < -1, -1.0, torch.where(u < 1, inside, 1.0))


def near_step(u):
    """The odd function whose slope is Xu and Cheung's: 2 - 4|u|, then 0.4, then 0."""
    size = u.abs()
    inner = 2 * size - 2 * size**2
    return u.sign() * torch.where(size <= 0.4, inner, 0.48 + 0.4 * (size.clamp(max=1) - 0.4))


# What each 1-bit activation pretends to be when the gradient goes back.
PRETENDED = {
    "ste": hard_tanh,
    "ste-sign": hard_tanh,
    "bi-real": near_sign,
    "ccnn": near_step,
    "pcnn": hard_tanh,
}


def points():
    """Off the kinks at 0, 0.4 and 1."""
    return torch.linspace(-2.03, 2.01, 83, dtype=torch.float64)


def slopes(activation, u):
    u = u.clone().requires_grad_()
    ACTIVATIONS[activation](1).double()(u[:, None]).sum().backward()
    return u.grad


def differences(function, u, h=1e-6):
    return (function(u + h) - function(u - h)) / (2 * h)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_values_are_the_printed_ones(activation):
    u = torch.cat([points(), torch.tensor([0.0, -0.0, 1e-300, -1e-300])])
    v = ACTIVATIONS[activation](1).double()(u[:, None])[:, 0]
    expected = [PRINTED[activation](t) for t in u.tolist()]
    assert v.tolist() == pytest.approx(expected, rel=1e-4)
    if ACTIVATIONS[activation].one_bit:
        assert v.tolist() == expected


@pytest.mark.parametrize("activation", [n for n in ACTIVATIONS if n not in PRETENDED])
def test_derivatives_are_differences(activation):
    module = ACTIVATIONS[activation](1).double()
    expected = differences(lambda u: module(u[:, None])[:, 0], points())
    assert torch.allclose(slopes(activation, points()), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("activation", PRETENDED)
def test_surrogate_slopes_are_those_of_the_function_they_pretend(activation):
    expected = differences(PRETENDED[activation], points())
    # PCNN adds the gradient of its projection loss, 1e-4 / n at most a few times.
    tolerance = 1e-4 if activation == "pcnn" else 1e-8
    assert torch.allclose(slopes(activation, points()), expected, rtol=1e-6, atol=tolerance)


@pytest.mark.parametrize(
    ("activation", "at", "expected"),
    [
        ("ste", [-1.0, 1.0, 1.1], [1, 1, 0]),
        ("bi-real", [-1.0, -0.5, 0.0, 0.5, 1.0], [0, 1, 2, 1, 0]),
        ("ccnn", [0.0, 0.25, -0.4, 0.5, -1.0, 1.1], [2, 1, 0.4, 0.4, 0.4, 0]),
    ],
)
def test_slopes_at_the_kinks(activation, at, expected):
    u = torch.tensor(at, dtype=torch.float64)
    assert slopes(activation, u).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("activation", [n for n, a in ACTIVATIONS.items() if issubclass(a, OneBit)])
def test_the_incoming_gradient_is_multiplied(activation, rng):
    u = torch.randn(7, 5, generator=rng, requires_grad=True)
    gradient = torch.randn(7, 5, generator=rng)
    module = ACTIVATIONS[activation](5)
    module(u).backward(gradient)
    assert torch.equal(u.grad, gradient * module.slope(u.detach()))


@pytest.mark.parametrize("activation", [n for n, a in ACTIVATIONS.items() if a.one_bit])
def test_several_thresholds_are_as_many_activations(activation, rng, monkeypatch):
    monkeypatch.setattr(activations, "CACHED", 40)  # two samples at a time
    thresholds = (-0.75, 0.25, 0.5)
    u, again = (torch.randn(7, 5, 2, 2, generator=rng).requires_grad_() for _ in range(2))
    again.data.copy_(u.data)
    gradient = torch.randn(7, 15, 2, 2, generator=rng)
    module = ACTIVATIONS[activation](5)
    made = AtThresholds(module, thresholds)(u)
    each = [module(again - threshold) for threshold in thresholds]
    assert torch.equal(made, torch.cat(each, dim=1))
    made.backward(gradient)
    torch.cat(each, dim=1).backward(gradient)
    assert torch.allclose(u.grad, again.grad, atol=1e-6)


def test_ccnn_trains_its_scale(rng):
    module = ACTIVATIONS["ccnn"](4)
    torch.nn.init.constant_(module.beta, 1.5)
    u, gradient = torch.randn(6, 4, generator=rng, requires_grad=True), torch.ones(6, 4)
    module(u).backward(gradient)
    assert float(module.beta.grad) == float((u > 0).sum())
    assert torch.allclose(u.grad, 1.5 * module.slope(u.detach()))


def test_pcnn_s_weight_of_the_projection_loss():
    assert ACTIVATIONS["pcnn"].lam == 1e-4


@pytest.mark.parametrize("shape", [(9, 4), (9, 4, 3, 2)])
def test_pcnn_follows_the_gradient_of_both_losses(shape, rng):
    """As autograd finds it for the window in place of sign, and the projection loss in full."""
    module = ACTIVATIONS["pcnn"](4).double()
    module.lam = 0.3  # large enough to be seen
    with torch.no_grad():
        module.w.copy_(torch.tensor([0.5, -1.2, 2.0, 1.0]))
    u = torch.randn(shape, generator=rng, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(shape, generator=rng, dtype=torch.float64)
    module(u).backward(gradient)
    found = u.grad.clone(), module.w.grad.clone()

    u.grad = module.w.grad = None
    projected = module.w.view(-1, *(1 for _ in shape[2:])) * u
    v = torch.where(projected >= 0, 1.0, -1.0)
    projection_loss = 0.3 / 2 * ((v - projected) ** 2).sum() / shape[0]
    (hard_tanh(projected) * gradient).sum().add(projection_loss).backward()
    assert torch.allclose(found[0], u.grad)
    assert torch.allclose(found[1], module.w.grad)
