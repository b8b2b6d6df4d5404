"""Convolutional backbones: which one, their shapes, their files."""

import numpy as np
import pytest
import torch

from bar_images import IMAGE, bars, features_of
from model_files import rewritten
from zeroone import load
from zeroone.nn.backbones import BACKBONES, BITS, Backbone, default_backbone, make_backbone
from zeroone.nn.layers import LayerPlan, build_layers, gaussian
from zeroone.nn.scaling import Scaling
from zeroone.utils.checks import InputError


@pytest.fixture(scope="module")
def data():
    return {"X": bars(240, 0)[0], "y": bars(240, 0)[1], "test": bars(90, 1), "image": IMAGE}


def test_usual_bodies():
    assert default_backbone((1, 28, 28)) == "small"
    assert default_backbone((1, 8, 8)) == "tiny"
    assert (
        default_backbone((3, 32, 32))
        == default_backbone((1, 3, 28))
        == default_backbone(None)
        == "resnet18"
    )


@pytest.mark.parametrize("name", BITS)
def test_a_0_1_body_has_the_shape_of_the_other(name):
    image = (3, 32, 32)
    plans = [LayerPlan.parse(text) for text in BITS[name]]
    draw = gaussian(None, torch.Generator(), torch.float32)
    layers = build_layers(plans, image, draw)
    backbone = make_backbone(name, image, lambda _units: torch.nn.ReLU())
    features = backbone.eval()(torch.zeros(1, 3 * 32 * 32))
    bits = max(1, layers[-1].bits)
    assert np.prod(layers[-1].shape_out) == bits * features.shape[1]


def changed_model(path, other, backbone=None, tensors=None):
    """The same model file with another backbone, or other tensors."""

    def change(header, held):
        header["body"] |= backbone or {}
        held |= tensors or {}
        for name in [name for name, T in held.items() if T is None]:
            del held[name]

    rewritten(path, change, to=other)
    return other


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"backbone": {"kind": "vgg"}}, "unknown backbone 'vgg'"),
        ({"backbone": {"kind": "resnet18"}}, "not those of a backbone 'resnet18'"),
        ({"backbone": {"image": [10**5, 18, 18]}}, "not those of a backbone 'small'"),
        ({"backbone": {"image": [1, 18]}}, "images of three sides"),
        ({"backbone": {"image": [1, 18, "x"]}}, "images of three sides"),
        ({"backbone": {"image": [1, 10**6, 18]}}, "images of three sides"),
        (
            {"backbone": {"image": [1, 18, 20]}},
            "scaling is for 324 features but the network takes 360",
        ),
        ({"backbone": {"image": [1, 5, 5]}}, "needs images of 18 x 18"),
        ({"tensors": {"body.layers.1.weight": torch.zeros(3)}}, "not those of a backbone 'small'"),
        ({"tensors": {"body.layers.1.bias": None}}, "not those of a backbone 'small'"),
        ({"tensors": {"body.more": torch.zeros(3)}}, "not those of a backbone 'small'"),
        ({"tensors": {"body.centre": None}}, "not a complete zeroone model"),
        ({"tensors": {"body.centre": torch.zeros(9)}}, "what should scale the 64 features"),
        ({"tensors": {"body.centre": torch.zeros(8, 8)}}, "what should scale the 64 features"),
        ({"tensors": {"body.scale": torch.zeros(())}}, "what should scale the 64 features"),
        ({"tensors": {"body.scale": torch.ones(7)}}, "what should scale the 64 features"),
    ],
)
def test_a_damaged_backbone_is_refused(data, tmp_path, change, sentence):
    features_of(data, tmp_path)
    other = changed_model(tmp_path / "model.safetensors", tmp_path / "other", **change)
    with pytest.raises(InputError, match=sentence):
        load(other)


@pytest.mark.parametrize("name", BACKBONES)
def test_every_body_comes_back_from_its_file(name, tmp_path):
    from zeroone.nn.heads import make_head
    from zeroone.nn.layers import Layer
    from zeroone.nn.network import Network
    from zeroone.nn.operators import Operator

    torch.manual_seed(0)
    image = (2, 18, 18)
    layers = make_backbone(name, image, lambda _units: torch.nn.ReLU())
    X = torch.randn(6, 2 * 18 * 18)
    layers(X)  # moves the averages of the normalisation
    n = layers.eval()(X).shape[1]
    scaling = Scaling(torch.randn(n), torch.rand(n) + 0.5)
    head = Layer(Operator(torch.randn(3, n + 1), n))
    network = Network([head], make_head("softmax"), backbone=Backbone(name, image, layers, scaling))
    again = load(network.save(tmp_path / "model.safetensors"))
    assert torch.equal(again.scores(X), network.scores(X))
    expected = (layers(X) - scaling.centre) / scaling.scale
    assert torch.allclose(again.features(X), expected)
