"""Where thresholds are before the first batch."""

import pytest
import torch

from zeroone.heads import SoftmaxCE
from zeroone.layers import LayerPlan
from zeroone.network import Network
from zeroone.ops import step
from zeroone.solvers.start import scatter
from zeroone.solvers.stochastic import StochasticBCD
from zeroone.solvers.stochastic_settings import StochasticSettings
from zeroone.training import TrainSettings


def first_pre_activations(network, X):
    """Of each hidden layer, a unit (or filter) a row, on the inputs as the network takes them."""
    V, found = network.recent(X), []
    for layer in network.layers[:-1]:
        P = layer.forward(V)
        found.append(P.movedim(1, 0).flatten(1))
        V.append(step(P))
    return found


NETWORKS = {
    "dense": ((9,), [800, 700]),
    "convolutions": ((1, 8, 8), ["conv3x3:300:max2", "conv2x2:280:skip2", 350]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_shifts_are_gaussian_in_units_of_each_units_spread(name, rng):
    shape, hidden = NETWORKS[name]
    X = 3 * torch.randn(60, *shape, generator=rng)
    plans = [LayerPlan.parse(h) for h in hidden]
    before = Network.build(shape, plans, 3, SoftmaxCE(), seed=1)
    network = Network.build(shape, plans, 3, SoftmaxCE(), seed=1)
    scatter(network, X, 0.7, rng)
    for link, old in zip(network.links, before.links, strict=True):
        assert torch.equal(link.operator.linear, old.operator.linear)
    assert torch.equal(network.operators[-1].weight, before.operators[-1].weight)
    P = first_pre_activations(network, X)
    offsets = [
        op.offset - old.offset for op, old in zip(network.operators, before.operators, strict=True)
    ]
    for values, offset in zip(P, offsets[:-1], strict=True):
        # The spread is that on the bits below, which were scattered first.
        shifts = offset / values.std(dim=1, correction=0)
        n = len(shifts)
        assert abs(float(shifts.mean())) < 4 * 0.7 / n**0.5
        assert float(shifts.std()) == pytest.approx(0.7, rel=4 / (2 * n) ** 0.5)
        inside = float((shifts.abs() < 0.7).float().mean())  # of a Gaussian 68%, of two values none
        assert abs(inside - 0.683) < 4 * (0.22 / n) ** 0.5


def test_a_unit_that_does_not_vary_stays(rng):
    network = Network.dense([4, 6, 2], SoftmaxCE())
    network.operators[0].linear[2] = 0
    before = network.operators[0].offset.clone()
    scatter(network, torch.randn(50, 4, generator=rng), 1.0, rng)
    moved = network.operators[0].offset != before
    assert moved.tolist() == [True, True, False, True, True, True]


def test_heavy_samples_count_for_the_spread(rng):
    X = torch.randn(40, 5, generator=rng)
    weights = torch.arange(40) % 3 + 1.0
    one, other = (Network.dense([5, 7, 2], SoftmaxCE(), seed=2) for _ in range(2))
    scatter(one, X, 0.5, torch.Generator().manual_seed(1), weights)
    repeated = X.repeat_interleave(weights.long(), dim=0)
    scatter(other, repeated, 0.5, torch.Generator().manual_seed(1))
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


def test_what_is_refused():
    with pytest.raises(ValueError, match="threshold_spread must be"):
        StochasticSettings(threshold_spread=-0.1)
    with pytest.raises(ValueError, match="threshold_spread is for units with a bias"):
        TrainSettings.from_options(threshold_spread=0.5, bias=False)
