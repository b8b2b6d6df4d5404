"""The integer form: what it means, how it is made, how it is kept."""

import json
import struct
import zlib

import numpy as np
import pytest
import torch

from integer_networks import random_network, random_samples
from model_files import rewritten
from zeroone import IntegerModel, TrainSettings, ZeroOneClassifier, load, quantise, storage, train
from zeroone.checks import InputError
from zeroone.data.embedded import load_embedded
from zeroone.deploy import read_integers
from zeroone.deploy.files import pack, unpack
from zeroone.deploy.form import Inputs, IntegerNetwork, Map, Stage
from zeroone.deploy.native import NativeNetwork
from zeroone.deploy.single import SingleNetwork
from zeroone.heads import HardmaxMSE, SoftmaxCE
from zeroone.layers import LayerPlan
from zeroone.network import Network
from zeroone.scaling import InputRange, Scaling

SHAPES = {
    "dense": ((9,), [8, 7]),
    "no hidden layer": ((9,), []),
    "residual": ((9,), [8, 7, "6:skip2"]),
    "images": ((2, 6, 5), ["conv3x3:5:pad1:max2", "conv2x2:4", 6]),
    "average": ((1, 6, 6), ["conv3x3:5:pad1:stride1:average2", 6]),
    "shortcut": ((1, 6, 6), ["conv3x3:5:pad1", "conv3x3:5:pad1", "conv3x3:5:pad1:skip2", 6]),
}


def whole_network(name, seed=0):
    """A float64 network whose weights are integers already, with a largest one in every row."""
    shape, hidden = SHAPES[name]
    plans = [LayerPlan.parse(layer) for layer in hidden]
    n = int(np.prod(shape))
    low = torch.zeros(n, dtype=torch.float64)
    ranges = InputRange(low, low + 255, are_bytes=True)
    scaling = Scaling(low, torch.tensor(1.0, dtype=torch.float64), inputs=ranges)
    network = Network.build(
        shape, plans, 4, SoftmaxCE(), seed=seed, dtype=torch.float64, scaling=scaling
    )
    rng = torch.Generator().manual_seed(seed)
    for link in network.links:
        largest = 127 if link.source else 64
        op = link.operator
        op.linear.copy_(torch.randint(-largest, largest + 1, op.linear.shape, generator=rng))
        if op.offset is not None:
            size = 100 if link.source else 3000
            op.offset.copy_(torch.randint(-size, size, op.offset.shape, generator=rng) + 0.5)
        if not network.layers[link.layer].shortcut or op.bias:
            op.linear[:, 0] = largest
    network.operators[-1].offset.floor_()
    return network


