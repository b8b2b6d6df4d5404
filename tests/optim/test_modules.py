"""Hand-written modules learn: hidden layers by BCD against the same layers left at random."""

import functools

import pytest
import torch
from torch import nn

from optim.modules import Branches, Normed, Recurrent, Separable, Stream, Words, sentences
from optim.training import digits, error, mlp, problem, seeded, train, train_batch
from zeroone.nn import Step
from zeroone.optim import BCD
from zeroone.optim.groups import default_damping
from zeroone.optim.layers import ROWS
from zeroone.optim.observer import thresholds_apart
from zeroone.optim.preconditioner import RANK


@functools.cache
def data(name):
    return digits() if name == "digits" else (*sentences(1500, 0), *sentences(500, 1))


def errors(make, *, epochs, name="digits", **options):
    """The test errors of a trained module, and of one of which only the head was trained."""
    X, y, X_test, y_test = data(name)
    found = []
    for frozen in (False, True):
        model = seeded(make)
        if frozen:
            model.requires_grad_(False)
            model.head.requires_grad_(True)
        train(model, X, y, epochs=epochs, **options)
        found.append(error(model, X_test, y_test))
    return found


def test_concatenation_and_global_pooling():
    trained, random = errors(Branches, epochs=10)
    assert 2.5 * trained < random


def test_depthwise_separable_convolutions():
    trained, random = errors(Separable, epochs=6)
    assert 2 * trained < random


def test_a_residual_stream_of_20_layers():
    trained, random = errors(Stream, epochs=10)
    assert 6 * trained < random


def test_a_residual_stream_with_scaled_branches():
    trained, random = errors(lambda: Stream(scale=20**-0.5), epochs=8)
    assert 2.5 * trained < random


def test_an_embedding_and_a_convolution_of_tokens():
    trained, random = errors(Words, epochs=12, name="sentences")
    assert 10 * trained < random


def test_a_layer_that_is_used_again_and_again():
    trained, random = errors(Recurrent, epochs=20)
    assert 2.5 * trained < random


def test_batchnorm_in_between():
    trained, random = errors(Normed, epochs=12)
    assert 2.5 * trained < random


# --- the parts that make it work


def off_at_steps(model, X):
    """Of each Step: how far any unit's mean is from where it should start, in typical spreads."""
    found, hooks = {}, []
    for name, module in model.named_modules():
        if isinstance(module, Step):

            def look(module, args, name=name):
                U = args[0].movedim(module.dim, 0).flatten(1)
                spread = U.std(dim=1, correction=0)
                off = U.mean(dim=1) + spread * thresholds_apart(len(U)).to(U)
                found[name] = float(off.abs().max() / spread.mean())

            hooks.append(module.register_forward_pre_hook(look))
    with torch.no_grad():
        model.eval()(X)
    for hook in hooks:
        hook.remove()
    return found


def balanced(model, X, y):
    """The same after a first batch that changes nothing else."""
    train_batch(model.train(), BCD(model, 10, move=0.0, head_step=0.0), X, y)
    return off_at_steps(model, X)


def test_thresholds_start_apart():
    where = thresholds_apart(1000)
    assert abs(float(where.mean())) < 1e-2
    assert float(where.std()) == pytest.approx(0.5, rel=0.02)
    assert thresholds_apart(1).isfinite().all()


def test_the_first_batch_balances_a_chain():
    X, y = problem()
    assert max(off_at_steps(seeded(mlp), X).values()) > 0.1
    assert max(balanced(seeded(mlp), X, y).values()) < 1e-4
    model = seeded(mlp)
    bcd = BCD(model, 10, move=0.0, head_step=0.0, balance=False)
    before = off_at_steps(model, X)
    train_batch(model.train(), bcd, X, y)
    assert off_at_steps(model, X) == before


def test_the_first_batch_balances_convolutions_before_pooling():
    X, y, *_ = digits()
    backbone = [nn.Conv2d(1, 8, 3), nn.AvgPool2d(2), Step(), nn.Flatten(), nn.Linear(72, 10)]
    model = seeded(lambda: nn.Sequential(*backbone))
    assert max(balanced(model, X[:128], y[:128]).values()) < 1e-4


def test_the_first_batch_balances_a_stream():
    X, y, *_ = digits()
    assert max(balanced(seeded(Stream), X[:128], y[:128]).values()) < 1e-3


def test_the_first_batch_makes_no_mean_of_scaled_branches_worse():
    X, y, *_ = digits()
    model = seeded(Stream, scale=0.2)
    before = max(off_at_steps(model, X[:128]).values())
    assert max(balanced(model, X[:128], y[:128]).values()) < before


def test_two_steps_on_one_layer_take_its_mean_once():
    X, y = problem()

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(20, 30), nn.Linear(60, 3)
            self.a, self.b = Step(), Step()

        def forward(self, x):
            x = self.layer(x)
            return self.head(torch.cat([self.a(x), self.b(x)], dim=1))

    assert max(balanced(seeded(Twice), X, y).values()) < 1e-4


def test_hidden_layers_are_those_below_a_step():
    X, y, *_ = digits()
    for make, heads in ((Branches, {"head"}), (Separable, {"head"}), (Recurrent, {"head"})):
        model = seeded(make)
        bcd = BCD(model, 10)
        train_batch(model, bcd, X[:50], y[:50])
        assert {name for name, block in bcd.blocks.items() if not block.hidden} == heads


@pytest.mark.parametrize("move", [0.05, 0.01])
def test_a_batch_moves_hidden_layers_as_far_as_it_is_told(move):
    """The root mean square change of pre-activations, in units of their spread, of all units."""
    X, y = problem(torch.float64)
    model = seeded(mlp).double()
    bcd = BCD(model, 1000, move=move, balance=False)
    before = model[0](X).detach()
    train_batch(model, bcd, X, y)
    change = (model[0](X).detach() - before) / before.std(dim=0, correction=0)
    centred = (change - change.mean(dim=0)).square().mean().sqrt()  # the bias is not counted
    assert float(centred) == pytest.approx(move, rel=0.2)


def test_the_head_takes_a_share_of_its_solution():
    """With no damping worth the name: of the least squares fit to the residuals."""
    X, y = (T[:ROWS] for T in problem(torch.float64))
    model = seeded(mlp, 20, 40, RANK - 1, 3).double()
    bcd = BCD(model, 1000, head_step=0.3, damping=1e-9, balance=False)
    with torch.no_grad():
        bits = model[:4](X)
        before = model[4](bits)
    train_batch(model, bcd, X, y)
    target = 0.9 * torch.eye(3).double()[y] + 0.1 / 3
    E = target - before.softmax(dim=1)
    V = torch.cat([bits, torch.ones(len(X), 1)], dim=1)
    fitted = V @ torch.linalg.lstsq(V, E, driver="gelsd").solution
    with torch.no_grad():
        torch.testing.assert_close(model[4](bits) - before, 0.3 * fitted, rtol=1e-3, atol=1e-5)


def test_a_longer_training_is_damped_more():
    steps = (None, 1, 1000, 1500, 2000, 10**6)
    expected = (0.04, 0.01, 0.01, 0.025, 0.04, 0.04)
    assert [default_damping(total) for total in steps] == pytest.approx(expected)
    model = seeded(mlp)
    assert BCD(model, 1500).param_groups[0]["damping"] == pytest.approx(0.025)
    assert BCD(model, 1500, damping=0.5).param_groups[0]["damping"] == 0.5
