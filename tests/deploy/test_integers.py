"""The integer form: its definition, the conversion to it, and what it refuses."""

import numpy as np
import pytest
import torch

from integer_networks import SHAPES, whole_network
from zeroone import IntegerModel, TrainSettings, ZeroOneClassifier, quantise, train
from zeroone.data.load import load_data
from zeroone.deploy.integer_form import Inputs, IntegerNetwork, Map, Stage
from zeroone.nn.heads import HardmaxMSE, SoftmaxCE
from zeroone.nn.inputs import check_inputs
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network
from zeroone.nn.scaling import InputRange, Scaling
from zeroone.utils.checks import InputError


@pytest.mark.parametrize("name", SHAPES)
def test_whole_weights_lose_nothing(name):
    """Rows that are integers already stay as they are: same bits, same scores."""
    network = whole_network(name)
    integers = quantise(network)
    X = np.random.default_rng(0).integers(0, 256, (300, network.n_features)).astype(np.uint8)
    assert np.array_equal(integers.scores(X), network.scores(X).numpy())
    assert integers.unit == 1
    assert np.array_equal(integers.predict(X), network.predict(X))


def test_the_reference_by_hand():
    first = Map(np.array([[1, -2], [0, 3]], np.int8), (2,))
    last = Map(np.array([[5, 0], [0, 5]], np.int8), (2,))
    stages = [Stage(first, np.array([0, 6], np.int32)), Stage(last, np.array([0, 1], np.int32))]
    network = IntegerNetwork(Inputs(2), stages, ["a", "b"], SoftmaxCE())
    X = np.array([[5, 2], [4, 2], [0, 3], [255, 255]], np.uint8)
    # The sums are 1, 6; 0, 6; -6, 9; -255, 765; a bit is 1 where they exceed 0 and 6.
    assert network.scores(X).tolist() == [[5, 1], [0, 1], [0, 6], [0, 6]]
    assert network.predict(X).tolist() == ["a", "b", "b", "b"]


def test_inputs_become_bytes():
    low, rate = np.array([-1.0, 0.0], np.float32), np.array([127.5, 10.0], np.float32)
    inputs = Inputs(3, np.array([0, 2]), low, rate)
    X = np.array([[-1, 9, 0], [1, 9, 25.5], [0, 9, 0.049], [0, 9, 0.05], [-7, 9, 99]], np.float32)
    assert inputs.apply(X).tolist() == [[0, 0], [255, 255], [128, 0], [128, 1], [0, 255]]


@pytest.mark.parametrize("hidden", [(60, 40), ("conv3x3:8:pad1:max2", 40)])
@pytest.mark.parametrize("kind", ["bytes", "numbers"])
def test_trained_networks_keep_their_error(hidden, kind):
    digits = load_data("digits")
    X, X_test = (
        ((A * 255 / 16).astype(np.uint8) if kind == "bytes" else A)
        for A in (digits.X, digits.X_test)
    )
    settings = TrainSettings.from_options(hidden=hidden, epochs=20)
    network = train(X, digits.y, settings, image=(1, 8, 8)).network
    integers = quantise(network)
    assert integers.inputs.are_bytes == (kind == "bytes")
    before, after = network.predict(X_test), integers.predict(X_test)
    assert (before == after).mean() > 0.97
    assert abs((before != digits.y_test).mean() - (after != digits.y_test).mean()) < 0.012
    shares = IntegerModel(integers).predict_proba(X_test)
    assert np.abs(shares - network.predict_proba(X_test)).mean() < 0.01


def test_a_classifier_ships():
    digits = load_data("digits")
    clf = ZeroOneClassifier((30,), epochs=10, head="hardmax").fit(digits.X, digits.y)
    model = IntegerModel(quantise(clf.network_))
    assert isinstance(model.network.head, HardmaxMSE)
    assert (model.predict(digits.X_test) == clf.predict(digits.X_test)).mean() > 0.95


def test_idle_inputs_and_units_leave():
    network = whole_network("dense")
    network.operators[0].linear[:, 3] = 0.2  # rounded to 0
    network.operators[1].linear[:, 5] = -0.3
    integers = quantise(network)
    assert integers.inputs.taken.tolist() == [0, 1, 2, 4, 5, 6, 7, 8]
    assert integers.stages[0].main.n_out == 7
    X = np.random.default_rng(0).integers(0, 256, (50, 9)).astype(np.uint8)
    assert np.array_equal(IntegerModel(integers).scores(X), integers.scores(X))


def test_what_has_no_integer_form():
    network = whole_network("dense stream")
    network.scaling = Scaling(network.scaling.centre, network.scaling.scale)
    with pytest.raises(InputError, match="does not say what its inputs look like"):
        quantise(network)
    assert quantise(network, torch.rand(5, 9)).inputs.low is not None
    plans = [LayerPlan.parse(layer) for layer in (5, "5:stream")]
    raw = Network.build((9,), plans, 2, SoftmaxCE(), scaling=Scaling.fit(torch.rand(9, 9)))
    with pytest.raises(
        InputError, match="layer 2 has a stream from the layer that takes the inputs"
    ):
        quantise(raw)
    shape, hidden = SHAPES["average"]
    plans = [LayerPlan.parse(layer) for layer in hidden]
    unlike = Scaling.fit(torch.rand(9, 36) * torch.arange(36) ** 3, kind="feature")
    images = Network.build(shape, plans, 2, SoftmaxCE(), scaling=unlike)
    with pytest.raises(InputError, match="layer 1: a convolution shares its weights"):
        quantise(images)
    huge = whole_network("dense")
    huge.operators[2].offset.fill_(1e9)
    huge.operators[2].linear.fill_(1e-3)
    with pytest.raises(InputError, match="the last layer has offsets beyond 32 bits"):
        quantise(huge)
    far = torch.tensor([[1.7e9], [1.7e9 + 40]], dtype=torch.float64)
    dense = Network.build(
        (1,), [3], 2, SoftmaxCE(), scaling=Scaling.fit(far, torch.float64), dtype=torch.float64
    )
    with pytest.raises(InputError, match=r"input 0 lies between 1.7e.09 and 1.70000004e.09"):
        quantise(dense)
    for wrong, sentence in (
        (np.zeros((3, 8)), "takes 9 features"),
        (np.zeros(9), "a matrix"),
        ([[np.nan] * 9], "NaN"),
    ):
        with pytest.raises(InputError, match=sentence):
            quantise(network, wrong)


