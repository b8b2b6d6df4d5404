"""0/1 networks as torch modules, and back."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from zeroone import (
    IntegerModel,
    Step,
    ZeroOneClassifier,
    compress,
    from_torch,
    load,
    quantise,
    to_torch,
)
from zeroone.data.load import load_data
from zeroone.nn.backbones import Backbone, make_backbone
from zeroone.nn.heads import make_head
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network
from zeroone.nn.scaling import Scaling
from zeroone.utils.checks import InputError

PLANS = {
    "dense": ((12,), (9, 7)),
    "no hidden layer": ((12,), ()),
    "dense stream": ((12,), (9, 9, "9:stream")),
    "convolution": ((2, 9, 8), ("conv3x3:4:pad1:max2", "conv2x2:5:stride2", 6)),
    "bits": ((1, 8, 8), ("conv3x3:4:pad1:bits2", "conv3x3:3:bits3:max2", "6:bits2")),
    "average": ((1, 8, 8), ("conv3x3:4:average2", 6)),
    "stream": (
        (1, 8, 8),
        ("conv3x3:4:pad1", "conv3x3:4:pad1:stream:max2", "conv3x3:8:pad1:stream"),
    ),
}


@pytest.mark.parametrize("take", [to_torch, quantise, compress])
def test_only_networks_are_converted(take):
    data = load_data("breast-cancer")
    classifier = ZeroOneClassifier((3,), epochs=1)
    for _ in range(2):
        with pytest.raises(InputError, match=r"not ZeroOneClassifier; of a fitted .* network_\.$"):
            take(classifier)
        classifier.fit(data.X, data.y)
    with pytest.raises(InputError, match=r"^this takes a zeroone\.Network, not IntegerModel\.$"):
        take(IntegerModel(quantise(classifier.network_)))
    with pytest.raises(InputError, match="made of what quantise returns, not of Network"):
        IntegerModel(classifier.network_)


def build(name, dtype=torch.float64):
    shape, hidden = PLANS[name]
    n = torch.Size(shape).numel()
    scaling = Scaling(torch.linspace(-1, 1, n, dtype=dtype), torch.tensor(1.7, dtype=dtype))
    return Network.build(
        shape,
        [LayerPlan.parse(layer) for layer in hidden],
        3,
        make_head("hardmax"),
        seed=4,
        dtype=dtype,
        scaling=scaling,
        classes=["a", "b", "c"],
    )


def samples(network, n=20):
    return torch.randn(
        n, network.n_features, dtype=network.dtype, generator=torch.Generator().manual_seed(0)
    )


@pytest.mark.parametrize("name", PLANS)
def test_the_same_scores_there_and_back(name):
    network = build(name)
    module, X = to_torch(network), samples(network)
    torch.testing.assert_close(module(X), network.scores(X), rtol=1e-12, atol=1e-12)
    back = from_torch(module)
    assert torch.equal(back.scores(X), network.scores(X))
    assert back.classes == network.classes
    assert back.head.describe() == network.head.describe()
    assert repr(back) == repr(network)


@pytest.mark.parametrize("name", PLANS)
def test_export_for_any_number_of_samples(name):
    network = build(name)
    X = samples(network)
    rows = torch.export.Dim("rows", min=2, max=4096)
    exported = torch.export.export(to_torch(network), (X,), dynamic_shapes=({0: rows},))
    few = X[:3]
    torch.testing.assert_close(exported.module()(few), network.scores(few), rtol=1e-12, atol=1e-12)


def test_a_state_dict_of_its_own():
    network = build("stream")
    module, X = to_torch(network), samples(network)
    other = to_torch(build("stream"))
    state = {name: torch.rand_like(tensor) for name, tensor in module.state_dict().items()}
    assert {"centre", "scale", "layers.0.linear.weight", "layers.2.linear.weight"} <= set(state)
    module.load_state_dict(state)
    other.load_state_dict(state)
    assert torch.equal(module(X), other(X))
    assert torch.equal(from_torch(module).scores(X), from_torch(other).scores(X))
    assert not torch.equal(network.scores(X), module(X))  # the network's weights are its own


def test_a_network_on_a_body(tmp_path):
    layers = make_backbone("tiny", (1, 8, 8), lambda _units: nn.ReLU())
    backbone = Backbone("tiny", (1, 8, 8), layers, Scaling.identity(128))
    top = Network.build((128,), [9], 3, make_head("softmax"))
    network = top.on_backbone(backbone, Scaling.identity(64))
    X = samples(network)
    torch.testing.assert_close(to_torch(network)(X), network.scores(X), rtol=1e-5, atol=1e-6)
    module = to_torch(network)
    module.double()
    for parameter in module.parameters():
        parameter.zero_()
    assert network.scores(X).abs().sum() > 0  # the backbone is the network's own
    again = from_torch(to_torch(network))
    again.save(tmp_path / "model.safetensors")
    assert torch.equal(load(tmp_path / "model.safetensors").scores(X), network.scores(X))


def test_on_top_of_any_torch_model():
    digits = load_data("digits")
    torch.manual_seed(0)
    backbone = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten()
    )
    X, X_test = (torch.tensor(part, dtype=torch.float32) for part in (digits.X, digits.X_test))
    with torch.no_grad():
        features, test_features = backbone(X), backbone(X_test)
    options = {"dtype": "float32"}
    classifier = ZeroOneClassifier((60,), epochs=10, options=options).fit(features, digits.y)
    whole = nn.Sequential(backbone, to_torch(classifier.network_)).eval()
    with torch.no_grad():
        predicted = classifier.classes_[whole(X_test).argmax(dim=1).numpy()]
    assert (predicted == classifier.predict(test_features)).mean() > 0.99
    assert (predicted == digits.y_test).mean() > 0.9


def test_from_plain_modules():
    dense = nn.Sequential(nn.Linear(4, 9), Step(), nn.Linear(9, 3))
    X = torch.randn(6, 4)
    network = from_torch(dense, classes=["x", "y", "z"])
    torch.testing.assert_close(network.scores(X), dense(X).detach())
    assert set(network.predict(X)) <= {"x", "y", "z"}
    images = nn.Sequential(
        nn.Unflatten(1, (2, 8, 8)),
        nn.Conv2d(2, 5, 3, padding=1),
        nn.MaxPool2d(2),
        Step(),
        nn.Flatten(),
        nn.Linear(80, 3),
    )
    X = torch.randn(6, 128)
    network = from_torch(images[1:], image=(2, 8, 8))
    torch.testing.assert_close(network.scores(X), images(X).detach(), rtol=1e-5, atol=1e-6)


def test_other_ways_to_write_the_same_modules():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(1, 3, (3, 3), padding="same"), nn.MaxPool2d((2, 2), (2, 2)))
    whole = nn.Sequential(
        nn.Sequential(block, Step()),
        nn.Conv2d(3, 4, 3, padding="valid"),
        nn.AvgPool2d(2, (2, 2)),
        Step(),
        nn.Flatten(),
        nn.Linear(4, 2),
    )
    X = torch.randn(9, 1, 8, 8)
    network = from_torch(whole, image=(1, 8, 8))
    expected = whole(X).detach()
    torch.testing.assert_close(network.scores(X.flatten(1)), expected, rtol=1e-5, atol=1e-6)


SCORES = (Step(), nn.Flatten(), nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 2, padding="same")), "padded alike on all sides"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.AvgPool2d(2, divisor_override=3)), "side by side"),
        (nn.Linear(2, 2), "only modules of to_torch and nn.Sequential"),
        (nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)), "follows a layer without a Step"),
        (
            nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)),
            "module 1 .ReLU.: it has no place",
        ),
        (nn.Sequential(nn.Linear(2, 3), Step()), "ends with a linear layer"),
        (nn.Sequential(nn.Conv2d(1, 2, (1, 2))), "are square"),
        (nn.Sequential(nn.Conv2d(2, 2, 1, groups=2)), "no groups"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(3, 1)), "side by side"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, dilation=2)), "side by side"),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.MaxPool2d(2)), "second pooling"),
        (nn.Sequential(nn.Conv2d(1, 2, 3)), "ends with a linear layer"),
        (
            nn.Sequential(nn.Conv2d(1, 4, 3), Step(), nn.Conv2d(8, 4, 3), *SCORES),
            r"layer 2 .conv3x3:4.: weights of shape \(4, 73\) do not take .* \(4, 6, 6\)",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 4, 9), *SCORES),
            r"layer 1 .conv9x9:4.: a kernel of 9 x 9 .* larger than its input \(1, 8, 8\)",
        ),
        (
            nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(7), *SCORES),
            r"layer 1 .conv3x3:4:max7.: windows of 7 x 7 do not fit into \(4, 6, 6\)",
        ),
        (
            nn.Sequential(nn.Linear(2, 3), Step(), nn.Linear(4, 2)),
            r"layer 2 .2.: weights of shape \(2, 5\) do not take samples of shape \(3,\)",
        ),
    ],
)
def test_modules_that_are_no_0_1_networks(module, sentence):
    first = next(module.modules()) if isinstance(module, nn.Linear) else module[0]
    image = (1, 8, 8) if isinstance(first, nn.Conv2d) else None
    with pytest.raises(InputError, match=sentence):
        from_torch(module, image=image)


def test_labels_of_any_kind_of_list(tmp_path):
    module = nn.Sequential(nn.Linear(4, 9), Step(), nn.Linear(9, 3))
    for classes in (np.array([3, 5, 7]), [np.int64(3), np.int64(5), np.int64(7)], (3, 5, 7)):
        network = from_torch(module, classes=classes)
        assert load(network.save(tmp_path / "m.safetensors")).classes == [3, 5, 7]
    with pytest.raises(InputError, match="must be distinct"):
        from_torch(module, classes=[1, 1, 2])
    mixed = nn.Sequential(nn.Linear(4, 9).double(), Step(), nn.Linear(9, 3))
    for wrong in (mixed, deepcopy(module).bfloat16()):
        with pytest.raises(InputError, match="all be float32, or all float64"):
            from_torch(wrong)


# --- batch normalisation and several thresholds


def normed(*last):
    """Every place where a normalisation may stand, with weights of both signs."""
    parts = [
        *(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.MaxPool2d(2)),
        *(nn.BatchNorm2d(8, affine=False), Step(thresholds=(-0.5, 0.5))),
        *(nn.Conv2d(16, 6, 3), nn.BatchNorm2d(6), nn.MaxPool2d(2), Step()),
        *(nn.Flatten(), nn.Linear(24, 5), nn.BatchNorm1d(5), Step(thresholds=(-0.3, 0.0, 0.3))),
        *(nn.Linear(15, 3), *last),
    ]
    torch.manual_seed(3)
    module, X = nn.Sequential(*parts).double(), torch.randn(300, 1, 12, 12).double()
    with torch.no_grad():
        for p in module.parameters():
            p.normal_()
        for _ in range(20):
            module(X)
    return module.eval(), X


@torch.no_grad()
def test_thresholds_absorb_batch_normalisation():
    module, X = normed()
    network = from_torch(module, image=(1, 12, 12))
    assert [op.n_out for op in network.operators] == [16, 6, 15, 3]
    torch.testing.assert_close(network.scores(X.flatten(1)), module(X), rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_scores_may_be_normalised():
    module, X = normed(nn.BatchNorm1d(3, affine=False))
    network = from_torch(module, image=(1, 12, 12))
    torch.testing.assert_close(network.scores(X.flatten(1)), module(X), rtol=1e-9, atol=1e-9)


def test_normalisations_that_cannot_be_absorbed():
    below = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.BatchNorm2d(2), Step())
    whole = nn.Sequential(below, nn.Flatten(), nn.Linear(18, 2))
    with torch.no_grad():
        below[2].weight.copy_(torch.tensor([1.0, -1.0]))
    with pytest.raises(InputError, match=r"module 2 .BatchNorm2d.: a negative weight makes"):
        from_torch(whole, image=(1, 8, 8))
    below[2] = nn.BatchNorm2d(2, track_running_stats=False)
    with pytest.raises(InputError, match="it keeps no running statistics"):
        from_torch(whole, image=(1, 8, 8))
    with pytest.raises(InputError, match=r"module 0 .BatchNorm1d.: it has no place"):
        from_torch(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)))


# --- poolings of bits


@pytest.mark.parametrize(
    "average", [nn.AvgPool2d(2), nn.AvgPool2d(3), nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d(3)]
)
@torch.no_grad()
def test_poolings_of_bits(average):
    torch.manual_seed(5)
    conv = nn.Conv2d(2, 4, 3, padding=1)
    features = nn.Sequential(conv, Step(thresholds=(-0.2, 0.3)), nn.MaxPool2d(2), average)
    n = features(torch.zeros(1, 2, 12, 12)).numel()
    module = nn.Sequential(features, nn.Flatten(), nn.Linear(n, 5), Step(), nn.Linear(5, 3))
    X = torch.randn(100, 2, 12, 12)
    network = from_torch(module, image=(2, 12, 12))
    torch.testing.assert_close(network.scores(X.flatten(1)), module(X), rtol=1e-5, atol=1e-5)
    assert network.layers[0].shape_out == (8, 6, 6)


@torch.no_grad()
def test_a_normalised_layer_without_biases_on_averages_of_bits():
    torch.manual_seed(0)
    module = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), Step(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(32, 20, bias=False), nn.BatchNorm1d(20), Step(), nn.Linear(20, 4)),
    )
    X = torch.randn(50, 1, 4, 4)
    for _ in range(100):
        module(X)
    network = from_torch(module.eval(), image=(1, 4, 4))
    torch.testing.assert_close(network.scores(X.flatten(1)), module(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ([nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 3)], "module 2 .*square windows"),
        ([nn.AvgPool2d((1, 2)), nn.Flatten(), nn.Linear(72, 3)], "module 2 .*square windows"),
        ([nn.AvgPool2d(2), nn.Conv2d(4, 2, 1), Step(), nn.Linear(18, 3)], "linear layers only"),
        ([nn.AvgPool2d(2), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(4, 3)], "module 3 .*square"),
    ],
)
def test_poolings_of_bits_that_do_not_fit(parts, sentence):
    module = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), Step(), *parts)
    with pytest.raises(InputError, match=sentence):
        from_torch(module, image=(1, 6, 6))
