"""Without onnx and onnxruntime an integer model loads and predicts; exports say what to install."""

import os
import subprocess
import sys

import numpy as np
import pytest

from integer_networks import random_network, random_samples
from zeroone import IntegerModel, load
from zeroone.deploy import kernel
from zeroone.deploy.build import kernels
from zeroone.deploy.exporters.onnx import write_onnx
from zeroone.deploy.integer_form import Map
from zeroone.deploy.runtime import open_session
from zeroone.utils.checks import InputError

INSTALL = r"^this needs onnx\w*: pip install 'zeroone-nn\[onnx\]'\.$"


@pytest.fixture(params=["both", "onnx", "onnxruntime"])
def missing(request, monkeypatch):
    """Hide the modules, as if they were not installed."""
    names = ["onnx", "onnxruntime"] if request.param == "both" else [request.param]
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)
    return names


def examples(n):
    for seed in range(n):
        rng = np.random.default_rng(seed)
        network = random_network(rng)
        yield network, random_samples(rng, network.inputs, 70)


def test_models_predict(missing, tmp_path):
    for network, X in examples(20):
        model = load(IntegerModel(network).save(tmp_path / "m.safetensors"))
        assert not model.has_session
        for rows in (1, 70):
            assert np.array_equal(model.scores(X[:rows]), network.scores(X[:rows]))
        assert np.array_equal(model.predict(X), network.predict(X))
        assert model.predict_proba(X).shape == (70, len(network.classes))


@pytest.mark.skipif(kernels().library is None, reason=kernels().why_not)
def test_kernels_take_what_they_can(missing):
    seen = set()
    for network, X in examples(20):
        model = IntegerModel(network)
        known = kernel.can_run(network)
        seen.add(known)
        wanted = model.native.scores if known else network.score_checked
        assert model.engine == wanted
        assert np.array_equal(model.scores(X), network.scores(X))
    assert seen == {True, False}


def test_what_needs_them_says_so(missing, tmp_path, command):
    network, _ = next(examples(1))
    with pytest.raises(InputError, match=INSTALL):
        IntegerModel(network).session  # noqa: B018
    IntegerModel(network).save(tmp_path / "m.safetensors")
    if "onnx" in missing:
        with pytest.raises(InputError, match=INSTALL):
            write_onnx(network, tmp_path / "m.onnx")
        code, _, err = command("export", "m.safetensors", "--to", "onnx", "--out", "m.onnx")
        assert (code, err.count("\n")) == (2, 1)
        assert "pip install 'zeroone-nn[onnx]'" in err
        assert not (tmp_path / "m.onnx").exists()
    if "onnxruntime" in missing:
        with pytest.raises(InputError, match=INSTALL):
            open_session(b"")
    assert command("export", "m.safetensors", "--to", "c", "--out", "m.c")[0] == 0


def test_nothing_is_imported_before_it_is_needed(tmp_path):
    """A process of its own loads, predicts and lists exporters without either module."""
    network, X = next(examples(1))
    np.save(tmp_path / "X.npy", X)
    IntegerModel(network).save(tmp_path / "m.safetensors")
    code = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("onnx", "onnxruntime"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
import numpy as np, zeroone
from zeroone.deploy.exporters import exporters
exporters()
model = zeroone.load("m.safetensors")
np.save("scores.npy", model.scores(np.load("X.npy")))
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert np.array_equal(np.load(tmp_path / "scores.npy"), network.scores(X))


def test_onnx_runtime_reports_nothing_home(monkeypatch):
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    network, X = next(examples(1))
    assert np.array_equal(IntegerModel(network)._by_session(network.check(X)), network.scores(X))
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")  # the user's own setting stays
    assert IntegerModel(network).has_session
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "0"


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_reference_is_exact_at_the_edge_of_32_bits(sign):
    """Its products are of doubles: compare them with plain 64-bit integers."""
    rng = np.random.default_rng(0)
    weights = np.full((3, 2**17), sign * 64, np.int8)
    weights[1] = rng.integers(-64, 65, 2**17)
    weights[2, ::2] = 63 * sign
    V = np.full((2, 2**17), 255, np.uint8)
    V[1] = rng.integers(0, 256, 2**17)
    wanted = V.astype(np.int64) @ weights.astype(np.int64).T
    assert abs(wanted).max() == 64 * 255 * 2**17 < 2**31
    assert np.array_equal(Map(weights, (2**17,)).apply(V), wanted)
    images = Map(weights, (2**13, 4, 4), kernel=4).apply(V)
    assert np.array_equal(images[:, :, 0, 0], wanted)
