"""Shortcuts: the forward pass, model files, counts, baselines."""

import pytest
import torch
from torch.nn import functional

from model_files import rewritten
from residual_networks import DIGITS, HIDDEN, IMAGE, batch, build
from zeroone import TrainSettings, load
from zeroone.analysis.counts import counts, parameters
from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import BaselineSettings
from zeroone.data.load import load_data
from zeroone.nn.backbones import residual_blocks
from zeroone.nn.layers import recent
from zeroone.nn.scaling import Scaling
from zeroone.training.baselines import train_baseline


@pytest.fixture
def normal(rng):
    return lambda *shape: torch.randn(*shape, generator=rng, dtype=torch.float64)


# --- the network


def test_the_forward_pass_is_plain_torch(normal):
    network = build(dtype=torch.float64, seed=1)
    X, _ = batch(normal)
    W = [op.weight for op in network.operators]
    S = [layer.shortcut and layer.shortcut.weight for layer in network.layers]

    def conv(V, W, n_in, side, **geometry):
        return functional.conv2d(
            V, W[:, : n_in * side**2].reshape(-1, n_in, side, side), **geometry
        )

    V0 = X.reshape(-1, *IMAGE)
    V1 = (conv(V0, W[0], 2, 3, bias=W[0][:, -1], padding=1) > 0).double()
    U2 = conv(V1, W[1], 4, 3, bias=W[1][:, -1], padding=1, stride=2) + conv(
        V0, S[1], 2, 1, stride=2
    )
    V2 = (U2 > 0).double()
    U3 = conv(V2, W[2], 5, 3, bias=W[2][:, -1], padding=1) + conv(V0, S[2], 2, 1, stride=2)
    V3 = (functional.max_pool2d(U3, 3) > 0).double()
    U4 = V3.flatten(1) @ W[3][:, :-1].T + W[3][:, -1] + V2.flatten(1) @ S[3].T
    V4 = (U4 > 0).double()
    bits = network.hidden_bits(X)
    assert all(torch.equal(a, b) for a, b in zip(bits, (V1, V2, V3, V4), strict=True))
    assert torch.allclose(network.forward(X), V4 @ W[4][:, :-1].T + W[4][:, -1])
    assert [(x.source, x.layer) for x in network.shortcuts] == [(0, 1), (0, 2), (2, 3)]
    assert [len(network.consumers(i)) for i in range(5)] == [3, 1, 2, 1, 1]


def test_no_more_activations_are_kept_than_needed():
    assert recent(torch.zeros(1), (0, 0, 0)).maxlen == 1
    assert recent(torch.zeros(1), (layer.skip for layer in build().layers)).maxlen == 3


def test_the_start_is_balanced(normal):
    network = build((300, 300, "300:skip2", "300:skip4"), (200,), seed=2)
    X = normal(500, 200).float()
    for layer in network.layers[2:4]:
        assert layer.operator.linear.std() == pytest.approx((2 * 300) ** -0.5, rel=0.02)
        n_in = layer.shortcut.n_inputs
        assert layer.shortcut.weight.std() == pytest.approx((2 * n_in) ** -0.5, rel=0.02)
        sums = layer.operator.linear.sum(dim=1)
        if n_in == 300:  # bits; of the inputs, whose mean is 0, nothing is taken off
            sums = sums + layer.shortcut.weight.sum(dim=1)
        assert torch.allclose(layer.operator.offset, -sums / 2, atol=1e-5)
    assert all(0.4 < float(bits.mean()) < 0.6 for bits in network.hidden_bits(X))
    alike = build(("9", "9:skip2"), (9,), std=3.0).layers[1]
    assert alike.shortcut.weight.std() == pytest.approx(3.0, rel=0.3)


# --- model files


def test_a_saved_network_comes_back_to_the_bit(tmp_path, normal):
    network = build(seed=3)
    X = normal(20, 72)
    again = load(network.save(tmp_path / "model.safetensors"))
    assert torch.equal(network.scores(X), again.scores(X))
    assert repr(again) == repr(network)
    assert again.layers[2].skip == 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda header, tensors: tensors.update({"layers.1.shortcut": torch.zeros(5, 3)}),
            r"layer 2 .* weights of shape \(5, 3\) do not take samples of shape \(2, 6, 6\)",
        ),
        (lambda header, tensors: tensors.pop("layers.1.shortcut"), "not a complete zeroone model"),
        (
            lambda header, tensors: header["layers"].__setitem__(1, "conv3x3:5:stride2:pad1:skip1"),
            "the number after skip must be",
        ),
        (
            lambda header, tensors: header["layers"].__setitem__(1, "conv3x3:5:stride2:pad1:skip4"),
            "layer 2 .* skip4 reaches below the inputs",
        ),
        (
            lambda header, tensors: header["layers"].__setitem__(2, "conv3x3:6:pad1:skip2:max3"),
            r"layer 3 .* weights of shape \(6, 2\) do not take samples of shape \(4, 6, 6\)",
        ),
        (
            lambda header, tensors: header["layers"].__setitem__(4, "3:skip2"),
            "the last layer is not one of scores",
        ),
    ],
)
def test_broken_shortcuts_are_refused(tmp_path, change, sentence):
    path = build().save(tmp_path / "model.safetensors")
    rewritten(path, change)
    with pytest.raises(ValueError, match=sentence):
        load(path)


