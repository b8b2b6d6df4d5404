"""The example project runs exported networks on boards that QEMU imitates, exactly."""

import re
import subprocess

import numpy as np
import pytest
import torch

from benchmarks import boards
from benchmarks.pareto_models import make_layers
from benchmarks.relu_int8 import quantised, scores_of, write_relu
from integer_networks import random_network, random_samples
from zeroone import ZeroOneClassifier, quantise
from zeroone.data.load import load_data
from zeroone.deploy.exporters.c import size_of, write_c

pytestmark = pytest.mark.skipif(boards.why_not() is not None, reason=str(boards.why_not()))
HIDDEN = {"dense and ternary": (40, 40), "convolutions": ("conv3x3:4:pad1:max2", "conv2x2:6", 16)}


def check(network, X, folder, cpu):
    """Compare labels and scores with numpy's, and sizes with those that the export states."""
    write_c(network, folder / "network.c")
    size = size_of(network)
    found = boards.run_on_board(folder, network.check(X), cpu)
    assert np.array_equal(found.scores, network.scores(X))
    assert found.labels == [str(label) for label in network.predict(X)]
    assert found.flash <= size.flash
    assert size.ram <= found.ram <= size.ram + 32  # aligned
    assert 0 < found.stack <= 4 * len(network.classes) + 256
    return found


@pytest.mark.parametrize("cpu", boards.CPUS)
@pytest.mark.parametrize("name", HIDDEN)
def test_trained_networks(name, cpu, tmp_path):
    digits = load_data("digits")
    X, X_test = digits.X.astype(np.uint8), digits.X_test.astype(np.uint8)
    options = {"weights": "ternary"} if name == "dense and ternary" else {"image_shape": (1, 8, 8)}
    model = ZeroOneClassifier(HIDDEN[name], epochs=2, **options).fit(X, digits.y)
    network = quantise(model.network_)
    found = check(network, X_test[:50], tmp_path, cpu)
    assert len(set(found.labels)) > 5
    if name == "dense and ternary":
        source = (tmp_path / "network.c").read_text()
        assert "add_byte_signs(" in source
        assert "add_signs(" in source


@pytest.mark.parametrize("seed", [2, 3])
def test_random_networks(seed, tmp_path):
    """One of floats, one of bytes."""
    rng = np.random.default_rng(seed)
    network = random_network(rng)
    check(network, random_samples(rng, network.inputs, 10), tmp_path, "cortex-m3")


@pytest.mark.parametrize("skip", [False, True])
def test_relu_networks_in_integers(skip, tmp_path):
    """The networks that ours are compared with: C as numpy, and close to the float network."""
    torch.manual_seed(0)
    layers = make_layers([64, 20, 20, 10])
    X = load_data("digits").X_test.astype(np.uint8)[:100]
    rounded = quantised(layers, X)
    write_relu(rounded, tmp_path, skip=skip)
    found = boards.run_on_board(tmp_path, X)
    assert np.array_equal(found.scores, scores_of(rounded, X))
    with torch.inference_mode():
        wanted = layers(torch.from_numpy(X).float() / 255).numpy()
    assert np.abs(found.scores * (np.abs(wanted).max() / 2**15) - wanted).max() < 0.02


def test_what_the_program_refuses(tmp_path):
    """A clock that counts no instructions, and a file without samples."""
    rng = np.random.default_rng(3)
    network = random_network(rng)
    write_c(network, tmp_path / "network.c")
    with pytest.raises(RuntimeError, match=r"samples\.bin is shorter than a sample"):
        boards.run_on_board(tmp_path, np.zeros(0, np.uint8))
    words = "-M mps2-an386 -kernel cortex-m4-Os/program.elf -icount shift=1 -display none"
    words += " -monitor none -serial none -semihosting-config enable=on,target=native"
    command = ["qemu-system-arm", *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "start QEMU with -icount shift=0" in done.stderr


def test_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (boards.PROJECT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    exec(block, {})
    for cpu in boards.CPUS:
        command = ["make", "-s", "-C", str(boards.PROJECT), f"FROM={tmp_path}", f"CPU={cpu}"]
        done = subprocess.run([*command, "check"], check=True, capture_output=True, text=True)
        assert done.stdout == "agree\n"
