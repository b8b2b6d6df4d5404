"""Errors, noise, and counts of units, parameters and operations."""

import copy

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from zeroone.analysis.counts import Operations, counts, operations, parameters, walk
from zeroone.analysis.metrics import Noise, error_rate, error_rates, noise_errors
from zeroone.baselines.activations import ACTIVATIONS
from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import BaselineSettings
from zeroone.nn.backbones import Block, make_backbone
from zeroone.nn.functional import classes_ahead, classify
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.network import Network
from zeroone.nn.operators import Convolution
from zeroone.nn.scaling import Scaling

TORCHS = torch.nn.Conv2d.forward  # which multiplies the padding, too, and so do our counts
CIFAR, MNIST = (3, 32, 32), (1, 28, 28)


def test_classes_ahead_by_sorting(rng):
    scores = torch.randint(0, 4, (300, 6), generator=rng).float()  # many ties
    y = torch.randint(0, 6, (300,), generator=rng)
    order = scores.argsort(dim=1, descending=True, stable=True)
    expected = (order == y[:, None]).int().argmax(dim=1)
    ahead = classes_ahead(scores, y)
    assert torch.equal(ahead, expected)
    assert torch.equal(ahead == 0, classify(scores) == y)


def test_what_is_not_a_number_is_never_right():
    nan = torch.nan
    scores = torch.tensor([[nan, nan, nan], [nan, 2.0, 1.0], [3.0, nan, 1.0], [3.0, 2.0, 1.0]])
    assert classes_ahead(scores, torch.tensor([0, 0, 0, 0])).tolist() == [2, 2, 1, 0]
    assert classes_ahead(scores, torch.tensor([-1, 1, 1, -1])).tolist() == [3, 1, 2, 3]


def test_top_5_error(rng):
    network = Network.build((8,), [], 7, SoftmaxCE(), seed=1)
    X, y = torch.randn(5000, 8, generator=rng), torch.randint(0, 7, (5000,), generator=rng)
    best = network.forward(X).topk(5, dim=1).indices
    errors = error_rates(network, X, y)
    assert errors["error"] == error_rate(network, X, y)
    assert errors["top5_error"] == pytest.approx(1 - (best == y[:, None]).any(1).float().mean())
    few = Network.build((8,), [], 5, SoftmaxCE())
    assert set(error_rates(few, X, y % 5)) == {"error"}  # with five classes it would say nothing


def test_noise_is_gaussian_and_the_same_for_all():
    scaling = Scaling(torch.tensor([100.0, 50.0]), torch.tensor(2.0))
    rows = torch.full((4000, 2), 128, dtype=torch.uint8)
    noisy = Noise(0.1, scaling, is_bytes=True).add(rows)
    assert float((noisy - 128).std()) == pytest.approx(25.5, rel=0.05)
    assert float((noisy - 128).mean()) == pytest.approx(0, abs=1)
    other = Scaling(torch.tensor([0.0, 0.0]).double(), torch.tensor([1.0, 3.0]).double())
    assert torch.allclose(Noise(0.1, other, is_bytes=True).add(rows).float(), noisy)
    spreads = Noise(0.5, other, is_bytes=False).add(rows.double()).std(dim=0)
    assert spreads.tolist() == pytest.approx([0.5, 1.5], rel=0.05)


def test_noise_errors_grow_from_the_clean_one(rng):
    X = torch.randn(6000, 5, generator=rng)
    network = Network.build((5,), [40], 3, SoftmaxCE(), seed=2, scaling=Scaling.fit(X))
    y = classify(network.scores(X))
    noise = noise_errors(network, X, y, [0.0, 0.1, 0.5])
    assert noise["levels"] == [0.0, 0.1, 0.5]
    assert noise["errors"][0] == 0 < noise["errors"][1] < noise["errors"][2]
    assert noise == noise_errors(network, X, y, [0.0, 0.1, 0.5])
    assert noise_errors(network, X, y, [0.5])["errors"] == noise["errors"][2:]


def test_operations_of_a_0_1_network():
    network = Network.build((100,), [64, 65], 10, SoftmaxCE())
    assert operations(network) == Operations(
        macs=100 * 64, additions=64 * 65 + 65 * 10, word_operations=1 * 65 + 2 * 10
    )
    network.operators[1].weight[:, :30] = 0  # 30 units of the first hidden layer reach nothing
    network.operators[0].weight[:, 7] = 0  # nor does this input
    assert counts(network) == {
        "active_units": [34, 65],
        "active_inputs": 99,
        "parameters": 100 * 34 + 35 * 65 + 66 * 10,
        "operations": {
            "macs": 99 * 34,
            "additions": 34 * 65 + 65 * 10,
            "word_operations": 1 * 65 + 2 * 10,
        },
    }


