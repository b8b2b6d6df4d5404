"""Units with several thresholds, compressed and shipped: a sum is computed once, and compared."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.engines import engines
from integer_networks import SHAPES, network_with_border, random_samples, whole_network
from model_files import rewritten
from zeroone import IntegerModel, load, quantise
from zeroone.commands.compress import widths
from zeroone.deploy.build import LEVELS, kernels
from zeroone.deploy.compress import compress
from zeroone.deploy.integer_form import Inputs, IntegerNetwork, Map, Stage
from zeroone.deploy.kernel import KernelNetwork
from zeroone.nn.heads import SoftmaxCE
from zeroone.utils import storage
from zeroone.utils.checks import InputError

NAMES = [name for name in SHAPES if "bits" in name]
KERNELS = [f"kernels, {level}" for level in LEVELS]
WEIGHTS = {1: (-1, 1), 2: (-1, 0, 1), 8: range(-64, 65)}
IMAGES = ("images", "border", "average", "streams of images")
KINDS = ("dense", "dense streams", *IMAGES)


def samples(network):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (60, network.n_features)).astype(np.uint8)
    return X * (rng.random(X.shape) < 0.5)


# --- from a network


@pytest.mark.parametrize("name", NAMES)
def test_every_engine_agrees_with_the_network(name, tmp_path):
    """The weights are integers already, so that the scores stay the same to the bit."""
    network = whole_network(name)
    integers, X = quantise(network), samples(network)
    scores = network.scores(X).numpy()
    assert len(np.unique(scores, axis=0)) > 10
    assert [m.n_out for m in integers.maps] == [op.n_out for op in network.operators]
    assert [s.shape_out for s in integers.stages] == [x.shape_out for x in network.layers]
    assert (integers.stages[0].thresholds.ndim == 3) == ("border" in name)
    assert {"numpy", "onnxruntime"} <= set(engines())
    for engine, run in engines().items():
        assert np.array_equal(run(integers, X, tmp_path), scores), engine
    path = IntegerModel(integers).save(tmp_path / "m.safetensors")
    assert np.array_equal(load(path).predict(X), network.predict(X))
    assert repr(load(path)) == repr(IntegerModel(integers))


@pytest.mark.parametrize("name", ["bits", "bits of images", "bits, average"])
def test_bits_are_those_of_the_network(name):
    """In the same order: all units at the first threshold, then all at the second."""
    network = whole_network(name)
    X, integers = samples(network), quantise(network)
    V = integers.inputs.apply(X)
    for stage, bits in zip(integers.stages, network.bits(X), strict=False):
        V = stage.bits(stage.sums(V))
        assert np.array_equal(V, bits.numpy().reshape(V.shape))
        by_threshold = V.reshape(len(V), stage.bits_each, -1).mean(axis=(0, 2))
        assert (np.diff(by_threshold) < 0).all()


@pytest.mark.parametrize("name", ["bits", "bits of images"])
def test_units_of_which_no_bit_matters_leave(name):
    network = whole_network(name)
    below, above = network.operators[:2]
    units = below.n_out
    above.linear[:, above.columns_of(torch.tensor([1, 3, units + 3]))] = 0  # one of 1, both of 3
    below.linear[2], below.offset[2] = 0, -1  # and unit 2 is never on
    small = compress(network)
    assert small.operators[0].n_out == units - 2
    assert small.layers[0].shape_out[0] == small.operators[1].n_in == 2 * (units - 2)
    assert [m.n_out for m in quantise(network).maps] == [op.n_out for op in small.operators]
    X = samples(network)
    torch.testing.assert_close(small.scores(X), network.scores(X), rtol=0, atol=1e-9)
    assert np.array_equal(quantise(network).scores(X), network.scores(X).numpy())
    assert network.operators[0].n_out == units  # which stays as it is


@pytest.mark.parametrize("name", ["bits", "bits of images"])
def test_thresholds_of_units_that_stay_stay(name, tmp_path):
    """Those of a normalisation, which differ by unit; a bit that is always 1 goes into biases."""
    network = whole_network(name)
    rng = torch.Generator().manual_seed(0)
    for layer in network.layers:
        if layer.bits:
            shape = layer.bits, layer.operator.n_out
            rows = torch.randint(-30, 30, shape, generator=rng).sort(dim=0).values
            layer.thresholds = rows.double() / 16
    network.layers[0].thresholds[0, 2], network.operators[0].linear[2] = -1e6, 0
    network.operators[1].linear[:, network.operators[1].columns_of(torch.tensor([1]))] = 0
    X = samples(network)
    for fold in (False, True):
        small = compress(network, fold=fold)
        torch.testing.assert_close(small.scores(X), network.scores(X), rtol=0, atol=1e-9)
        again = load(small.save(tmp_path / "m.safetensors"))
        assert torch.equal(again.scores(X), small.scores(X))
    assert len(small.layers[0].thresholds.T) < len(network.layers[0].thresholds.T)
    assert np.array_equal(quantise(network).scores(X), network.scores(X).numpy())


def test_widths_count_bits():
    """So that those before and after can be compared."""
    network = whole_network("bits")
    assert widths(network) == [9, 16, 21, 4]
    assert widths(compress(network)) == widths(IntegerModel(quantise(network))) == [9, 16, 21, 4]
    assert "dense:bits2, 9 -> 16, 8-bit, Step" in repr(quantise(network))


# --- random networks of several thresholds


def layers_of(kind):
    """Return the options of a network's hidden layers."""
    pooled = {"pool": "max", "window": 2}
    if kind == "average":
        return [{"pool": "average", "window": 2}, {}, {"pool": "average", "window": 2}]
    if "streams" in kind:
        return [{}, {}, {"stream": True} | (pooled if kind in IMAGES else {})]
    return [pooled, {}, pooled] if kind in IMAGES else [{}, {}, {}]


