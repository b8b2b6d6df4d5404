"""Where thresholds are before the first batch."""

import pytest
import torch

from zeroone.heads import SoftmaxCE
from zeroone.layers import LayerPlan
from zeroone.network import Network
from zeroone.ops import step
from zeroone.solvers.start import balance, spread_thresholds
from zeroone.solvers.stochastic import StochasticBCD
from zeroone.solvers.stochastic_settings import StochasticSettings
from zeroone.training import TrainSettings, train

NETWORKS = {
    "dense": ((9,), [800, 700]),
    "convolutions": ((1, 8, 8), ["conv3x3:300:pad1:max2", "conv3x3:280:pad1:skip2", 350]),
}


def build(name, dtype=torch.float32):
    shape, hidden = NETWORKS[name]
    plans = [LayerPlan.parse(h) for h in hidden]
    return Network.build(shape, plans, 3, SoftmaxCE(), seed=1, dtype=dtype)


def pre_activations(network, X):
    """Of each hidden layer as it is, a unit (or filter) a row."""
    V, found = network.recent(X), []
    for layer in network.layers[:-1]:
        P = layer.forward(V)
        found.append(P.movedim(1, 0).flatten(1))
        V.append(step(P))
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_shifts_are_gaussian_in_units_of_each_units_spread(name, rng):
    X = 3 * torch.randn(60, *NETWORKS[name][0], generator=rng)
    before, network = build(name), build(name)
    spread_thresholds(network, X, 0.7, torch.Generator().manual_seed(5))
    for link, old in zip(network.links, before.links, strict=True):
        assert torch.equal(link.operator.linear, old.operator.linear)
    assert torch.equal(network.operators[-1].weight, before.operators[-1].weight)
    draws = torch.Generator().manual_seed(5)
    for i, values in enumerate(pre_activations(network, X)):
        drawn = torch.randn(len(values), generator=draws)
        # The spread is that on the bits below as they are now.
        expected = 0.7 * values.std(dim=1, correction=0) * drawn
        found = network.operators[i].offset - before.operators[i].offset
        assert torch.allclose(found, expected, atol=1e-4)


def test_a_unit_that_does_not_vary_stays(rng):
    network = Network.dense([4, 6, 2], SoftmaxCE())
    network.operators[0].linear[2] = 0
    before = network.operators[0].offset.clone()
    spread_thresholds(network, torch.randn(50, 4, generator=rng), 1.0, rng)
    moved = network.operators[0].offset != before
    assert moved.tolist() == [True, True, False, True, True, True]


def test_heavy_samples_count_for_the_spread(rng):
    X = torch.randn(40, 5, generator=rng)
    weights = torch.arange(40) % 3 + 1.0
    one, other = (Network.dense([5, 7, 2], SoftmaxCE(), seed=2) for _ in range(2))
    spread_thresholds(one, X, 0.5, torch.Generator().manual_seed(1), weights)
    repeated = X.repeat_interleave(weights.long(), dim=0)
    spread_thresholds(other, repeated, 0.5, torch.Generator().manual_seed(1))
    assert torch.allclose(one.operators[0].offset, other.operators[0].offset, atol=1e-6)


def trained(threshold_spread, batches, *, widths=None):
    network = Network.dense([6, 30, 20, 3], SoftmaxCE(), seed=0)
    settings = StochasticSettings(threshold_spread=threshold_spread)
    solver = StochasticBCD(network, settings, 10, widths=widths)
    rng = torch.Generator().manual_seed(0)
    for _ in range(batches):
        solver.update(torch.randn(32, 6, generator=rng), torch.arange(32) % 3, rng)
    return [op.weight for op in network.operators]


def test_thresholds_are_scattered_once_and_only_at_a_fresh_start():
    plain = trained(None, 1)
    assert all(torch.equal(a, b) for a, b in zip(plain, trained(0.0, 1), strict=True))
    apart = float(trained(2.0, 1)[0][:, -1].std())  # of the first layer, whose inputs have mean 0
    assert apart > 3 * float(plain[0][:, -1].std())
    after = float(trained(2.0, 3)[0][:, -1].std())
    assert after == pytest.approx(apart, rel=0.2)  # a second time would add to it
    again = trained(2.0, 1, widths=[30, 20])
    assert all(
        torch.equal(a, b) for a, b in zip(trained(None, 1, widths=[30, 20]), again, strict=True)
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_a_batch_begins_with_balance_then_thresholds_apart(name, rng, monkeypatch):
    """The order counts: balance would take the shifts of pooled filters back."""
    X = torch.randn(40, *NETWORKS[name][0], generator=rng, dtype=torch.float64)
    weights = torch.rand(40, generator=rng, dtype=torch.float64) + 0.5
    expected, network = build(name, torch.float64), build(name, torch.float64)
    balance(expected, X, weights)
    spread_thresholds(expected, X, 1.3, torch.Generator().manual_seed(4), weights)
    solver = StochasticBCD(network, StochasticSettings(threshold_spread=1.3), 10)
    seen = []
    monkeypatch.setattr(
        solver,
        "_refresh_metrics",
        lambda *_: seen.extend(op.weight.clone() for op in network.operators),
    )
    with pytest.raises(RuntimeError):  # there is no metric without it: the batch ends here
        solver.update(X, torch.arange(40) % 3, torch.Generator().manual_seed(4), weights)
    for W, op in zip(seen, expected.operators, strict=True):
        assert torch.equal(W, op.weight)


def test_what_is_refused():
    for wrong, match in ((-0.1, "zero or a positive"), (10.5, "at most 10"), ("", "zero or a pos")):
        with pytest.raises(ValueError, match=f"threshold_spread must be {match}"):
            StochasticSettings(threshold_spread=wrong)
    X, y = torch.randn(40, 5), torch.arange(40) % 2
    options = {"hidden": (4,), "epochs": 1, "bias": False, "threshold_spread": 0.5}
    with pytest.raises(ValueError, match="threshold_spread is for units with a bias"):
        train(X, y, TrainSettings.from_options(**options))