@pytest.mark.parametrize("name", SHAPES)
def test_whole_weights_lose_nothing(name):
    """Rows that are integers already stay what they are: the same bits, the same scores."""
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
    # Sums 1, 6; 0, 6; -6, 9; -255, 765: a bit is set where they exceed 0 and 6.
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
    digits = load_embedded("digits")
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
    digits = load_embedded("digits")
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
    network = whole_network("residual")
    network.scaling = Scaling(network.scaling.centre, network.scaling.scale)
    with pytest.raises(InputError, match="does not say what its inputs look like"):
        quantise(network)
    assert quantise(network, torch.rand(5, 9)).inputs.low is not None
    plans = [LayerPlan.parse(layer) for layer in (5, "5:skip2")]
    raw = Network.build((9,), plans, 2, SoftmaxCE(), scaling=Scaling.fit(torch.rand(9, 9)))
    with pytest.raises(InputError, match="layer 2 has a shortcut from the inputs"):
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
    with pytest.raises(InputError, match="layer 3 has offsets beyond 32 bits"):
        quantise(huge)
    far = torch.tensor([[1.7e9], [1.7e9 + 40]], dtype=torch.float64)
    dense = Network.dense(
        [1, 3, 2], SoftmaxCE(), scaling=Scaling.fit(far, torch.float64), dtype=torch.float64
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
    network = whole_network("residual")
    network.operators[0].weight[1] *= 1e-12
    network.operators[0].offset[1] = 1e9
    network.operators[1].offset[2] = -1e12
    X = np.random.default_rng(0).integers(0, 256, (100, 9)).astype(np.uint8)
    integers = quantise(network)
    assert np.array_equal(integers.scores(X), network.scores(X).numpy())


@pytest.mark.parametrize("seed", range(4))
def test_average_pooling_rounds_once(seed):
    """A window's sums exceed the floor of k^2 limits, not k^2 floors, also where they are near."""
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


def test_files(tmp_path):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        network = random_network(rng)
        X = random_samples(rng, network.inputs, 6)
        path = IntegerModel(network).save(tmp_path / "m.safetensors")
        again = load(path)
        assert isinstance(again, IntegerModel)
        assert np.array_equal(again.scores(X), network.scores(X))
        assert again.classes == network.classes
        assert again.network.unit == network.unit
        assert path.read_bytes() == again.save(tmp_path / "again.safetensors").read_bytes()


def damaged(content, rng):
    """A variant: bits flipped, cut, blocks moved, or a number in the header changed."""
    data = bytearray(content)
    kind = rng.integers(0, 5)
    if kind == 0:
        for k in rng.integers(0, len(data), rng.integers(1, 9)):
            data[k] ^= 1 << int(rng.integers(0, 8))
    elif kind == 1:
        del data[int(rng.integers(0, len(data))) :]
    elif kind == 2:
        a, b = sorted(rng.integers(0, len(data), 2))
        data[a:b] = rng.bytes(int(b - a))
    else:
        (size,) = struct.unpack("<Q", data[:8])
        header = bytes(data[8 : 8 + size])
        digits = [k for k, c in enumerate(header) if chr(c).isdigit()]
        if kind == 3:
            k = int(rng.choice(digits))
            number = str(rng.choice([-1, 0, 1, 3, 10**6, 2**31, 2**63, 10**30])).encode()
            header = header[:k] + number + header[k + 1 :]
        else:
            a, b = sorted(rng.integers(0, len(header), 2))
            header = header[:a] + header[b:]
        data = bytearray(struct.pack("<Q", len(header)) + header + data[8 + size :])
    return bytes(data)


class AnyChecksum:
    """Whatever a file says its checksum is."""

    def __ne__(self, other):
        return False

    __hash__ = None


def score(model, X):
    """By every engine that takes it: a hostile network is as exact as any other."""
    if not isinstance(model, IntegerModel):
        return model.scores(X)
    wanted = model.network.scores(X)
    for kind in (NativeNetwork, SingleNetwork):
        made = kind.of(model.network)
        assert made is None or np.array_equal(made.scores(model.network.check(X)), wanted)
    assert np.array_equal(model.session.run(["scores"], {"inputs": X})[0], wanted)
    return wanted


@pytest.mark.parametrize("shape", [[0, 2**63], [0, 2**64 - 1], [2**62, 0]])
def test_shapes_that_no_tensor_can_have(shape, tmp_path):
    path = IntegerModel(quantise(whole_network("dense"))).save(tmp_path / "m.safetensors")
    content = path.read_bytes()
    (n,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + n])
    header["more"] = {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + n :])
    with pytest.raises(InputError) as refusal:
        load(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("checked", [True, False], ids=["damaged", "hostile"])
@pytest.mark.parametrize("form", ["integers", "images of integers", "float"])
def test_damaged_files(form, checked, tmp_path, request, monkeypatch):
    """Damage is refused, in one sentence, always.

    Of a hostile file, whose checksum is right, what reads as a network predicts in bounded memory.
    """
    network = whole_network("dense" if form == "integers" else "shortcut")
    X = np.zeros((2, network.n_features), np.uint8)
    path = tmp_path / "m.safetensors"
    if form == "float":
        network.save(path)
    else:
        IntegerModel(quantise(network)).save(path)
    if not checked:
        monkeypatch.setattr(storage, "checksum", lambda *_: AnyChecksum())
    content, refusals = path.read_bytes(), []
    rng = np.random.default_rng(0)
    n = 10_000 if request.config.getoption("--thorough") else 300
    variants = [data for data in (damaged(content, rng) for _ in range(n)) if data != content]
    for data in variants:
        path.write_bytes(data)
        try:
            model = load(path)
            if model.n_features == X.shape[1]:
                score(model, X)
        except InputError as error:
            refusals.append(str(error))
    assert len(variants) > 0.97 * n
    assert len(refusals) == len(variants) if checked else len(refusals) > 0.6 * n
    assert not any("\n" in sentence for sentence in refusals)


AROUND = {"in": [5, 6, 6], "out": 5, "bits": 8, "kernel": 1, "stride": 1, "padding": 0}


def set_stage(i, **values):
    return lambda header: header["stages"][i].update(values)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (set_stage(0, **{"in": [1, 10**6, 10**6]}), "is too large"),
        (set_stage(0, **{"in": [1, 6]}), "neither rows nor images"),
        (set_stage(0, kernel=10**9), "must be a whole number up to"),
        (set_stage(0, kernel=7), "do not fill a layer"),
        (set_stage(0, padding=5000), "kernels would see nothing"),
        (set_stage(0, **{"in": [1, 5000, 5000]}), "is too large"),
        (set_stage(0, pool="median"), "unknown pooling"),
        (set_stage(0, pool="max", window=99), "pooling that does not fit"),
        (set_stage(2, shortcut=AROUND | {"skip": 9}), "does not fit"),
        (set_stage(2, shortcut=AROUND | {"stride": 2, "skip": 2}), "of another shape"),
        (lambda header: header.update(unit=-1.0), "unit of scores"),
        (lambda header: header.update(unit="x"), "unit of scores"),
        (lambda header: header.update(unit=1e300), "unit of scores"),
        (lambda header: header.update(classes=["a", "\ud800", "b", "c"]), "plain and distinct"),
        (lambda header: header.update(classes=["a", "a", "b", "c"]), "plain and distinct"),
        (lambda header: header.update(classes=["a", "b"]), "one a class"),
        (lambda header: header.update(n_features=7), "another number of inputs"),
        (lambda header: header.update(features=["a"]), "names of inputs"),
        (lambda header: header.update(stages=[]), "another number of inputs"),
        (lambda header: header.update(stages="no"), "not a complete model"),
        (lambda header: header.update(head={"kind": "max"}), "unknown head"),
        (lambda header: header.pop("stages"), "not a complete model"),
        (lambda header: header.update(version=2), "newer than 1"),
    ],
)
def test_hostile_headers(change, sentence, tmp_path):
    path = IntegerModel(quantise(whole_network("shortcut"))).save(tmp_path / "m.safetensors")
    rewritten(path, lambda header, _: change(header), kind=storage.INTEGERS)
    with pytest.raises(InputError, match=sentence):
        read_integers(path)


