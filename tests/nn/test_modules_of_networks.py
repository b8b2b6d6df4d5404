"""Modules of ``to_torch`` behave like any other: saved, moved, copied, nested, trained, shown."""

import io
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from zeroone import IntegerModel, Network, Step, ZeroOneClassifier, from_torch, quantise, to_torch
from zeroone.data.load import load_data
from zeroone.nn.backbones import Backbone, make_backbone
from zeroone.nn.heads import make_head
from zeroone.nn.scaling import Scaling
from zeroone.optim import BCD


@pytest.fixture(scope="module")
def digits():
    split = load_data("digits")
    return torch.from_numpy(split.X), torch.from_numpy(split.y)


@pytest.fixture(scope="module")
def network(digits):
    return ZeroOneClassifier((40, 30), epochs=3).fit(*(A.numpy() for A in digits)).network_


def on_backbone():
    layers = make_backbone("resnet18-3x3", (1, 8, 8), lambda _units: nn.ReLU())
    backbone = Backbone("resnet18-3x3", (1, 8, 8), layers, Scaling.identity(512))
    return Network.build((512,), [9], 10, make_head("softmax")).on_backbone(
        backbone, Scaling.identity(64)
    )


class Whole(nn.Module):
    """A user's module around one of ours."""

    def __init__(self, network):
        super().__init__()
        self.net = to_torch(network, trainable=True)

    def forward(self, x):
        return self.net(x)


def train(model, X, y, n=30, **options):
    bcd = BCD(model, n, balance=False, **options)
    losses = []
    for k in range(n):
        rows = torch.arange(k * 100, (k + 1) * 100) % len(X)
        bcd.zero_grad()
        loss = cross_entropy(model(X[rows]), y[rows])
        loss.backward()
        bcd.step()
        losses.append(loss.item())
    return losses


def test_states_are_saved_and_loaded(digits, network):
    X, _ = digits
    model = Whole(network)
    assert {"net.layers.0.linear.weight", "net.centre"} <= model.state_dict().keys()
    assert len(list(model.parameters())) == 6
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = Whole(Network.build((64,), [40, 30], 10, "softmax"))
    assert not torch.equal(other(X), model(X))
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(X), model(X))


def test_whole_modules_are_copied_saved_and_converted(digits, network):
    X, _ = digits
    module = to_torch(network)
    scores = module(X)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    for same in (deepcopy(module), torch.load(file, weights_only=False), module.to("cpu")):
        assert torch.equal(same(X), scores)
        assert torch.equal(from_torch(same).scores(X), network.scores(X))
    assert module.double()(X).dtype == torch.float64
    assert from_torch(module).dtype == torch.float64
    assert module.to("meta").layers[0].linear.weight.is_meta


def test_a_network_trains_on_in_any_loop(digits, network):
    X, y = digits
    before = float((to_torch(network)(X).argmax(dim=1) != y).float().mean())
    model = Whole(network)
    losses = train(model, X, y)
    assert sum(losses[-5:]) < sum(losses[:5])
    after = from_torch(model.net)
    assert float((torch.from_numpy(after.predict(X)) != y).float().mean()) < before
    small = Whole(network)
    train(small, X, y, keep=0.5)
    assert [op.n_out for op in from_torch(small.net).operators] == [20, 15, 10]
    assert [op.n_out for op in network.operators] == [40, 30, 10]


def test_only_on_request(network):
    module = to_torch(network)
    assert not module.training
    assert not any(p.requires_grad for p in module.parameters())


def test_a_backbone_stays_as_it_is(digits):
    X, y = digits
    model = Whole(on_backbone()).train()
    before = {name: T.clone() for name, T in model.net.backbone.state_dict().items()}
    train(model, X, y, n=2)
    for name, T in model.net.backbone.state_dict().items():
        assert torch.equal(T, before[name]), name


def test_the_summary_of_a_network(network):
    assert repr(network) == (
        "Network(\n"
        "  (0): dense, 64 -> 40, Step\n"
        "  (1): dense, 40 -> 30, Step\n"
        "  (2): dense, 30 -> 10\n"
        "  inputs=64, classes=10, head=softmax, parameters=4,140\n"
        ")"
    )
    assert repr(IntegerModel(quantise(network))) == (  # three pixels are always 0
        "IntegerModel(\n"
        "  (0): dense, 61 -> 40, 8-bit, Step\n"
        "  (1): dense, 40 -> 30, 8-bit, Step\n"
        "  (2): dense, 30 -> 10, 8-bit\n"
        "  inputs=64, classes=10, head=softmax, parameters=4,020, bytes=4,260\n"
        ")"
    )
    assert "Backbone" not in repr(on_backbone())
    assert "\n  (backbone): resnet18-3x3, 512 features\n  (0): dense, 512 -> 9, Step" in repr(
        on_backbone()
    )


def test_the_summary_of_images():
    hidden = ("conv3x3:4:pad1", "conv3x3:4:pad1:stream:max2", 6)
    images = repr(Network.build((1, 8, 8), hidden, 3, "hardmax")).splitlines()
    assert images[1:4] == [
        "  (0): conv3x3:4:pad1, 1x8x8 -> 4x8x8, Step",
        "  (1): conv3x3:4:pad1:stream:max2, 4x8x8 -> 4x4x4, Step",
        "  (2): dense, 4x4x4 -> 6, Step",
    ]


def test_the_summary_of_modules(network):
    shown = repr(to_torch(network))
    assert "  inputs=64, classes=10, head=softmax\n" in shown
    linear = "Linear(in_features=64, out_features=40, bias=True)"
    assert f"(0): ChainLayer(linear={linear}, activation=Step(rule='expected'))\n" in shown
    assert repr(Step(dim=-1)) == "Step(rule='expected', dim=-1)"
