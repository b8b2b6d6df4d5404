"""Layers with several bits a unit: how they are written, what they compute, what they count."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from zeroone import Step, TrainSettings, from_torch, load, to_torch
from zeroone.analysis.counts import alive_units, counts
from zeroone.nn.layers import LayerPlan, thresholds_of
from zeroone.nn.network import Network
from zeroone.optim import BCD
from zeroone.utils.checks import InputError

NETWORKS = {
    "dense": ((12,), ("9:bits2", "7:bits3", 5)),
    "one bit": ((12,), ("9:bits1", 7)),
    "images": ((2, 8, 8), ("conv3x3:4:pad1:bits2:max2", "conv2x2:5:bits3:average2", "6:bits2")),
    "stream": (
        (1, 8, 8),
        ("conv3x3:4:pad1", "conv3x3:4:pad1:bits3", "conv3x3:8:pad1:bits3:stream:max2", 6),
    ),
    "dense stream": ((12,), (9, "7:bits2", "7:bits2:stream")),
}


def build(name, **options):
    shape, hidden = NETWORKS[name]
    options = {"seed": 4, "dtype": torch.float64} | options
    network = Network.build(shape, hidden, 3, "softmax", **options)
    for op in network.operators[1:]:
        op.weight *= 3  # so that units of bits exceed all of their thresholds at times
    return network


def samples(network, n=50):
    rng = torch.Generator().manual_seed(0)
    return 2 * torch.randn(n, network.n_features, dtype=torch.float64, generator=rng)


# --- the layer language


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("64:bits2", LayerPlan(64, bits=2)),
        ("64:stream:bits8", LayerPlan(64, stream=True, bits=8)),
        ("conv3x3:64:pad1:bits2", LayerPlan(64, 3, padding=1, bits=2)),
        ("conv3x3:6:max2:bits3:stream", LayerPlan(6, 3, 1, 0, "max", 2, 3, True)),
        ("9:bits1", LayerPlan(9, bits=1)),
    ],
)
def test_bits_are_read_and_written(text, plan):
    assert LayerPlan.parse(text) == plan
    assert LayerPlan.parse(plan.written) == LayerPlan.parse(str(plan)) == plan
    assert TrainSettings(hidden=(5, 5, text)).hidden == (5, 5, str(plan))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("9:bits0", "the number after bits must be a whole number of at least 1, got 0"),
        ("9:bits9", "the number after bits must be a whole number up to 8, got 9"),
        ("9:bits", "unknown option 'bits' .* bits2, with any number, and stream"),
        ("9:bits2:bits2", "has bits twice"),
    ],
)
def test_bits_that_cannot_be(text, sentence):
    with pytest.raises(InputError, match=sentence):
        LayerPlan.parse(text)


def test_the_exact_solver_takes_no_bits():
    sentence = r"several bits a unit \(bits\) are for solver='stochastic'"
    for hidden in (("6:bits2",), (6, "6:bits1")):
        with pytest.raises(InputError, match=sentence):
            TrainSettings(hidden=hidden, solver="exact")


def test_thresholds_divide_three_deviations_evenly():
    assert thresholds_of(0) == thresholds_of(1) == (0.0,)
    assert thresholds_of(2) == (-0.75, 0.75)
    assert thresholds_of(3) == (-1.0, 0.0, 1.0)
    assert thresholds_of(4) == (-1.125, -0.375, 0.375, 1.125)


def test_outline():
    assert repr(build("images")) == (
        "Network(\n"
        "  (0): conv3x3:4:pad1:bits2:max2, 2x8x8 -> 8x4x4, Step\n"
        "  (1): conv2x2:5:bits3:average2, 8x4x4 -> 15x1x1, Step\n"
        "  (2): dense:bits2, 15x1x1 -> 12, Step\n"
        "  (3): dense, 12 -> 3\n"
        "  inputs=128, classes=3, head=softmax, parameters=376\n"
        ")"
    )


# --- what they compute


def test_the_forward_pass_is_plain_torch():
    network = build("images")
    (W1, W2, W3, W4), X = (op.weight for op in network.operators), samples(network)

    def conv(V, W, n_in, side, **geometry):
        return functional.conv2d(V, W[:, :-1].reshape(-1, n_in, side, side), W[:, -1], **geometry)

    U = functional.max_pool2d(conv(X.reshape(-1, 2, 8, 8), W1, 2, 3, padding=1), 2)
    V = torch.cat([U > -0.75, U > 0.75], dim=1).double()
    U = functional.avg_pool2d(conv(V, W2, 8, 2), 2)
    V = torch.cat([U > -1, U > 0, U > 1], dim=1).double().flatten(1)
    U = functional.linear(V, W3[:, :-1], W3[:, -1])
    V = torch.cat([U > -0.75, U > 0.75], dim=1).double()
    expected = functional.linear(V, W4[:, :-1], W4[:, -1])
    torch.testing.assert_close(network.scores(X), expected, rtol=1e-12, atol=1e-12)
    assert len(expected.unique(dim=0)) > 10


@pytest.mark.parametrize("name", NETWORKS)
def test_files_keep_bits(name, tmp_path):
    network = build(name)
    again = load(network.save(tmp_path / "m.safetensors"))
    assert torch.equal(again.scores(samples(network)), network.scores(samples(network)))
    assert repr(again) == repr(network)
    network.layers[-1].bits = 2
    with pytest.raises(InputError, match="the last layer is not one of scores"):
        load(network.save(tmp_path / "m.safetensors"))


# --- torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NETWORKS)
def test_modules_of_bits_there_and_back(name, dtype):
    network = build(name, dtype=dtype)
    module, X = to_torch(network), samples(network).to(dtype)
    torch.testing.assert_close(module(X), network.scores(X))
    back = from_torch(module)
    assert torch.equal(back.scores(X), network.scores(X))
    assert repr(back) == repr(network)
    for one, other in zip(network.operators, back.operators, strict=True):  # in the same dtype
        torch.testing.assert_close(one.weight, other.weight, rtol=1e-7, atol=0)


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_absorb_what_a_module_normalises_by(name):
    network = build(name, bias=False)
    module, X = to_torch(network, trainable=True), 3 + samples(network, 300)
    for _ in range(30):
        module(X)
    module.eval()
    back = from_torch(module)
    assert not torch.allclose(back.scores(X), network.scores(X))
    torch.testing.assert_close(back.scores(X), module(X).detach(), rtol=1e-9, atol=1e-9)
    for layer, bits in zip(back.layers, back.hidden_bits(X), strict=False):
        if layer.bits == 2:  # of normal numbers, 77% exceed the lower threshold and 23% the other
            lower, upper = (float(part.mean()) for part in bits.chunk(2, dim=1))
            assert upper < 0.4
            assert lower > 0.6


def test_a_single_sample_takes_the_deviations_of_those_before_it():
    network = build("dense")
    module, X = to_torch(network, trainable=True), samples(network)
    before = module.state_dict()["layers.0.norm.running_mean"].clone()
    torch.testing.assert_close(module(X[:1]).detach(), network.scores(X[:1]))
    assert torch.equal(module.state_dict()["layers.0.norm.running_mean"], before)
    module(X)
    assert not torch.equal(module.state_dict()["layers.0.norm.running_mean"], before)


def test_modules_of_bits_train_on():
    network = build("dense")
    X = samples(network, 300)
    y = X[:, :3].argmax(dim=1)
    module = to_torch(network, trainable=True)
    bcd = BCD(module, 120, balance=False, keep=0.5, momentum=0.5)
    losses = []
    for _ in range(120):
        bcd.zero_grad()
        loss = functional.cross_entropy(module(X), y)
        loss.backward()
        bcd.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    back, scores = from_torch(module), module.eval()(X).detach()
    assert [str(LayerPlan.of(layer)) for layer in back.layers[:2]] == ["4:bits2", "4:bits3"]
    torch.testing.assert_close(back.scores(X), scores, rtol=1e-9, atol=1e-9)


def test_a_sequence_of_modules_is_the_network():
    """What a layer with bits stands for, in torch's own modules."""
    network = build("dense")
    W = [op.weight for op in network.operators]
    parts = []
    for matrix, bits in zip(W, (2, 3, 0, 0), strict=True):
        linear = nn.Linear(matrix.shape[1] - 1, len(matrix)).double()
        with torch.no_grad():
            linear.weight.copy_(matrix[:, :-1])
            linear.bias.copy_(matrix[:, -1])
        parts += [linear, Step(thresholds=thresholds_of(bits))]
    X = samples(network)
    back = from_torch(nn.Sequential(*parts[:-1]))
    torch.testing.assert_close(back.scores(X), network.scores(X), rtol=1e-12, atol=1e-12)