# --- counts, rivals, architectures


def test_counts():
    network = build()
    own = 4 * 19 + 5 * 37 + 6 * 46 + 7 * 7 + 3 * 8
    assert counts(network) == {
        "active_units": [4, 5, 6, 7],
        "active_inputs": 2,
        "parameters": own + 5 * 2 + 6 * 2 + 7 * 45,
        "operations": {
            "macs": 36 * 4 * 18 + 9 * 5 * 2 + 9 * 6 * 2,
            "additions": 9 * 5 * 36 + 9 * 6 * 45 + 7 * 6 + 7 * 45 + 3 * 7,
            "word_operations": 9 * 5 + 9 * 6 + 7 + 7 + 3,
        },
    }


def test_one_consumer_is_enough_to_be_active():
    network = build()
    network.operators[2].weight[:, :18] = 0  # layer 3 takes nothing of two units of layer 2
    assert counts(network)["active_units"] == [4, 5, 6, 7]
    network.layers[3].shortcut.weight[:, 9:18] = 0  # nor does layer 4 of the second of them
    assert counts(network)["active_units"] == [4, 4, 6, 7]
    network.operators[1].weight[1:] = 0  # unit 0 of layer 2 alone listens to layer 1
    network.layers[3].shortcut.weight[:, :9] = 0
    assert counts(network)["active_units"] == [0, 3, 6, 7]
    assert counts(network)["active_inputs"] == 2  # by the shortcuts


def rival(activation, **options):
    torch.manual_seed(0)
    settings = BaselineSettings(activation, **options)
    return FloatNetwork([72, *HIDDEN, 3], settings, Scaling.identity(72), IMAGE).eval()


def test_a_rival_has_the_same_shortcuts(normal):
    assert counts(rival("ste")) == counts(build())
    relu = rival("relu", batch_norm=True)
    linear = [m for m in relu.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    assert parameters(relu) == sum(p.numel() for m in linear for p in m.parameters())
    model, network = rival("ste"), build()
    for link, copy in zip(network.links, model.links, strict=True):
        link.operator.weight = copy.operator.weight
    X = normal(20, 72).float()
    assert torch.allclose(model(X), network.forward(X), atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "ste"])
def test_rivals_learn_digits(activation):
    data = load_data("digits")
    settings = TrainSettings.from_options(hidden=DIGITS, epochs=3, batch=32)
    rival = BaselineSettings(activation, batch_norm=True, learning_rate=3e-3)
    model, record = train_baseline(data.X, data.y, rival, settings, test=data.test, image=(1, 8, 8))
    assert record["result"]["test_error"] < 0.15
    assert model.layers[2].shortcut.weight.grad is not None


@pytest.mark.parametrize(
    ("hidden", "sentence"),
    [
        (["conv3x3:4", "conv3x3:4:pad1", "conv1x1:4:skip2:max9"], r"layer 3 .*windows of 9 x 9"),
        (["conv3x3:4:skip2"], r"layer 1 \(conv3x3:4:skip2\): skip2 reaches below the inputs"),
        (
            ["conv3x3:4", "conv2x2:4", "conv1x1:4:skip2"],
            r"layer 3 \(conv1x1:4:skip2\): .* \(4, 4, 4\) at a stride of 1,.* \(4, 3, 3\)",
        ),
    ],
)
def test_rivals_name_the_layer_that_does_not_fit(hidden, sentence):
    with pytest.raises(ValueError, match=sentence):
        FloatNetwork([72, *hidden, 3], BaselineSettings("relu"), Scaling.identity(72), IMAGE)


def test_residual_blocks():
    hidden = ("conv3x3:32:pad1:max2", *residual_blocks((32, 64, 128, 256)))
    assert len(hidden) == 17
    network = build(hidden, (3, 32, 32), 10)
    assert parameters(network) == 2_890_506
    assert [x.operator.stride for x in network.shortcuts] == [1, 1, 2, 1, 2, 1, 2, 1]
    assert network.layers[-2].shape_out == (256, 2, 2)
