"""Streams: the forward pass, model files, counts, baselines."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from model_files import rewritten
from stream_networks import DIGITS, HIDDEN, IMAGE, batch, build
from zeroone import TrainSettings, load
from zeroone.analysis.counts import counts, parameters
from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import BaselineSettings
from zeroone.data.load import load_data
from zeroone.deploy.compress import compress
from zeroone.nn.backbones import stream_stages
from zeroone.nn.network import Network
from zeroone.nn.scaling import Scaling
from zeroone.training.baselines import train_baseline


@pytest.fixture
def normal(rng):
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


def convolve(V, W, n_in):
    kernels = W[:, : n_in * 9].reshape(-1, n_in, 3, 3)
    return functional.conv2d(V, kernels, W[:, -1], padding=1)


# --- the network


def test_the_forward_pass_is_plain_torch(normal):
    network = build(dtype=torch.float64, seed=1)
    X, _ = batch(normal)
    W = [op.weight for op in network.operators]
    U1 = convolve(X.reshape(-1, *IMAGE), W[0], 2)
    V1 = (U1 > 0).double()
    U2 = functional.max_pool2d(convolve(V1, W[1], 4) + U1, 2)
    V2 = (U2 > 0).double()
    U3 = functional.max_pool2d(convolve(V2, W[2], 4) + torch.cat([U2, U2], dim=1), 3)
    V3 = (U3 > 0).double()
    U4 = V3.flatten(1) @ W[3][:, :-1].T + W[3][:, -1]
    V4 = (U4 > 0).double()
    U5 = V4 @ W[4][:, :-1].T + W[4][:, -1] + torch.cat([U4, U4], dim=1)
    V5 = (U5 > 0).double()
    bits = network.hidden_bits(X)
    assert all(torch.equal(a, b) for a, b in zip(bits, (V1, V2, V3, V4, V5), strict=True))
    torch.testing.assert_close(network.forward(X), V5 @ W[5][:, :-1].T + W[5][:, -1])


def test_thresholds_of_a_stream_are_those_of_the_running_statistics(normal):
    """Several bits: what a layer passes on is not normalised, only what its steps see."""
    hidden = ("conv3x3:4:pad1:bits2", "conv3x3:8:pad1:bits2:stream:max2")
    network = build(hidden, (2, 8, 8), dtype=torch.float64)
    X, _ = batch(normal, 50, (2, 8, 8))
    mean, deviation = normal(8), normal(8).abs() + 0.5
    network.layers[1].thresholds = mean + torch.tensor([[-0.75], [0.75]]) * deviation
    W = [op.weight for op in network.operators]
    U1 = convolve(X.reshape(-1, 2, 8, 8), W[0], 2)
    V1 = torch.cat([U1 > -0.75, U1 > 0.75], dim=1).double()
    U2 = functional.max_pool2d(convolve(V1, W[1], 8) + torch.cat([U1, U1], dim=1), 2)
    B2 = (U2 - mean.view(-1, 1, 1)) / deviation.view(-1, 1, 1)
    V2 = torch.cat([B2 > -0.75, B2 > 0.75], dim=1).double()
    assert torch.equal(network.hidden_bits(X)[1], V2)
    torch.testing.assert_close(compress(network).forward(X), network.forward(X))


@pytest.mark.parametrize(
    ("hidden", "sentence"),
    [
        (
            ["conv3x3:4:stream"],
            r"layer 1 \(conv3x3:4:stream\): a stream begins at the second layer",
        ),
        (
            ["conv3x3:4:pad1", "conv3x3:4:stream"],
            r"layer 2 .* cannot add samples of shape \(4, 6, 6\), .* to \(4, 4, 4\)",
        ),
        (["conv3x3:4:pad1", "conv3x3:6:pad1:stream"], r"layer 2 .* a multiple of the units"),
        (["conv3x3:4:pad1", "4:stream"], r"layer 2 \(4:stream\): .* the same sides"),
        (["conv3x3:4:pad1:bits2", "conv3x3:4:pad1:stream"], "same number of bits, not 2 and 0"),
        (["conv3x3:4", "conv3x3:4:pad1:stream:max9"], r"layer 2 .*windows of 9 x 9"),
    ],
)
def test_streams_that_do_not_fit(hidden, sentence):
    with pytest.raises(ValueError, match=sentence):
        build(hidden)
    with pytest.raises(ValueError, match=sentence):
        FloatNetwork([72, *hidden, 3], BaselineSettings("ste"), Scaling.identity(72), IMAGE)


def test_stages_of_a_stream():
    hidden = ("conv3x3:32:pad1:bits2", "conv3x3:32:pad1:bits2:stream:max2")
    assert stream_stages((32, 64), 2)[:2] == hidden
    network = build(stream_stages((16, 32, 64)), (3, 32, 32), 10)
    assert network.streams == [False, *[True] * 11, False]
    assert network.layers[-2].shape_out == (2 * 64, 8, 8)


# --- model files


@pytest.mark.parametrize(("joined", "size"), [(2, 0.3), (16, 0.25)])
def test_layers_of_a_stream_start_small(joined, size):
    """Together they add no more than they add it to."""
    plans = ["conv3x3:40:pad1:bits2"] * 2 + ["conv3x3:40:pad1:bits2:stream"] * joined
    network = Network.build((1, 4, 4), plans, 3, "softmax")
    plain, *streams = (layer.operator.linear.std() for layer in network.layers[1:-1])
    assert all(float(std / plain) == pytest.approx(size, rel=0.05) for std in streams)


def test_a_saved_network_comes_back_to_the_bit(tmp_path, normal):
    network = build(("8:bits2", "16:bits2:stream"), (72,), seed=3)
    network.layers[1].thresholds = torch.stack([torch.zeros(16), normal(16).float().abs()])
    X = normal(20, 72).float()
    again = load(network.save(tmp_path / "model.safetensors"))
    assert torch.equal(network.scores(X), again.scores(X))
    assert repr(again) == repr(network)
    assert again.streams == [False, True, False]


def thresholds(*values):
    rows = torch.tensor(values)[:, None].expand(-1, 14).contiguous()
    return lambda header, tensors: tensors.update({"layers.4.thresholds": rows})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda header, tensors: header["layers"].__setitem__(0, "conv3x3:4:pad1:stream"),
            "layer 1 .* a stream begins at the second layer",
        ),
        (
            lambda header, tensors: header["layers"].__setitem__(5, "3:stream"),
            "the last layer is not one of scores",
        ),
        (thresholds(0.5), "layer 5 has thresholds of another shape"),
        (thresholds(0.5, 0.0), "layer 5 has thresholds that fall"),
        (thresholds(0.0, float("nan")), "not made of finite numbers"),
    ],
)
def test_broken_streams_are_refused(tmp_path, change, sentence):
    hidden = (*HIDDEN[:3], "7:bits2", "14:bits2:stream")
    path = build(HIDDEN if "another" in sentence else hidden).save(tmp_path / "model.safetensors")
    rewritten(path, change)
    with pytest.raises(ValueError, match=sentence):
        load(path)


# --- counts, baselines


def test_counts():
    own = 4 * 19 + 4 * 37 + 8 * 37 + 7 * 9 + 14 * 8 + 3 * 15
    assert counts(build()) == {
        "active_units": [4, 4, 8, 7, 14],
        "active_inputs": 2,
        "parameters": own,
        "operations": {
            "macs": 36 * 4 * 18,
            "additions": 36 * 4 * 36 + 9 * 8 * 36 + 7 * 8 + 14 * 7 + 3 * 14,
            "word_operations": 36 * 4 + 9 * 8 + 7 + 14 + 3,
        },
    }


def test_a_unit_that_only_the_stream_carries_on_is_active():
    network = build()
    network.operators[4].weight[:, :2] = 0  # layer 5 takes no bits of two units of layer 4
    assert counts(network)["active_units"] == [4, 4, 8, 7, 14]
    network.operators[5].weight[:, [0, 7]] = 0  # nor are there scores of unit 0 in the stream
    assert counts(network)["active_units"] == [4, 4, 8, 6, 12]


def baseline(activation, **options):
    torch.manual_seed(0)
    settings = BaselineSettings(activation, **options)
    return FloatNetwork([72, *HIDDEN, 3], settings, Scaling.identity(72), IMAGE).eval()


def test_a_baseline_has_the_same_stream(normal):
    assert counts(baseline("ste")) == counts(build())
    relu = baseline("relu", batch_norm=True)
    linear = [m for m in relu.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert parameters(relu) == sum(p.numel() for m in linear for p in m.parameters())
    model, network = baseline("ste"), build()
    for op, copy in zip(network.operators, model.operators, strict=True):
        op.weight = copy.weight
    X = normal(20, 72).float()
    assert torch.allclose(model(X), network.forward(X), atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "ste"])
def test_baselines_learn_digits(activation):
    data = load_data("digits")
    settings = TrainSettings.from_options(hidden=DIGITS, epochs=3, batch=32)
    chosen = BaselineSettings(activation, batch_norm=True, learning_rate=3e-3)
    _, record = train_baseline(data.X, data.y, chosen, settings, test=data.test, image=(1, 8, 8))
    assert record["result"]["test_error"] < 0.15
