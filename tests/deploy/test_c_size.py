"""The size that the C export states: constants exactly, code as the compiler makes it."""

import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from benchmarks.engines import by_c
from integer_networks import network_with_border, random_network, random_samples, signs_of_bytes
from zeroone import Network, quantise
from zeroone.deploy import IntegerNetwork
from zeroone.deploy.exporters.c import limits_by_place, size_of, write_c
from zeroone.deploy.integer_form import Inputs, Map, Stage
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.scaling import Scaling

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
SHIPPED = {
    "dense": ((64,), [40, 30]),
    "wide": ((784,), [100, 100]),
    "images": ((1, 12, 12), ["conv3x3:8:pad1:max2", "conv3x3:12", 20]),
    "stream": ((1, 8, 8), ["conv3x3:6:pad1", "conv3x3:6:pad1", "conv3x3:6:pad1:stream", 20]),
    "average": ((3, 8, 8), ["conv5x5:8:average2", 20]),
}


def network_of(name, *, floats=False, signs=False):
    shape, hidden = SHIPPED[name]
    X = torch.randint(0, 256, (30, int(np.prod(shape))), dtype=torch.uint8)
    scaling = Scaling.fit(X.float() / 7 if floats else X, channels=shape[0] if shape[1:] else None)
    network = Network.build(shape, hidden, 10, SoftmaxCE(), scaling=scaling)
    for operator in network.operators[:-1] if signs else ():
        operator.linear.sign_()
    return quantise(network)


def with_signs(network):
    """Replace the weights of the first layer by their signs, of which none is 0."""
    first = network.stages[0]
    weights = np.where(first.main.weights < 0, -1, 1).astype(np.int8)
    first = replace(first, main=replace(first.main, weights=weights))
    return replace(network, stages=[first, *network.stages[1:]])


def compiled(network, folder):
    """Return the bytes of code and constants, and of variables, that gcc makes."""
    write_c(network, folder / "network.c")
    flags = ["-std=c99", "-Os", "-fno-pie", "-fno-asynchronous-unwind-tables"]
    subprocess.run(["gcc", *flags, "-c", "network.c"], check=True, cwd=folder)
    command = ["size", "-A", "network.o"]
    made = subprocess.run(command, check=True, cwd=folder, capture_output=True, text=True).stdout
    sizes = [line.split()[:2] for line in made.splitlines() if line.startswith(".")]
    flash = sum(int(size) for name, size in sizes if name.startswith((".text", ".rodata", ".data")))
    return flash, sum(int(size) for name, size in sizes if name.startswith(".bss"))


@needs_gcc
@pytest.mark.parametrize("how", ["bytes", "floats", "signs"])
@pytest.mark.parametrize("name", SHIPPED)
def test_flash_and_ram_are_those_of_the_compiled_object(name, how, tmp_path):
    network = network_of(name, floats=how == "floats", signs=how == "signs")
    size = size_of(network)
    flash, ram = compiled(network, tmp_path)
    assert flash <= size.flash <= 1.02 * flash + 550
    assert size.ram <= ram <= size.ram + 32 * 6  # aligned


@needs_gcc
def test_any_network_fits_into_its_flash(tmp_path):
    for seed in range(15):
        network = random_network(np.random.default_rng(seed))
        assert compiled(network, tmp_path)[0] <= size_of(network).flash, seed


def test_what_is_printed_is_what_is_computed(tmp_path):
    network = network_of("images")
    size = size_of(network)
    lines = network.export("c", tmp_path / "m.c")
    assert f"flash about {size.flash:,} bytes ({size.constants:,} of them" in lines[1]
    assert f"RAM {size.ram:,} bytes" in lines[1]
    assert f"about {size.cycles:,} cycles per prediction on a Cortex-M4 (an estimate" in lines[2]
    header = (tmp_path / "m.h").read_text()
    assert f"Flash: about {size.flash} bytes, {size.constants} of them" in header
    assert f"Time: about {size.cycles} cycles" in header


def test_cycles_by_hand():
    """Ten cycles per addition and per threshold; of bits, half are added."""
    weights = np.full((8, 6), 9), np.full((4, 8), 9), np.full((3, 4), 9)
    stages = [
        Stage(Map(W.astype(np.int8), (W.shape[1],)), np.zeros(len(W), np.int32)) for W in weights
    ]
    network = IntegerNetwork(Inputs(6), stages, list("abc"), SoftmaxCE())
    assert size_of(network).cycles == 10 * (48 + 8) + 10 * (16 + 4) + 10 * (6 + 3)


