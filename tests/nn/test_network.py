"""The consistent forward pass, and model files: round trip and refusals."""

import os

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import zeroone
from model_files import rewritten
from zeroone import load
from zeroone.analysis.counts import active_inputs, active_units, parameters
from zeroone.nn.heads import HardmaxMSE, SoftmaxCE
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network
from zeroone.nn.scaling import Scaling
from zeroone.utils.checks import InputError


def make(head=None, **changes):
    rng = torch.Generator().manual_seed(0)
    scaling = Scaling.fit(torch.randn(20, 4, generator=rng) * 3 + 1)
    options = {"std": 1.0, "scaling": scaling, "classes": ["cat", "dog", "owl"], **changes}
    return Network.build((4,), [6, 5], 3, head or HardmaxMSE(0.5), **options)


def test_forward_is_the_definition():
    network = make()
    X = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    V = (X - network.scaling.centre.numpy()) / float(network.scaling.scale)
    for op in network.operators[:-1]:
        V = (V @ op.linear.numpy().T + op.offset.numpy() > 0).astype(np.float32)
    last = network.operators[-1]
    scores = V @ last.linear.numpy().T + last.offset.numpy()
    assert network.scores(X).numpy() == pytest.approx(scores, abs=1e-5)
    assert network.predict(X).tolist() == np.array(["cat", "dog", "owl"])[scores.argmax(1)].tolist()
    assert [tuple(bits.shape) for bits in network.bits(X)] == [(10, 6), (10, 5)]
    assert set(network.bits(X)[0].unique().tolist()) <= {0.0, 1.0}


@pytest.mark.parametrize("head", [HardmaxMSE(0.25), SoftmaxCE()])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_saved_network_comes_back_to_the_bit(tmp_path, head, bias, dtype):
    scaling = Scaling.identity(4, dtype)
    network = make(head, bias=bias, dtype=dtype, scaling=scaling)
    path = network.save(tmp_path / "model.safetensors")
    again = load(path)
    X = np.random.default_rng(1).normal(size=(50, 4))
    assert torch.equal(network.scores(X), again.scores(X))
    assert np.array_equal(network.predict_proba(X), again.predict_proba(X))
    assert network.predict(X).tolist() == again.predict(X).tolist()
    assert again.head.describe() == head.describe()
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_heads_and_layers_by_their_names():
    assert isinstance(Network.build((4,), [6], 3, "softmax").head, SoftmaxCE)
    network = Network.build((1, 8, 8), ["conv3x3:4:max2", 9], 3, "hardmax")
    assert isinstance(network.head, HardmaxMSE)
    assert [op.n_out for op in network.operators] == [4, 9, 3]
    with pytest.raises(InputError, match="unknown head 'softmx'; choose from hardmax, softmax"):
        Network.build((4,), [6], 3, "softmx")


def test_probabilities_sum_to_one_and_share_ties():
    network = make()
    for op in network.operators:
        op.weight = torch.zeros_like(op.weight)
    assert network.predict_proba(np.zeros((2, 4))).tolist() == pytest.approx(
        np.full((2, 3), 1 / 3), abs=1e-6
    )


def test_active_units_count_what_reaches_the_head():
    network = make(bias=False)
    network.operators[2].weight[:, 1:] = 0  # of the 5 units of layer 2 only the first is used
    network.operators[1].weight[0, 2:] = 0  # and that one listens to 2 of 6
    network.operators[0].weight[:2, 3] = 0  # which both ignore the last input
    assert active_units(network) == [2, 1]
    assert active_inputs(network) == 3
    assert parameters(network) == 3 * 2 + 2 * 1 + 1 * 3


def test_parameters_of_a_full_network():
    assert parameters(make()) == 5 * 6 + 7 * 5 + 6 * 3


def changed_header(path, **changes):
    rewritten(make().save(path), lambda header, tensors: header.update(changes))


