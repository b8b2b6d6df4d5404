"""Files of integer networks: intact, damaged, hostile, packed."""

import json
import struct
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open

from integer_networks import random_network, random_samples, whole_network
from model_files import rewritten
from zeroone import IntegerModel, TrainSettings, load, quantise, train
from zeroone.data.load import load_data
from zeroone.deploy import IntegerNetwork, read_integers
from zeroone.deploy.build import kernels
from zeroone.deploy.files import pack, unpack
from zeroone.deploy.integer_form import Inputs, Map, Stage
from zeroone.deploy.kernel import KernelNetwork
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.scaling import InputRange
from zeroone.utils import storage
from zeroone.utils.checks import InputError


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
    """Flip bits, cut the end, overwrite a block, or change or cut the header."""
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
    """A checksum that equals whatever a file claims."""

    def __ne__(self, other):
        return False

    __hash__ = None


def score(model, X):
    """Score by every engine that takes the model: a hostile network is as exact as any other."""
    if not isinstance(model, IntegerModel):
        return model.scores(X)
    wanted = model.network.scores(X)
    for level in range(kernels().level + 1):
        made = KernelNetwork.of(model.network, level=level)
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
    """Damage is always refused, in one sentence.

    Of a hostile file, whose checksum is right, what reads as a network predicts in bounded memory.
    """
    network = whole_network("dense" if form == "integers" else "stream")
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
        (set_stage(1, stream=True), "layer 2 has a stream that does not fit"),
        (set_stage(1, window=1), "layer 3 does not take what the layer below gives"),
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
        (lambda header: header.update(version=5), "newer than 4"),
        (lambda header: header.update(input_bits=0), "input_bits"),
        (lambda header: header.update(input_bits=9), "input_bits"),
        (lambda header: header.update(input_bits=True), "input_bits"),
    ],
)
def test_hostile_headers(change, sentence, tmp_path):
    path = IntegerModel(quantise(whole_network("stream"))).save(tmp_path / "m.safetensors")
    rewritten(path, lambda header, _: change(header), kind=storage.INTEGERS)
    with pytest.raises(InputError, match=sentence):
        read_integers(path)


@pytest.mark.parametrize(("weights", "bits"), [("ternary", 2), ("binary", 1)])
def test_few_values_take_few_bits(weights, bits, tmp_path):
    digits = load_data("digits")
    X, X_test = ((A * 255 / 16).astype(np.uint8) for A in (digits.X, digits.X_test))
    for hidden in ((64, 32), ("conv3x3:8:pad1:max2", 32)):
        settings = TrainSettings.from_options(hidden=hidden, epochs=5, weights=weights)
        network = train(X, digits.y, settings, image=(1, 8, 8)).network
        integers = quantise(network)
        for stage in integers.stages[:-1]:
            assert set(np.unique(stage.main.weights)) <= {-1, 0, 1}
        # Only rows of the last layer are rounded; those of few values are not.
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
    with pytest.raises(InputError, match="do not fill a layer"):
        unpack(bomb, 8, (5, 7))
    with pytest.raises(InputError, match="more than 67,108,864 weights is too large"):
        unpack(bomb, 8, (2**20, 2**20))
    with pytest.raises(InputError, match="cannot be inflated"):
        unpack(np.arange(9, dtype=np.uint8), 8, (3, 3))


def test_inputs_in_use_and_small_thresholds_take_little_room(tmp_path):
    network = small_network()
    path = IntegerModel(network).save(tmp_path / "m.safetensors")
    again = load(path).network
    assert np.array_equal(again.inputs.taken, network.inputs.taken)
    for old, new in zip(network.stages, again.stages, strict=True):
        assert new.thresholds.dtype == np.int32
        assert np.array_equal(old.thresholds, new.thresholds)
    with safe_open(path, "numpy") as file:
        assert file.get_tensor("inputs.used").nbytes == 3
        kinds = [str(file.get_tensor(f"stages.{i}.thresholds").dtype) for i in range(2)]
    assert kinds == ["int32", "int16"]