def test_thresholds_around_a_padded_image_are_stored_once(tmp_path):
    network = network_with_border()
    stage = network.stages[0]
    tables = limits_by_place(stage)
    units, rows, columns = stage.thresholds.shape
    assert len(tables["limits"]) == 9 * units
    for y in range(rows):
        for x in range(columns):
            start = int(tables["rows"][y]) + int(tables["columns"][x])
            found = tables["limits"][start : start + units]
            assert np.array_equal(found, stage.thresholds[:, y, x])
    if shutil.which("gcc"):
        X = random_samples(np.random.default_rng(1), network.inputs, 30)
        assert np.array_equal(by_c(network, X, tmp_path), network.scores(X))


@pytest.mark.parametrize("binary", [False, True])
def test_signs_of_bytes_take_two_bits_or_one(binary, tmp_path):
    network = with_signs(signs_of_bytes()) if binary else signs_of_bytes()
    words = 50 * 3 * (1 if binary else 2)
    assert size_of(network).constants == 4 * words + 50 * 5 + 4 * (50 + 5)
    if shutil.which("gcc"):
        X = random_samples(np.random.default_rng(1), network.inputs, 30)
        # The second time as compilers other than GCC and Clang see it.
        for flags in ((), ("-U__GNUC__",)):
            assert np.array_equal(by_c(network, X, tmp_path, flags), network.scores(X))
        assert " * " not in (tmp_path / "network.c").read_text().partition("add_byte_signs")[2]


@pytest.mark.parametrize("seed", range(4))
def test_networks_of_one_bit_a_weight(seed, tmp_path):
    """All widths: the last word of a unit is rarely full."""
    rng = np.random.default_rng(seed)
    shape = [*rng.integers(1, 100, 3), 10]
    stages = [
        Stage(Map(rng.choice([-1, 1], (n, m)).astype(np.int8), (m,)), np.zeros(n, np.int32))
        for m, n in pairwise(map(int, shape))
    ]
    network = IntegerNetwork(Inputs(int(shape[0])), stages, list(range(10)), SoftmaxCE())
    if shutil.which("gcc"):
        X = random_samples(rng, network.inputs, 30)
        assert np.array_equal(by_c(network, X, tmp_path), network.scores(X))
        assert compiled(network, tmp_path)[0] <= size_of(network).flash


@pytest.mark.parametrize("n_taken", [5, 60])
def test_inputs_in_use_take_a_bit_each(n_taken, tmp_path):
    rng = np.random.default_rng(0)
    taken = np.sort(rng.choice(64, n_taken, replace=False)).astype(np.int64)
    weights = rng.integers(2, 60, (9, n_taken)).astype(np.int8)
    for low in (None, rng.normal(size=n_taken).astype(np.float32)):
        inputs = Inputs(64, taken, low, None if low is None else np.abs(low) + 1)
        stages = [Stage(Map(weights, (n_taken,)), np.zeros(9, np.int32))]
        network = IntegerNetwork(inputs, stages, list(range(9)), SoftmaxCE())
        X = random_samples(rng, inputs, 20)
        scale = 0 if low is None else 8
        assert size_of(network).constants == 64 / 8 + (9 + scale) * n_taken + 4 * 9
        if shutil.which("gcc"):
            assert np.array_equal(by_c(network, X, tmp_path), network.scores(X))


def test_a_range_that_all_inputs_share_is_stored_once(tmp_path):
    rng = np.random.default_rng(0)
    low, rate = np.full(20, 0.3, np.float32), rng.uniform(1, 2, 20).astype(np.float32)
    weights = rng.integers(2, 60, (3, 20)).astype(np.int8)
    stages = [Stage(Map(weights, (20,)), np.zeros(3, np.int32))]
    for one, numbers in ((low, 1), (rate, 20)):
        inputs = Inputs(20, None, low, one)
        network = IntegerNetwork(inputs, stages, list("abc"), SoftmaxCE())
        assert size_of(network).constants == 60 + 4 * 3 + 4 * (1 + numbers)
        if shutil.which("gcc"):
            X = random_samples(rng, inputs, 20)
            assert np.array_equal(by_c(network, X, tmp_path), network.scores(X))