def test_a_threshold_out_of_reach_is_a_constant():
    network = whole_network("dense stream")
    network.operators[0].weight[1] *= 1e-12
    network.operators[0].offset[1] = 1e9
    network.operators[1].offset[2] = -1e12
    X = np.random.default_rng(0).integers(0, 256, (100, 9)).astype(np.uint8)
    integers = quantise(network)
    assert np.array_equal(integers.scores(X), network.scores(X).numpy())


@pytest.mark.parametrize("seed", range(4))
def test_average_pooling_rounds_once(seed):
    """The total of a window is compared with the floor of k^2 limits, not with k^2 floors."""
    plans = [LayerPlan.parse(p) for p in ("conv1x1:4", "conv2x2:6:pad1:average2", 5)]
    low = torch.zeros(36, dtype=torch.float64)
    scaling = Scaling(
        low, torch.tensor(1.0).double(), inputs=InputRange(low, low + 255, are_bytes=True)
    )
    network = Network.build(
        (1, 6, 6), plans, 3, SoftmaxCE(), seed=seed, dtype=torch.float64, scaling=scaling
    )
    rng = torch.Generator().manual_seed(seed)
    for i, op in enumerate(network.operators):
        largest = 127 if i else 64
        op.linear.copy_(torch.randint(-3, 4, op.linear.shape, generator=rng))
        op.linear[:, 0] = largest
        op.offset.copy_(
            torch.randint(-200, 200, op.offset.shape, generator=rng) / 7
            if i < 2
            else op.offset.round()
        )
    X = np.random.default_rng(seed).integers(0, 256, (400, 36)).astype(np.uint8)
    assert np.array_equal(quantise(network).scores(X), network.scores(X).numpy())


def test_forms_that_engines_would_not_agree_on():
    def network(first, last=None, offsets=(0, 0), **pooling):
        first = Map(np.array(first, np.int8), (2,))
        last = Map(np.array(last or [[1, 0], [0, 1]], np.int8), (2,))
        stages = [
            Stage(first, np.zeros(2, np.int32), **pooling),
            Stage(last, np.array(offsets, np.int32)),
        ]
        return IntegerNetwork(Inputs(2), stages, ["a", "b"], SoftmaxCE())

    plain = [[1, -2], [0, 3]]
    network(plain)
    with pytest.raises(InputError, match="weights of the first layer are beyond 64"):
        network([[1, -65], [0, 3]])
    with pytest.raises(InputError, match="layer 2 adds up to 2,147,483,648"):
        network(plain, offsets=(0, 2**31 - 1))
    with pytest.raises(InputError, match="pooling that does not fit"):
        network(plain, window=2)
    with pytest.raises(InputError, match="the padding is as large as they are"):
        Map(np.ones((1, 64), np.int8), (64, 1, 1), kernel=1, stride=1, padding=1)


def test_bytes_are_checked():
    network = quantise(whole_network("dense"))
    X = np.random.default_rng(0).integers(0, 256, (5, 9))
    assert np.array_equal(network.scores(X), network.scores(X.astype(np.uint8)))
    for wrong, sentence in (
        (X + 0.5, "takes bytes"),
        (X - 300, "takes bytes"),
        (X[:, :4], "takes 9 features"),
        (X * np.nan, "NaN"),
        (X[0], "must be a matrix"),
    ):
        for scored in (network, IntegerModel(network)):
            with pytest.raises(InputError, match=sentence):
                scored.scores(wrong)


@pytest.mark.parametrize("name", ["dense", "images"])
def test_bytes_stay_bytes(name, monkeypatch):
    """A matrix of bytes, or the bytes of one sample, reach the engine as they are."""
    network = whole_network(name)
    model = IntegerModel(quantise(network))
    X = np.random.default_rng(0).integers(0, 256, (5, network.n_features)).astype(np.uint8)
    seen = []

    def engine(raw):
        seen.append(raw)
        return model.network.score_checked(raw)

    monkeypatch.setattr(model, "engine", engine)
    monkeypatch.setattr(model, "_native_for", lambda X: None)  # which needs no engine
    wanted = model.predict(X)
    assert np.shares_memory(seen[0], X)
    flat = X[2].tobytes()
    for one in (flat, bytearray(flat), memoryview(flat), memoryview(X[2:3]), X[2:3].tolist()):
        assert model.predict(one).tolist() == [wanted[2]]
        assert network.predict(one).tolist() == [wanted[2]]
    assert {raw.dtype for raw in seen} == {np.dtype(np.uint8)}
    assert check_inputs(flat, torch.float32).dtype == torch.uint8
    assert model.predict(memoryview(X)).tolist() == wanted.tolist()
    with pytest.raises(InputError, match=f"takes {network.n_features} features, the data have 3"):
        model.predict(b"abc")
