"""Inputs that never vary in a training have random weights: integers and exports omit them."""

import numpy as np
import pytest
import torch

from benchmarks.engines import engines
from model_files import rewritten
from zeroone import TrainSettings, ZeroOneClassifier, load, quantise, train
from zeroone.data.load import load_data
from zeroone.deploy.exporters.c import size_of
from zeroone.deploy.exporters.html import describe
from zeroone.deploy.exporters.onnx import make_model
from zeroone.utils.checks import InputError

DIGITS = load_data("digits")
CONSTANT = [0, 16, 24, 31, 32, 39, 40, 47, 48, 56]  # below


def inputs(kind=np.uint8):
    X = DIGITS.X[:300].astype(kind)
    X[:, CONSTANT] = 3
    return X


def trained(X, **options):
    settings = TrainSettings.from_options(**{"hidden": (20,), "epochs": 3} | options)
    return train(X, DIGITS.y[:300], settings, image=(1, 8, 8), scores=False).network


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_integers_and_exports_omit_them(kind, tmp_path):
    network = trained(inputs(kind))
    assert network.scaling.constant.tolist() == CONSTANT
    assert bool((network.operators[0].linear[:, CONSTANT] != 0).all())
    integers = quantise(network)
    assert integers.inputs.taken.tolist() == [k for k in range(64) if k not in CONSTANT]
    (n_units, n_taken) = integers.stages[0].main.weights.shape
    assert n_taken == 64 - len(CONSTANT)
    model = make_model(integers)
    shapes = [list(constant.dims) for constant in model.graph.initializer]
    assert [n_taken, n_units] in shapes
    assert [64, n_units] not in shapes
    assert describe(integers)["stages"][0]["main"]["shape_in"] == (n_taken,)
    rate, low = (0, 0) if kind is np.uint8 else (4, 4)  # all pixels begin at 0
    first = 64 / 8 + (n_units + rate) * n_taken + low
    assert size_of(integers).constants == first + 10 * n_units + 4 * (n_units + 10)
    X = np.random.default_rng(0).integers(0, 16, (30, 64)).astype(kind)
    for name, run in engines().items():
        assert np.array_equal(run(integers, X, tmp_path), integers.scores(X)), name
    usual = X.copy()
    usual[:, CONSTANT] = 3
    assert np.array_equal(integers.scores(X), integers.scores(usual))
    assert (integers.predict(inputs(kind)) == network.predict(inputs(kind))).mean() > 0.9


def test_the_model_file_says_which(tmp_path):
    network = trained(inputs())
    path = network.save(tmp_path / "m.safetensors")
    again = load(path)
    assert again.scaling.constant.tolist() == CONSTANT
    assert quantise(again).inputs.n_taken == 64 - len(CONSTANT)
    for wrong in ([64], [-1], [3, 2], [1, 1], ["a"], 5, [0.5]):
        rewritten(path, lambda header, _, wrong=wrong: header.update(constant=wrong))
        with pytest.raises(InputError):
            load(path)
    rewritten(path, lambda header, _: header.pop("constant"))
    assert quantise(load(path)).inputs.taken is None


def test_inputs_that_may_vary_later_stay():
    X, y = inputs(), DIGITS.y[:300]
    pieces = ZeroOneClassifier((20,)).partial_fit(X, y, classes=np.unique(y))
    assert quantise(pieces.network_).inputs.taken is not None
    pieces.partial_fit(DIGITS.X.astype(np.uint8), DIGITS.y)
    assert quantise(pieces.network_).inputs.taken is None
    warm = ZeroOneClassifier((20,), epochs=2, warm_start=True).fit(X, y)
    assert quantise(warm.network_).inputs.taken is not None
    assert quantise(warm.fit(DIGITS.X.astype(np.uint8), DIGITS.y).network_).inputs.taken is None
    shifted = trained(X, augment="crop-flip")
    assert shifted.scaling.constant is None
    images = trained(X, hidden=("conv3x3:4", 9))
    assert quantise(images).inputs.taken is None


def test_a_network_of_constants_only():
    network = trained(np.full((300, 64), 7, np.uint8))
    assert len(network.scaling.constant) == 64
    assert quantise(network).inputs.taken is None
    assert torch.isfinite(network.scores(inputs())).all()
