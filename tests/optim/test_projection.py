"""Weights of few values: near the nearest ones, trained, and with the means of the others."""

import pytest
import torch
from torch import nn

from optim.modules import Normed
from optim.training import digits, error, mlp, seeded, train, train_batch
from zeroone.optim import BCD
from zeroone.optim.projection import project


@pytest.fixture
def normal(rng):
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


def nearest_ternary(row):
    """By brute force: of the m largest sizes, for every m, the scale that fits best."""
    size = row.abs().sort(descending=True).values
    means = size.cumsum(0) / torch.arange(1, len(size) + 1)
    errors = [
        float((size[:m] - means[m - 1]).square().sum() + size[m:].square().sum())
        for m in range(1, len(size) + 1)
    ]
    return min(errors)


def test_projection_is_near_the_nearest(normal):
    W = torch.cat([normal(20, 30), normal(20, 30) ** 3])
    binary, ternary = project(W, "binary"), project(W, "ternary")
    for row, two, three in zip(W, binary, ternary, strict=True):
        assert len(two.abs().unique()) == 1
        assert len(three.abs().unique()) <= 2
        scale = two.abs()[0]
        best = min(
            float((row - s * row.sign()).square().sum())
            for s in scale * torch.linspace(0.8, 1.2, 41)
        )
        assert float((row - two).square().sum()) <= best * (1 + 1e-6)
        assert float((row - three).square().sum()) < float(row.square().sum())
    errors = (W[:20] - ternary[:20]).square().sum(dim=1).tolist()  # of Gaussian rows
    assert sum(errors) <= 1.03 * sum(map(nearest_ternary, W[:20]))


def test_zeros_stay_or_become_equal():
    assert torch.equal(project(torch.zeros(2, 3), "ternary"), torch.zeros(2, 3))
    assert torch.equal(
        project(torch.tensor([[0.0, -2.0, 1.0]]), "binary"), torch.tensor([[1, -1, 1.0]])
    )


def few_valued(weight, weights, alive=slice(None)):
    most = 1 if weights == "binary" else 2
    return all(len(row.abs()[alive].unique()) <= most for row in weight.detach().flatten(1))


@pytest.mark.parametrize("weights", ["ternary", "binary"])
@pytest.mark.parametrize("options", [{}, {"keep": 0.5}, {"lam": 0.25}], ids=str)
def test_weights_of_few_values_train(weights, options):
    X, y, X_test, y_test = digits()
    model = seeded(lambda: nn.Sequential(nn.Flatten(), mlp(64, 60, 50, 10)))
    bcd = train(model, X, y, epochs=10, weights=weights, **options)
    assert error(model, X_test, y_test) < 0.2
    for layer in (model[1][0], model[1][2]):
        dead = bcd.state[layer.weight].get("dead", torch.zeros(layer.in_features).bool())
        assert few_valued(layer.weight, weights, ~dead)
        assert float(layer.weight.detach()[:, dead].abs().sum()) == 0
    assert not few_valued(model[1][4].weight, weights)  # the last layer's are real
    if "keep" in options:
        assert (model[1][0].out_features, model[1][2].out_features) == (30, 25)


def test_kernels_of_few_values_train():
    X, y, X_test, y_test = digits()
    model = seeded(Normed)
    train(model, X, y, epochs=8, weights="ternary")
    assert error(model, X_test, y_test) < 0.4
    assert few_valued(model.a.weight, "ternary")
    assert few_valued(model.b.weight, "ternary")


@pytest.mark.parametrize("weights", ["ternary", "binary"])
def test_the_bias_makes_up_for_the_projection(weights):
    """On average, pre-activations stay what they were."""
    X, y, *_ = digits()
    model = seeded(lambda: nn.Sequential(nn.Flatten(), mlp(64, 20, 10)))
    bcd, layer = BCD(model, 10, weights=weights), model[1][0]
    train_batch(model, bcd, X[:200], y[:200])
    block = bcd.blocks["1.0"]
    mean = block.moments.mean[0]
    torch.testing.assert_close(
        block.latent @ mean + block.latent_bias,
        layer.weight.detach() @ mean + layer.bias.detach(),
        rtol=1e-4,
        atol=1e-5,
    )