def test_foreign_and_broken_files_are_refused_in_one_sentence(tmp_path):
    path = tmp_path / "model.safetensors"

    def refused(sentence):
        with pytest.raises(ValueError, match=sentence) as error:
            load(path)
        assert "\n" not in str(error.value)

    refused("there is no model file")
    make().save(path)
    whole = path.read_bytes()
    for size in (0, 4, 100, len(whole) - 1):
        path.write_bytes(whole[:size])
        refused("truncated or not a safetensors file")
    path.write_bytes(b"\x80\x04pickle" + whole)
    refused("truncated or not a safetensors file")
    save_file({"a": torch.zeros(2)}, path)
    refused("a safetensors file, but not a zeroone model")
    save_file({"a": torch.zeros(2)}, path, metadata={"zeroone": '{"version": 1}'})
    refused("no readable zeroone header")
    for header in ("{", "[" * 100_000, '{"version": ' + "9" * 5000 + "}"):
        save_file({"a": torch.zeros(2)}, path, metadata={"zeroone": "0" * 64 + " " + header})
        refused("no readable zeroone header")
    changed_header(path, version=6)
    refused("format version 6, newer than 5, the newest this zeroone reads")
    changed_header(path, version="1")
    refused("no readable zeroone header")
    changed_header(path, head=None)
    refused("not a complete zeroone model")
    changed_header(path, head={"kind": "sofmax"})
    refused("unknown head 'sofmax'")
    changed_header(path, classes=["cat"])
    refused("1 class labels for a network with 3 outputs")
    changed_header(path, layers=["7", "5", "3"])
    refused(r"layer 1 \(7\): weights of shape \(6, 5\) do not take samples of shape \(4,\)")
    changed_header(path, layers=["conv9d:6", "5", "3"])
    refused("a layer is a number of units, .* got 'conv9d:6'")
    for layers in ([], None, 3, ["6", "5"], ["6", "5", "3", "3"]):
        changed_header(path, layers=layers)
        refused("not a complete zeroone model|class labels")
    changed_header(path, classes=[["cat"], ["dog"], ["owl"]])
    refused("class labels that are not plain and distinct")
    changed_header(path, classes=["cat", "cat", "owl"])
    refused("class labels that are not plain and distinct")
    for scale in (torch.tensor(0.0), torch.ones(2)):
        network = make(scaling=Scaling(torch.zeros(4), scale))
        network.save(path)
        refused("a scaling whose scales are not positive, or not as many")
    network = make()
    network.operators[1].weight = network.operators[1].weight.double()
    network.save(path)
    refused("mixes number formats")
    network = make()
    network.operators[0].weight[0, 0] = float("nan")
    network.save(path)
    refused("not made of finite numbers")


def test_one_wrong_bit_is_seen(tmp_path):
    path = tmp_path / "model.safetensors"
    changed_header(path)
    whole = path.read_bytes()
    assert make().save(path).read_bytes() == whole
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match="its content does not have the checksum it names"):
        load(path)


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = make().save(tmp_path / "model.safetensors")
    before = path.read_bytes()

    def full_disk(tensors, name, metadata):
        name.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("zeroone.utils.storage.save_file", full_disk)
    with pytest.raises(ValueError, match=r"cannot write .* No space left on device"):
        make(std=2.0).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
    with pytest.raises(ValueError, match=r"the folder .* does not exist"):
        make().save(tmp_path / "none" / "model.safetensors")


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="the scaling is for 5 features"):
        Network.build((2,), [], 3, SoftmaxCE(), scaling=Scaling.identity(5))
    with pytest.raises(ValueError, match="at least one layer"):
        Network([], SoftmaxCE())
    network = make()
    with pytest.raises(ValueError, match="the network takes 4 features, the data have 5"):
        network.predict(np.zeros((3, 5)))
    with pytest.raises(ValueError, match="NaN or infinity"):
        network.predict(np.full((1, 4), np.nan))
    with pytest.raises(ValueError, match="no samples"):
        network.predict(np.zeros((0, 4)))


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        (["conv2x2:3:stride0", "2"], "the number after stride must be a whole number of at least"),
        (["conv2x2:3:pad1000000000", "2"], "the number after pad must be a whole number up to"),
        (["conv2x2:3:max9", "2"], "layer 1 .*: windows of 9 x 9"),
        (["conv2x2:3", "conv3x3:2"], "the last layer is not one of scores"),
    ],
)
def test_convolutions_that_cannot_be(tmp_path, layers, sentence):
    plans = [LayerPlan.parse("conv2x2:3")]
    path = Network.build((1, 4, 4), plans, 2, SoftmaxCE()).save(tmp_path / "m.safetensors")
    rewritten(path, lambda header, _: header.update(layers=layers))
    with pytest.raises(ValueError, match=sentence):
        load(path)


def test_half_precision_is_refused_in_one_sentence(tmp_path):
    path = make().save(tmp_path / "m.safetensors")

    def halve(_, tensors):
        tensors.update({name: T.bfloat16() for name, T in tensors.items()})

    rewritten(path, halve)
    with pytest.raises(ValueError, match="another than float32 or float64"):
        load(path)


def test_a_kernel_too_large_in_a_file_is_named_with_its_layer(tmp_path):
    plans = [LayerPlan.parse("conv3x3:3:pad1"), LayerPlan.parse("conv3x3:2")]
    path = Network.build((1, 4, 4), plans, 2, SoftmaxCE()).save(tmp_path / "m.safetensors")
    rewritten(path, lambda header, _: header.update(samples=[1, 2, 4]))
    with pytest.raises(ValueError, match=r"layer 2 .*: a kernel of 3 x 3 .*\(3, 2, 4\)"):
        load(path)


def test_a_pipe_is_no_model(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is not a regular file"):
        zeroone.load(tmp_path / "pipe")


@pytest.mark.parametrize("shape", [[], {}, [1], "ab", [1, 2, 10**400], None])
@pytest.mark.parametrize("kind", ["dense", "conv2d"])
def test_layers_in_a_file_that_take_no_samples(kind, shape, tmp_path):
    plans = [LayerPlan.parse("conv3x3:3:pad1" if kind == "conv2d" else "5")]
    path = Network.build((1, 4, 4), plans, 2, SoftmaxCE()).save(tmp_path / "m.safetensors")
    rewritten(path, lambda header, _: header.update(samples=shape))
    with pytest.raises(InputError):
        load(path)