@pytest.mark.parametrize(
    ("backbone", "image", "known", "features"),
    [
        ("small", MNIST, 32 * 10 + 64 * 289 + 64 * 577, 576),
        ("resnet18", CIFAR, 11_176_512, 512),
        ("resnet18-3x3", CIFAR, 11_168_832, 512),
    ],
)
def test_backbones_have_their_known_sizes(backbone, image, known, features, monkeypatch):
    module = make_backbone(backbone, image, ACTIVATIONS["relu"])
    assert sum(p.numel() for p in module.parameters()) == known
    n_inputs = image[0] * image[1] * image[2]
    walked = walk(module, n_inputs)
    assert walked.n_features == features
    monkeypatch.setattr(Convolution, "forward", TORCHS)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module.eval()(torch.zeros(1, n_inputs))
    assert walked.operations == Operations(macs=counter.get_total_flops() // 2)


def test_resnet_18_on_the_images_it_was_made_for():
    """1.814 G multiply-adds, less the 512,000 of its last layer."""
    module = make_backbone("resnet18", (3, 224, 224), ACTIVATIONS["relu"])
    assert walk(module, 3 * 224 * 224).operations.macs == 1_814_073_344 - 512_000


def test_a_block_has_a_way_around_it(rng):
    block = Block(4, 4, 1, ACTIVATIONS["relu"]).eval()
    torch.nn.init.zeros_(block.norm2.weight)
    x = torch.randn(2, 4, 5, 5, generator=rng)
    assert torch.equal(block(x), x.relu())


def test_normalisation_comes_before_the_activation():
    model = baseline("relu", hidden=(30,), batch_norm=True)
    torch.nn.init.constant_(model.layers[0].norm.bias, -100.0)
    assert torch.equal(model(torch.ones(2, 12)), model.layers[-1].linear.bias.expand(2, 10))


def baseline(activation, backbone=None, image=None, hidden=(30, 20), **options):
    n_inputs = 12 if image is None else image[0] * image[1] * image[2]
    settings = BaselineSettings(activation, backbone=backbone, **options)
    model = FloatNetwork([n_inputs, *hidden, 10], settings, Scaling.identity(n_inputs), image)
    return model.eval()


@pytest.mark.parametrize(
    ("backbone", "image"), [(None, None), ("small", MNIST), ("resnet18", CIFAR)]
)
def test_operations_of_float_networks_are_torchs_count(backbone, image, monkeypatch):
    monkeypatch.setattr(Convolution, "forward", TORCHS)
    model = baseline("relu", backbone, image)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, model.n_features))
    assert operations(model) == Operations(macs=counter.get_total_flops() // 2)
    assert parameters(model) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("activation", [n for n, a in ACTIVATIONS.items() if a.one_bit])
def test_one_bit_baselines_cost_as_a_0_1_network(activation):
    same = Network.build((12,), [30, 20], 10, SoftmaxCE())
    assert counts(baseline(activation)) == counts(same)


def test_the_paper_s_parameter_counts():
    """Table 1 counts no biases (erratum E8); CIFAR-10's 14.21M are backbone and dense layers."""
    f3nn = baseline("relu", "small", MNIST, (2000, 2000))
    assert parameters(f3nn) - parameters(baseline("relu", "small", MNIST, ())) == pytest.approx(
        5_172_000 + 4010 - 5770, abs=0
    )
    resnet = baseline("relu", "resnet18", CIFAR, (1500, 1500))
    assert round(parameters(resnet) / 1e6, 2) == 14.21


def test_bits_inside_a_backbone():
    relu, own = (baseline("ste", "small", MNIST, backbone_activation=a) for a in ("relu", "own"))
    assert (relu.takes_bits, own.takes_bits) == ([False, True, True], [True, True, True])
    assert operations(relu).macs > operations(own).macs == 26 * 26 * 32 * 9
    both = operations(relu), operations(own)
    assert len({ops.macs + ops.additions for ops in both}) == 1
    averaged = baseline("bi-real", "resnet18", CIFAR, backbone_activation="own")
    assert averaged.takes_bits[0] is False  # averages of bits are no bits
    stem, top = 16 * 16 * 64 * 147, 512 * 30
    assert operations(averaged).macs == stem + top


def test_counting_leaves_a_model_as_it_was():
    model = baseline("relu", "resnet18", CIFAR)
    before = copy.deepcopy(model.state_dict())
    model.train()
    counts(model)
    assert model.training
    assert model.backbone.training
    assert all(torch.equal(before[name], T) for name, T in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        ((1, 8, 8), "needs images of 18 x 18 pixels or more, these have 8 x 8"),
        ((1, 28, 17), "these have 28 x 17"),
        (None, "needs images: an image data set, or a folder"),
    ],
)
def test_images_that_no_backbone_can_take(image, sentence):
    with pytest.raises(ValueError, match=sentence):
        make_backbone("small", image, ACTIVATIONS["relu"])
    if image == (1, 8, 8):
        walk(make_backbone("resnet18", image, ACTIVATIONS["relu"]), 64)  # it can
