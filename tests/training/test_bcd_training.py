"""Stochastic BCD as ``train`` runs it: a whole batch by hand, teachers, removal, states.

The optimizer's own blocks are tested in tests/optim.
"""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from oracles import bcd_batch
from zeroone import TrainSettings, ZeroOneClassifier, load, train
from zeroone.data.load import load_data
from zeroone.nn.heads import HardmaxMSE, SoftmaxCE
from zeroone.nn.network import Network
from zeroone.nn.scaling import Scaling
from zeroone.training.stochastic_settings import StochasticSettings
from zeroone.training.trainers import BCDTrainer


@pytest.fixture
def normal(rng):
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


def problem(n=200, d=20, classes=3, seed=0):
    rng = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=rng)
    teacher = torch.randn(d, classes, generator=rng)
    return X, (X @ teacher).argmax(dim=1)


def fitted(n_batches=300, head=None, hidden=(40, 30), bias=True, dtype=torch.float32, **options):
    X, y = problem()
    widths = [X.shape[1], *hidden, 3]
    n_in, *hidden, n_classes = widths
    network = Network.build((n_in,), hidden, n_classes, head or SoftmaxCE(), bias=bias, dtype=dtype)
    trainer = BCDTrainer(network, StochasticSettings(**options), n_batches)
    rng = torch.Generator().manual_seed(1)
    for _ in range(n_batches):
        trainer.update(X.to(dtype), y, rng)
    wrong = trainer.model.forward(X.to(dtype)).argmax(dim=1) != y
    return trainer, float(wrong.float().mean())


# --- the heads


def test_head_residuals(normal):
    """Minus the gradient of what is minimised is what U_h asks for."""

    def residual(head, B, y, smoothing=0.0):
        B = B.clone().requires_grad_()
        head.training_losses(B, y, smoothing).sum().backward()
        return -B.grad

    B, y = normal(7, 4), torch.tensor([0, 1, 2, 3, 0, 1, 2])
    U = B.clone().requires_grad_()
    torch.nn.functional.cross_entropy(U, y, label_smoothing=0.3, reduction="sum").backward()
    assert torch.allclose(residual(SoftmaxCE(), B, y, 0.3), -U.grad)
    head = HardmaxMSE(0.5)
    assert torch.allclose(B + residual(head, B, y), head.u_step(B, y, 1e-9))
    scores = torch.tensor([[3.0, 1.0, 0.0], [1.0, 0.8, 0.0]], dtype=torch.float64)
    pulled = residual(head, scores, torch.tensor([0, 0]), smoothing=0.1)
    assert pulled[0].tolist() == pytest.approx([-0.1 * 1.5, 0, 0])  # leads by 2, 0.5 is enough
    assert pulled[1].tolist() == pytest.approx([0.15, -0.15, 0])


# --- a whole batch


def test_one_batch_by_hand(normal):
    """The blocks in their order, written out once more from the formulas."""
    X, y = normal(30, 4), torch.arange(30) % 3
    network = Network.build((4,), [5], 3, SoftmaxCE(), dtype=torch.float64)
    W = [op.weight.numpy().copy() for op in network.operators]
    trainer = BCDTrainer(network, StochasticSettings(), 10)
    trainer.update(X, y, torch.Generator())
    expected = bcd_batch(W, (), X.numpy(), y.numpy(), move=0.08, head_step=0.3, damping=0.01)
    for op, weight in zip(trainer.model.operators, expected, strict=True):
        np.testing.assert_allclose(op.weight.numpy(), weight, rtol=1e-9, atol=1e-12)