@pytest.mark.parametrize(("weights", "bits"), [("ternary", 2), ("binary", 1)])
def test_few_values_take_few_bits(weights, bits, tmp_path):
    digits = load_embedded("digits")
    X, X_test = ((A * 255 / 16).astype(np.uint8) for A in (digits.X, digits.X_test))
    for hidden in ((64, 32), ("conv3x3:8:pad1:max2", 32)):
        settings = TrainSettings.from_options(hidden=hidden, epochs=5, weights=weights)
        network = train(X, digits.y, settings, image=(1, 8, 8)).network
        integers = quantise(network)
        for stage in integers.stages[:-1]:
            assert set(np.unique(stage.main.weights)) <= {-1, 0, 1}
        # Rows of few values are not rounded at all: only the last layer's are.
        path = IntegerModel(integers).save(tmp_path / "m.safetensors")
        again = load(path)
        assert np.array_equal(again.scores(X_test), integers.scores(X_test))
        assert (again.predict(X_test) == network.predict(X_test)).mean() > 0.99
        sizes = [stage.main.weights.size for stage in integers.stages]
        numbers = sum(stage.thresholds.nbytes for stage in integers.stages)
        assert path.stat().st_size < sum(sizes[:-1]) * bits / 8 + sizes[-1] + numbers + 1500


def test_packed_weights_that_do_not_fit(tmp_path):
    rng = np.random.default_rng(0)
    weights = rng.choice(np.array([-1, 1], np.int8), (5, 7))
    assert np.array_equal(unpack(pack(weights), 1, (5, 7)), weights)
    weights[2, 3] = 0
    assert np.array_equal(unpack(pack(weights), 2, (5, 7)), weights)
    for bits, shape in ((1, (5, 8)), (3, (5, 7)), (0, (5, 7)), ("2", (5, 7)), (2, (50, 7))):
        with pytest.raises(InputError, match="do not fill a layer"):
            unpack(pack(weights), bits, shape)
    bomb = np.frombuffer(zlib.compress(bytes(10**8)), np.uint8)
    for shape in ((5, 7), (2**20, 2**20)):
        with pytest.raises(InputError, match="do not fill a layer"):
            unpack(bomb, 8, shape)
    with pytest.raises(InputError, match="cannot be inflated"):
        unpack(np.arange(9, dtype=np.uint8), 8, (3, 3))
