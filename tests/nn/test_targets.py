"""Kinds of targets and their heads: several labels, numbers, class probabilities."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, r2_score

from zeroone import TrainSettings, load, quantise, train
from zeroone.analysis.metrics import error_rates
from zeroone.data.load import load_data
from zeroone.nn.heads import HEADS, make_head
from zeroone.nn.network import Network
from zeroone.nn.targets import TargetScaling
from zeroone.utils.checks import InputError

GRID = torch.linspace(-12, 12, 1201, dtype=torch.float64)


@pytest.mark.parametrize("kind", ["logistic", "linear"])
@pytest.mark.parametrize("mu", [1e-3, 0.3, 40.0])
def test_the_u_block_is_the_minimum_over_a_grid(kind, mu, rng):
    head = make_head(kind)
    B = 3 * torch.randn(40, 1, generator=rng, dtype=torch.float64)
    y = torch.randint(2, (40, 1), generator=rng).double()

    def values(U):
        return head.losses(U, y) + mu / 2 * (U - B).square().sum(dim=1)

    U = head.u_step(B, y, mu)
    best = torch.stack([values(u.expand(40, 1)) for u in GRID]).amin(dim=0)
    assert bool((values(U) <= best + 1e-12).all())
    assert float(head.gap(U, B, y, mu).max()) < 1e-12
    off = U + 0.1
    assert bool((head.gap(off, B, y, mu) >= values(off) - values(U) - 1e-12).all())
    assert torch.equal(head.u_step(B.repeat(1, 3), y.repeat(1, 3), mu)[:, 2:], U)


def test_the_logistic_block_far_out():
    B, y = torch.tensor([[80.0, -80.0, 0.0]]), torch.tensor([[0.0, 1.0, 1.0]])
    head = make_head("logistic")
    for mu in (1e-4, 1.0, 1e4):
        U = head.u_step(B, y, mu)
        assert float((torch.sigmoid(U) - y + mu * (U - B)).abs().max()) < 1e-4 * max(1, mu)


@pytest.mark.parametrize("s", [0.0, 0.1, 0.4])
def test_smoothing_of_labels_is_undone(s):
    p = torch.linspace(0.2, 0.8, 49, dtype=torch.float64)[:, None]
    head = make_head("logistic", smoothing=s)
    U = torch.logit((1 - s) * p + s / 2).requires_grad_()  # the minimiser of the smoothed loss
    loss = p * head.training_losses(U, torch.ones_like(p), s)[:, None]
    loss += (1 - p) * head.training_losses(U, torch.zeros_like(p), s)[:, None]
    loss.sum().backward()
    assert float(U.grad.abs().max()) < 1e-12
    assert torch.allclose(head.probabilities(U.detach()), p, atol=1e-12)
    far = head.probabilities(torch.tensor([[-1e4, 1e4, 0.0]]))
    assert bool(((far > 0) & (far <= 1)).all())
    assert float(far[0, 2]) == 0.5


def test_errors_are_those_of_scikit_learn(rng):
    X = torch.randn(300, 4, generator=rng, dtype=torch.float64)
    several = Network.build((4,), [9], 3, "logistic", dtype=torch.float64)
    Y = torch.randint(2, (300, 3), generator=rng).double()
    expected = 1 - accuracy_score(Y.numpy(), several.predict(X))
    assert error_rates(several, X, Y) == pytest.approx({"error": expected})
    numbers = Network.build((4,), [9], 3, "linear", dtype=torch.float64)
    Y = 50 + torch.randn(300, 3, generator=rng, dtype=torch.float64) * torch.tensor([1, 10, 0.1])
    r2 = r2_score(Y.numpy(), numbers.predict(X))
    assert error_rates(numbers, X, Y) == pytest.approx({"error": 1 - r2, "r2": r2})
    constant = error_rates(numbers, X, torch.full_like(Y, 3.0))
    assert constant == {"error": 1.0, "r2": 0.0}


def test_target_scaling_folds_into_the_last_layer(rng):
    y = 1e6 + torch.randn(50, 2, generator=rng, dtype=torch.float64) * torch.tensor([1e-2, 1e3])
    y = torch.cat([y, torch.full((50, 1), 7.0)], dim=1)
    weights = torch.rand(50, generator=rng, dtype=torch.float64)
    scaling = TargetScaling.fit(y, weights, centred=True)
    scaled = scaling.apply(y)
    means = (weights @ scaled) / weights.sum()
    variances = (weights @ scaled.square()) / weights.sum()
    assert means.abs().max() < 1e-6
    assert variances.tolist() == pytest.approx([1, 1, 0], abs=1e-6)
    network = Network.build((4,), [5], 3, "linear", dtype=torch.float64)
    X = torch.randn(20, 4, generator=rng, dtype=torch.float64)
    before = network.scores(X)
    scaling.fold(network.operators[-1])
    assert torch.allclose(network.scores(X), before * scaling.scale + scaling.centre)
    scaling.unfold(network.operators[-1])
    assert torch.allclose(network.scores(X), before, atol=1e-6)
    plain = TargetScaling.fit(y, None, centred=False)
    assert not plain.centre.any()


@pytest.mark.parametrize("solver", ["stochastic", "exact"])
def test_probabilities_of_one_class_are_its_label(solver):
    digits = load_data("digits")
    own = {"epochs": 2} if solver == "stochastic" else {"max_iter": 2}
    settings = TrainSettings.from_options(hidden=(20,), solver=solver, dtype="float64", **own)
    Y = np.eye(10)[digits.y]
    hard = train(digits.X, digits.y, settings, test=digits.test)
    soft = train(digits.X, Y, settings, test=(digits.X_test, np.eye(10)[digits.y_test]))
    assert soft.network.classes == list(range(10))
    X = digits.X_test
    assert torch.allclose(soft.network.scores(X), hard.network.scores(X), atol=1e-6)
    for name in ("train_error", "test_error", "test_top5_error"):
        assert soft.record["result"][name] == hard.record["result"][name]


def test_probabilities_are_learned(tmp_path):
    """Where inputs tell nothing, the network answers with the mean of the probabilities."""
    rng = np.random.default_rng(0)
    X, P = rng.integers(0, 2, (600, 2)).astype(float), np.tile([0.6, 0.3, 0.1], (600, 1))
    P[X[:, 0] == 1] = [0.1, 0.1, 0.8]
    settings = TrainSettings.from_options(hidden=(8,), epochs=100, validation=0.1)
    run = train(X, P, settings)
    again = load(run.network.save(tmp_path / "m.safetensors"))
    assert np.abs(again.predict_proba(X) - P).max() < 0.05
    assert set(again.predict(X)) == {0, 2}
    assert run.record["result"]["validation_error"] == 0


@pytest.mark.parametrize(
    ("head", "y", "sentence"),
    [
        ("softmax", [[0.5, 0.6]] * 4, "rows are no probabilities"),
        ("softmax", [[1.5, -0.5]] * 4, "rows are no probabilities"),
        ("softmax", [[0.5, np.nan]] * 4, "NaN or infinity"),
        ("softmax", [[0.5, 0.5]] * 3, "X has 4 rows but y has 3"),
        ("hardmax", [[0.5, 0.5]] * 4, "y must be a vector"),
        ("logistic", [0, 1, 0, 1], "several labels: y must be a matrix"),
        ("logistic", [[0, 2]] * 4, "must hold 0 or 1"),
        ("logistic", [["a", "b"]] * 4, "y must hold numbers"),
        ("linear", ["a", "b", "c", "d"], "y must hold numbers"),
        ("linear", [1.0, 2.0, np.inf, 3.0], "NaN or infinity"),
        ("linear", [1.0, 2.0, 1e20, 3.0], "beyond 1e.15"),
        ("linear", np.zeros((4, 2, 2)), "y must hold numbers, one row"),
    ],
)
def test_targets_that_cannot_be(head, y, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        train(np.eye(4), y, TrainSettings(head=head, hidden=(3,)))
    assert "\n" not in str(error.value)


def test_what_only_classes_have():
    for kind in ("logistic", "linear"):
        network = Network.build((4,), [5], 3, kind)
        with pytest.raises(InputError, match=f"only networks that choose one class.*{kind}"):
            quantise(network, torch.randn(9, 4))
    with pytest.raises(InputError, match="numbers have no probabilities"):
        network.predict_proba(np.zeros((1, 4)))
    with pytest.raises(InputError, match="smoothing is for labels, and head='linear' has none"):
        TrainSettings.from_options(head="linear", smoothing=0.1)
    with pytest.raises(InputError, match="y has 2 columns, the network has 3 outputs"):
        HEADS["linear"].targets.encode_known(np.zeros((5, 2)), [0, 1, 2], 5)