def divided(rng, stage, total, by_position):
    """Give every unit of a stage several thresholds that divide its sums."""
    seen = stage.pooled(total) if stage.pool == "average" else total
    shares = np.sort(rng.uniform(0.05, 0.95, int(rng.choice((2, 3, 8)))))
    axes = 0 if by_position else (0, *range(2, seen.ndim))
    limits = np.floor(np.quantile(seen, shares, axis=axes)).astype(np.int32)
    return replace(stage, thresholds=limits.reshape(-1, *limits.shape[2:]))


def network_of(kind, units, weights):
    """Make a network of units that all have several thresholds."""
    rng = np.random.default_rng(units + weights)
    image = {"kernel": 3, "padding": 1} if kind in IMAGES else {}
    shape, stages, below = (2, 5, 6) if image else (19,), [], None
    inputs = Inputs(int(np.prod(shape)))
    V = random_samples(rng, inputs, 40)
    for i, options in enumerate(layers_of(kind)):
        rows = units * (2 if "stream" in options and units < 33 else 1)
        columns = shape[0] * 9 if image else shape[0]
        W = rng.choice(WEIGHTS[weights], (rows, columns)).astype(np.int8)
        stage = Stage(Map(W, shape, **image), np.zeros(rows, np.int32), **options)
        total = stage.sums(V, below)
        stage = divided(rng, stage, total, not i and kind in ("border", "average"))
        V, below, shape = stage.bits(total), stage.pooled(total), stage.shape_out
        stages.append(stage)
    last = Map(rng.integers(-127, 128, (3, int(np.prod(shape)))).astype(np.int8), shape)
    stages.append(Stage(last, rng.integers(-50, 50, 3).astype(np.int32)))
    return IntegerNetwork(inputs, stages, list("abc"), SoftmaxCE())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["onnxruntime", *KERNELS, "c", "node"])
def test_every_engine_of_every_kind(engine, kind, tmp_path):
    if engine not in engines():
        pytest.skip(f"{engine} is not installed")
    run = engines()[engine]
    for k, units in enumerate((1, 31, 33, 65)):
        few = list(WEIGHTS)[k % 3 : k % 3 + 1] if engine in ("c", "node") else WEIGHTS
        for weights in few:
            network = network_of(kind, units, weights)
            X = random_samples(np.random.default_rng(1), network.inputs, 20)
            wanted = network.scores(X)
            assert len(np.unique(wanted, axis=0)) > min(units, 5)
            assert np.array_equal(run(network, X, tmp_path), wanted), (units, weights)


@pytest.mark.skipif(kernels().library is None, reason=kernels().why_not)
@pytest.mark.parametrize("rows", [1, 17, 300])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_kernels_take_several_thresholds(weights, rows):
    """In any number of samples, on threads, in rows and where it can be in slices."""
    for kind, taken in (("dense", True), ("images", True), ("border", True), ("average", False)):
        network = network_of(kind, 33, weights)
        X = random_samples(np.random.default_rng(rows), network.inputs, rows)
        wanted = network.scores(X)
        for level in range(kernels().level + 1):
            made = KernelNetwork.of(network, 2, level, least_sliced=1)
            assert (made is not None) == taken
            sliced = kind == "dense" and weights != 8
            assert made is None or (made.slices is not None) == sliced
            assert made is None or np.array_equal(made.scores(X), wanted)


def test_by_hand():
    """Thresholds 0 and 6 of the first unit, 6 and 7 of the second."""
    first = Map(np.array([[1, -2], [0, 3]], np.int8), (2,))
    last = Map(np.array([[1, 2, 4, 8]], np.int8), (4,))
    stages = [Stage(first, np.array([0, 6, 6, 7], np.int32)), Stage(last, np.zeros(1, np.int32))]
    network = IntegerNetwork(Inputs(2), stages, ["a"], SoftmaxCE())
    # The sums are 1, 6; 8, 0; 3, 9; -5, 9.
    X = np.array([[5, 2], [8, 0], [9, 3], [1, 3]], np.uint8)
    assert network.scores(X).ravel().tolist() == [1, 1 + 4, 1 + 2 + 8, 2 + 8]


