"""Momentum: the W block solves for the average of recent gradients."""

import pytest
import torch

from optim.training import error, mlp, problem, seeded, train_batch, train_batches
from zeroone.optim import BCD
from zeroone.utils.checks import InputError


def test_the_gradients_of_recent_batches_are_averaged():
    """A second optimizer without momentum gets the averages as gradients, and does the same."""
    X, y = problem(torch.float64)
    models = [seeded(mlp).double() for _ in range(2)]
    averaged, plain = BCD(models[0], 6, momentum=0.7), BCD(models[1], 6)
    past = None
    for k in range(6):
        rows = slice(30 * k, 30 * k + 30)
        train_batch(models[0], averaged, X[rows], y[rows])
        plain.zero_grad()
        loss = torch.nn.functional.cross_entropy(models[1](X[rows]), y[rows], label_smoothing=0.1)
        loss.backward()
        grads = [p.grad.clone() for p in models[1].parameters()]
        if past is None:
            past = grads
        past = [0.7 * a + 0.3 * g for a, g in zip(past, grads, strict=True)]
        for p, average in zip(models[1].parameters(), past, strict=True):
            p.grad = 0.7 * average + 0.3 * p.grad
        plain.step()
    for a, b in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_group_may_have_its_own():
    X, y = problem()
    model = seeded(mlp)
    bcd = BCD(model, 10, groups=[{"params": model[2].parameters(), "momentum": 0.5}])
    train_batch(model, bcd, X, y)
    assert [block.average is not None for block in bcd.blocks.values()] == [False, True, False]
    bcd.param_groups[0]["momentum"] = 0.0  # and may change
    train_batch(model, bcd, X, y)
    assert bcd.blocks["2"].average is None


def test_averages_lose_the_units_that_leave():
    X, y = problem()
    model = seeded(mlp)
    bcd = train_batches(model, X, y, 120, keep=0.5, momentum=0.9)
    for block in bcd.blocks.values():
        assert block.average.shape == block.kind.weight.shape
        assert block.average_bias.shape == block.kind.bias.shape
    assert model[2].weight.shape == (15, 20)
    assert error(model, X, y) < 0.06


@pytest.mark.parametrize("momentum", [1, 1.5, -0.1, float("nan"), "much"])
def test_it_is_below_1(momentum):
    with pytest.raises(InputError, match="momentum must"):
        BCD(seeded(mlp), 10, momentum=momentum)