# --- counts


def counted():
    return Network.build((1, 6, 6), ("conv3x3:4:pad1:bits2:max2", "5:bits3"), 3, "softmax")


def test_counts_by_hand():
    assert counts(counted()) == {
        "active_units": [4, 5],
        "active_inputs": 1,
        "parameters": 4 * (9 + 1) + 5 * (8 * 9 + 1) + 3 * (15 + 1),
        "operations": {
            "macs": 36 * 4 * 9,
            "additions": 5 * 72 + 3 * 15,
            "word_operations": 5 * 2 + 3 * 1,
        },
    }


def test_a_unit_lives_by_any_of_its_bits():
    network = counted()
    dense, head = network.operators[1:]
    head.linear[:, [1, 6]] = 0  # two of the three bits of unit 1
    assert counts(network)["active_units"] == [4, 5]
    head.linear[:, 11] = 0
    assert alive_units(network)[2].tolist() == [True, False, True, True, True]
    dense.linear[:, 2 * 9 : 3 * 9] = 0  # the lower bits of filter 2
    assert counts(network)["active_units"] == [4, 4]
    dense.linear[:, 6 * 9 : 7 * 9] = 0
    found = counts(network)
    assert found["active_units"] == [3, 4]
    assert found["parameters"] == 3 * 10 + 4 * (6 * 9 + 1) + 3 * (12 + 1)
    assert found["operations"]["additions"] == 4 * 54 + 3 * 12