# --- hostile files


def tensor(i, change):
    def apply(_, tensors):
        name = f"stages.{i}.thresholds"
        tensors[name] = change(tensors[name]).contiguous()

    return apply


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (tensor(0, lambda T: T.flip(0)), "layer 1 has thresholds that fall"),
        (tensor(0, lambda T: T[:-1]), r"layer 1: thresholds of shape \(9,\) do not fit 5 units"),
        (tensor(0, lambda T: T[:0]), r"thresholds of shape \(0,\) do not fit"),
        (tensor(0, lambda T: T[0]), r"thresholds of shape \(\) do not fit"),
        (tensor(0, lambda T: T[None]), r"thresholds of shape \(1, 10\) do not fit"),
        (tensor(0, lambda T: T[:, None]), r"layer 1 has thresholds of shape \(10, 1\)"),
        (tensor(0, lambda T: T[:5]), "layer 2 does not take what the layer below gives"),
        (tensor(0, lambda T: T[0].repeat(45)), r"thresholds of shape \(45,\) do not fit 5 units"),
        (tensor(3, lambda T: T.repeat(2)), "the last layer is not one of scores"),
        (tensor(0, lambda T: T.float()), "numbers of torch.float32"),
        (
            lambda header, _: header["stages"][1].update({"in": [10, 2, 3]}),
            "layer 2 does not take what the layer below gives",
        ),
    ],
)
def test_hostile_thresholds(change, sentence, tmp_path):
    path = IntegerModel(quantise(whole_network("bits of images"))).save(tmp_path / "m.safetensors")
    rewritten(path, change, kind=storage.INTEGERS)
    with pytest.raises(InputError, match=sentence):
        load(path)


@pytest.mark.parametrize(
    "places",
    [
        torch.tensor([-1, 0]).int(),
        torch.tensor([0, 99]).int(),
        torch.tensor([0.0, 1.0]),
        torch.tensor([[0, 1]]).int(),
        torch.zeros(2**23).int(),
    ],
    ids=["below", "above", "real", "matrix", "many"],
)
def test_hostile_places_of_thresholds(places, tmp_path):
    """Thresholds of equal rows and columns are stored once, with the places where they stand."""
    network = network_with_border()
    path = IntegerModel(network).save(tmp_path / "m.safetensors")
    assert storage.read_tensors(path, storage.INTEGERS, 4)[1]["stages.0.thresholds"].shape == (
        5,
        3,
        3,
    )
    assert np.array_equal(load(path).network.stages[0].thresholds, network.stages[0].thresholds)

    def apply(_, tensors):
        tensors["stages.0.rows"] = places

    rewritten(path, apply, kind=storage.INTEGERS)
    with pytest.raises(InputError, match=r"layer 1: (the rows of thr|numbers of torch\.float32)"):
        load(path)


def test_many_layers_of_thresholds_are_refused(tmp_path):
    """Small files must not fill the memory, whatever the number of their layers."""
    path = IntegerModel(network_with_border()).save(tmp_path / "m.safetensors")

    def apply(header, tensors):
        header["stages"] = [{**header["stages"][0], "in": [1, 1800, 1800]}] * 4
        for i in range(4):
            for name in ("weights", "thresholds"):
                tensors[f"stages.{i}.{name}"] = tensors[f"stages.0.{name}"].clone()
            for name in ("rows", "columns"):
                tensors[f"stages.{i}.{name}"] = torch.zeros(1800).int()

    rewritten(path, apply, kind=storage.INTEGERS)
    with pytest.raises(InputError, match="layer 2: a network of more than 16,777,216 thresholds"):
        load(path)


def test_bits_fit_in_memory(tmp_path):
    """Several bits take several times the room of a unit's sums, and fewer samples run together."""
    network = quantise(whole_network("bits, average"))
    path = IntegerModel(network).save(tmp_path / "m.safetensors")
    large = [1, 2300, 2300]
    rewritten(path, lambda h, _: h["stages"][0].update({"in": large}), kind=storage.INTEGERS)
    with pytest.raises(InputError, match=r"layer 1: a layer of shape \(15, 1150, 1150\) is too la"):
        load(path)
    first = network.stages[0]
    wide = replace(first.main, shape_in=(1, 800, 800))
    one = replace(first, main=wide, thresholds=first.thresholds[:5])
    several = replace(first, main=wide)
    assert (one.n_numbers, several.n_numbers) == (9 * 800**2, 15 * 800**2)
    last = Map(np.ones((4, 15 * 400**2), np.int8), several.shape_out)
    made = IntegerNetwork(
        Inputs(800**2), [several, Stage(last, np.zeros(4, np.int32))], [0, 1, 2, 3], SoftmaxCE()
    )
    at_once = []
    made.in_parts(lambda raw: at_once.append(len(raw)) or raw, np.zeros((3, 1), np.uint8))
    assert at_once == [1, 1, 1]