def test_weights_of_samples_are_how_often_they_come(normal):
    """A batch in which samples weigh is the batch in which they come as often."""
    X, y, times = normal(30, 4), torch.arange(30) % 3, torch.arange(30) % 4
    made = []
    for weights in (times.double(), None):
        network = Network.build((4,), [5], 3, SoftmaxCE(), dtype=torch.float64)
        trainer = BCDTrainer(network, StochasticSettings(), 10)
        for _ in range(3):
            if weights is None:
                given = X.repeat_interleave(times, 0), y.repeat_interleave(times, 0)
                trainer.update(*given, torch.Generator())
            else:  # 1 on average
                trainer.update(X, y, torch.Generator(), weights * len(y) / weights.sum())
        made.append(trainer.model)
    for one, other in zip(made[0].operators, made[1].operators, strict=True):
        torch.testing.assert_close(one.weight, other.weight, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, 0.02),
        ({"head": HardmaxMSE(1.0)}, 0.02),
        ({"u_rule": "drawn"}, 0.05),
        ({"bias": False}, 0.05),
        ({"dtype": torch.float64}, 0.02),
        ({"keep": 0.5}, 0.05),
    ],
)
def test_it_fits_what_a_teacher_says(options, error):
    assert fitted(**options)[1] <= error


def test_no_hidden_layer_is_logistic_regression():
    assert fitted(hidden=())[1] <= 0.06


def test_hidden_layers_move_unless_rounding_is_at_one_half():
    """E7: with the printed U block no hidden weight learns anything."""
    X, _ = problem()

    def flipped(**options):
        first, last = fitted(1, **options)[0].model, fitted(**options)[0].model
        before, after = first.hidden_bits(X), last.hidden_bits(X)
        return min(float((a != b).float().mean()) for a, b in zip(after, before, strict=True))

    assert flipped(u_rule="half", move=0.02, damping=0.04) < 0.05
    assert flipped(move=0.02, damping=0.04) > 0.1


def test_the_schedules():
    X, y = problem()
    trainer = BCDTrainer(Network.build((20,), [5], 3, SoftmaxCE()), StochasticSettings(), 10)
    assert trainer.notes()["move"] == pytest.approx(0.08)
    windows = []
    for k in range(10):
        trainer.update(X, y, torch.Generator())
        if k in (0, 4):
            windows.append(float(trainer.layers.chain[0].activation.window))
    assert windows == pytest.approx([1.0, 0.8])
    assert trainer.notes()["move"] == 0
    with pytest.raises(ValueError, match="total_steps=10 batches are done"):
        trainer.update(X, y, torch.Generator())


@pytest.mark.filterwarnings("ignore:BCD sizes its steps")
def test_a_batch_of_one_and_a_dead_network_do_no_harm():
    X, y = problem()
    network = Network.build((20,), [5], 3, SoftmaxCE())
    network.operators[0].weight.zero_()
    trainer = BCDTrainer(network, StochasticSettings(), 50)
    for k in range(50):
        trainer.update(X[k : k + 1] * (k > 25), y[k : k + 1], torch.Generator())
    assert all(bool(torch.isfinite(op.weight).all()) for op in trainer.model.operators)


# --- removal


def test_keep_removes_units_physically_and_lam_empties_columns():
    network = fitted(keep=0.5)[0].model
    assert [op.n_out for op in network.operators] == [20, 15, 3]
    network = fitted(keep=0.01)[0].model
    assert [op.n_out for op in network.operators] == [1, 1, 3]
    trainer, error = fitted(lam=0.2)
    network = trainer.model
    assert network.operators[0].n_out < 40
    assert error < 0.1
    units = trainer.optimizer.removal.units
    assert [len(units[f"layers.{i}.linear"]) for i in range(2)] == [
        op.n_out for op in network.operators[:-1]
    ]
    weights = fitted(lam=0.3)[0].model.operators[0].linear
    assert 1 < len(weights) < network.operators[0].n_out  # a price, not a cliff
    dead = (weights == 0).all(dim=0)
    assert 0 < int(dead.sum()) < 20


def test_the_cheapest_units_leave():
    X, y = problem()
    network = Network.build((20,), [10], 3, SoftmaxCE())
    network.operators[1].weight[:, [2, 5, 7]] = 1e-6
    trainer = BCDTrainer(network, StochasticSettings(keep=0.7, head_step=1e-9), 10)
    for _ in range(10):
        trainer.update(X, y, torch.Generator())
    units = trainer.optimizer.removal.units["layers.0.linear"]
    assert units.tolist() == [0, 1, 3, 4, 6, 8, 9]


