"""Compression removes what does not matter and changes nothing else."""

import numpy as np
import pytest
import torch

from zeroone import TrainSettings, load, train
from zeroone.analysis.counts import active_inputs
from zeroone.data.load import load_data
from zeroone.deploy.compress import compress
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network

PLANS = {
    "dense": ((6,), [7, 5]),
    "deep": ((6,), [7, 5, 6, 4]),
    "images": ((2, 6, 6), ["conv3x3:5:pad1:max2", "conv2x2:4", 6]),
    "padded": ((1, 6, 6), ["conv3x3:5:pad1", "conv3x3:4:pad1:average2", 6]),
}


def random_network(name, seed=0, dtype=torch.float64):
    shape, hidden = PLANS[name]
    plans = [LayerPlan.parse(layer) for layer in hidden]
    network = Network.build(shape, plans, 3, SoftmaxCE(), seed=seed, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    for op in network.operators:
        if op.offset is not None:
            op.offset.normal_(std=0.01, generator=generator)
    return network


def samples(network, n=200, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, network.n_features, dtype=torch.float64, generator=generator)


def empty_columns(network, i, units):
    above = network.operators[i]
    above.linear[:, above.columns_of(torch.tensor(units))] = 0


@pytest.mark.parametrize("name", PLANS)
def test_dead_units_leave(name):
    network = random_network(name)
    empty_columns(network, 1, [0, 3])
    empty_columns(network, 2, [1])
    before = [op.weight.clone() for op in network.operators]
    small = compress(network)
    assert [op.n_out for op in small.operators[:2]] == [
        network.operators[0].n_out - 2,
        network.operators[1].n_out - 1,
    ]
    X = samples(network)
    torch.testing.assert_close(small.scores(X), network.scores(X), rtol=0, atol=1e-12)
    assert all(torch.equal(a, op.weight) for a, op in zip(before, network.operators, strict=True))


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("bit", [0, 1])
def test_constants_go_into_the_biases(name, bit):
    """One unit has no weights; the bias of another exceeds all that bits can add."""
    network = random_network(name)
    network.operators[0].linear[2] = 0
    network.operators[0].offset[2] = 0.5 if bit else -0.5
    assert float(network.operators[1].linear[1].abs().sum()) < 90
    network.operators[1].offset[1] = 100.0 if bit else -100.0
    plain = compress(network)
    small = compress(network, fold=True)
    X = samples(network)
    torch.testing.assert_close(plain.scores(X), network.scores(X), rtol=0, atol=1e-12)
    torch.testing.assert_close(small.scores(X), network.scores(X), rtol=0, atol=1e-12)
    if bit:  # a 1 moves into biases only on demand, because that changes how sums are rounded
        assert [op.n_out for op in plain.operators] == [op.n_out for op in network.operators]
    padded = name == "padded"
    left = [op.n_out for op in small.operators[:2]]
    full = [op.n_out for op in network.operators[:2]]
    if not bit or not padded:
        assert left == [full[0] - 1, full[1] - 1]
    else:
        assert left[0] == full[0]


@pytest.mark.parametrize("sign", [-1, 1])
def test_inputs_have_either_sign(sign):
    """Weights and a bias of one sign do not fix the bit of a unit on raw inputs."""
    network = random_network("dense")
    network.operators[0].weight[2] = sign * network.operators[0].weight[2].abs()
    small = compress(network)
    assert small.operators[0].n_out == network.operators[0].n_out
    X = samples(network)
    torch.testing.assert_close(small.scores(X), network.scores(X), rtol=0, atol=1e-12)


def test_inputs_that_nobody_uses_leave(tmp_path):
    network = random_network("deep")
    empty_columns(network, 0, [1, 4])
    network.name_features(list("abcdef"))
    small = compress(network)
    assert small.operators[0].n_inputs == 4
    assert small.n_features == 6
    assert small.scaling.taken.tolist() == [0, 2, 3, 5]
    X = samples(network)
    torch.testing.assert_close(small.scores(X), network.scores(X), rtol=0, atol=1e-12)
    again = load(small.save(tmp_path / "small.safetensors"))
    assert torch.equal(again.scores(X), small.scores(X))
    assert again.feature_names == list("abcdef")
    assert torch.equal(compress(small).scores(X), small.scores(X))


def test_everything_dead_still_answers():
    network = random_network("dense")
    for op in network.operators:
        op.linear.zero_()
    small = compress(network)
    X = samples(network)
    assert [op.n_out for op in small.operators] == [1, 1, 3]
    torch.testing.assert_close(small.scores(X), network.scores(X))


def test_a_network_that_l20_has_thinned():
    """Training removes units; compression removes the inputs that training emptied."""
    digits = load_data("digits")
    settings = TrainSettings.from_options(hidden=(40, 30), epochs=30, lam=0.3)
    network = train(digits.X, digits.y, settings).network
    small = compress(network)
    assert small.operators[0].n_inputs == active_inputs(network) < 64
    difference = (small.scores(digits.X_test) - network.scores(digits.X_test)).abs().max()
    assert float(difference) < 1e-5
    assert np.array_equal(small.predict(digits.X_test), network.predict(digits.X_test))