def small_network():
    """Two of 20 inputs; thresholds that need 32 bits below others that need 16."""
    first = Stage(Map(np.ones((3, 2), np.int8), (2,)), np.array([40_000, 0, -1], np.int32))
    last = Stage(Map(np.eye(2, 3, dtype=np.int8), (3,)), np.array([-7, 7], np.int32))
    return IntegerNetwork(Inputs(20, np.array([3, 19])), [first, last], [0, 1], SoftmaxCE())


@pytest.mark.parametrize("bits", [[0, 0, 0], [255, 255], [1, 0, 0], [255, 255, 255], [[16, 0, 16]]])
def test_inputs_in_use_that_do_not_fit(bits, tmp_path):
    path = IntegerModel(small_network()).save(tmp_path / "m.safetensors")

    def change(_, tensors):
        tensors["inputs.used"] = torch.tensor(bits, dtype=torch.uint8)

    rewritten(path, change, kind=storage.INTEGERS)
    with pytest.raises(InputError, match=r"is not said of each of them|another number of inputs"):
        load(path)


def test_the_weights_of_all_layers_are_bounded_before_they_fill_memory(tmp_path):
    """Zeros deflate a thousandfold: 4 MB of a file could be 5 GB of weights."""
    n, layers = 4096, 40
    Z = np.zeros((n, n), np.int8)
    small = Map(Z[:2], (n,))
    stages = [Stage(Map(Z, (n,)), Z[0].astype(np.int32)), Stage(small, np.zeros(2, np.int32))]
    network = IntegerNetwork(Inputs(n), stages, [0, 1], SoftmaxCE())
    path = IntegerModel(network).save(tmp_path / "m.safetensors")

    def repeat(header, tensors):
        described, last = header["stages"]
        header["stages"] = [described] * layers + [last]
        for kind in ("weights", "thresholds"):
            tensors[f"stages.{layers}.{kind}"] = tensors[f"stages.1.{kind}"]
            for i in range(1, layers):
                tensors[f"stages.{i}.{kind}"] = tensors[f"stages.0.{kind}"].clone()

    rewritten(path, repeat, kind=storage.INTEGERS)
    assert path.stat().st_size < 2**21
    tracemalloc.start()
    with pytest.raises(InputError, match="layer 5: a network of more than 67,108,864 weights"):
        load(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2 * 2**26
    with pytest.raises(InputError, match="the network is too large"):
        replace(network, stages=[stages[0]] * 5 + [stages[1]])


def test_what_cannot_be_loaded_is_not_made():
    """Inputs or scores so small or large that a file of them would be refused."""
    for low, high in ((0.0, 1e-37), (0.0, 1e100), (-1e39, 1e38)):
        network = whole_network("dense")
        ends = (torch.full((9,), end, dtype=torch.float64) for end in (low, high))
        network.scaling = replace(network.scaling, inputs=InputRange(*ends))
        with pytest.raises(InputError, match="where float32 does not tell 256 steps"):
            quantise(network)
    for scale in (1e-33, 1e33):
        network = whole_network("dense")
        network.operators[-1].weight *= scale
        with pytest.raises(InputError, match="the unit of scores"):
            quantise(network)


def test_scores_of_any_unit_have_probabilities(tmp_path):
    network = quantise(whole_network("dense"))
    last = network.stages[-1]
    most = np.array([2**31 - 1 - 127 * 7, 0, 0, -(2**31 - 1 - 127 * 7)], np.int32)
    wide = replace(network, stages=[*network.stages[:-1], replace(last, thresholds=most)])
    for unit in (1e-28, 1e28):
        path = IntegerModel(replace(wide, unit=unit)).save(tmp_path / "m.safetensors")
        shares = load(path).predict_proba(np.zeros((1, 9), np.uint8))
        assert np.isfinite(shares).all()