@pytest.mark.parametrize("weights", ["ternary", "binary"])
@pytest.mark.parametrize("options", [{}, {"keep": 0.5}, {"lam": 0.05}], ids=str)
def test_weights_of_few_values_train(weights, options):
    digits = load_data("digits")
    settings = TrainSettings.from_options(hidden=(60, 50), epochs=30, weights=weights, **options)
    run = train(digits.X, digits.y, settings, test=digits.test)
    assert run.record["result"]["test_error"] < 0.15
    for op in run.network.operators[:-1]:
        sizes = op.linear.abs()
        alive = sizes.sum(dim=0) > 0 if options else torch.ones(op.linear.shape[1]).bool()
        for row in sizes[:, alive]:
            assert len(row.unique()) <= (1 if weights == "binary" else 2)
    if "keep" in options:
        assert run.record["result"]["active_units"] == [30, 25]


def test_weights_of_few_values_keep_the_mean_of_their_inputs():
    """The bias makes up for the projection: on average, pre-activations stay what they were."""
    digits = load_data("digits")
    scaling = Scaling.fit(torch.from_numpy(digits.X))
    network = Network.build((64,), [20], 10, SoftmaxCE(), scaling=scaling)
    trainer = BCDTrainer(network, StochasticSettings(weights="binary"), 10)
    V0 = scaling.apply(torch.from_numpy(digits.X))
    trainer.update(V0, torch.from_numpy(digits.y), torch.Generator().manual_seed(0))
    bcd = trainer.optimizer
    block = bcd.blocks["layers.0.linear"]
    mean = block.moments.mean[0]
    op = trainer.model.operators[0]
    torch.testing.assert_close(
        block.latent @ mean + block.latent_bias,
        op.linear @ mean + op.offset,
        rtol=1e-4,
        atol=1e-5,
    )


# --- states


def states(trainer):
    return {name: T.clone() for name, T in trainer.state().items()}


@pytest.mark.parametrize(
    "options",
    [{}, {"keep": 0.5}, {"lam": 0.2}, {"u_rule": "drawn"}, {"weights": "ternary"}],
    ids=str,
)
def test_the_state_is_all_that_the_next_batch_depends_on(options):
    X, y = problem()
    settings = StochasticSettings(**options)
    whole = BCDTrainer(Network.build((20,), [40, 30], 3, SoftmaxCE()), settings, 120)
    for k in range(120):
        if k == 61:
            state = states(whole)
        whole.update(X, y, torch.Generator().manual_seed(k))
    other = BCDTrainer(Network.build((20,), [40, 30], 3, SoftmaxCE(), seed=9), settings, 120)
    for k in range(120):  # it may be anywhere, and smaller than it was then
        other.update(X, y, torch.Generator().manual_seed(k + 500))
    other.restore(state)
    for k in range(61, 120):
        other.update(X, y, torch.Generator().manual_seed(k))
    for a, b in zip(whole.model.operators, other.model.operators, strict=True):
        assert torch.equal(a.weight, b.weight)


def test_a_training_that_learned_nothing_says_so(monkeypatch, tmp_path):
    digits = load_data("digits")
    settings = TrainSettings.from_options(hidden=(8,), epochs=1)
    plain = train(digits.X, digits.y, settings)
    assert str(plain.status) == "completed"
    monkeypatch.setattr("zeroone.training.epochs.FAILED", 0.1)
    failed = train(digits.X, digits.y, settings, out=tmp_path / "run")
    assert str(failed.status) == "failed"
    loss = failed.record["history"][-1]["loss"]
    assert failed.reason == (
        f"the loss ended at {loss:.3g}, where a constant answer has 2.3; take a smaller move"
    )
    assert load(tmp_path / "run").n_features == 64
    with pytest.warns(ConvergenceWarning, match="training failed: the loss ended at"):
        model = ZeroOneClassifier((8,), epochs=1).fit(digits.X, digits.y)
    assert model.status_ == "failed"
