"""The C kernels: exact where sums overflow 16 bits, for any number of samples."""

import os
import pickle
import signal
import threading
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from integer_networks import random_samples
from zeroone.deploy import (
    IntegerModel,
    IntegerNetwork,
    kernel_batch,
    kernel_single,
    runtime,
)
from zeroone.deploy.build import SAMPLES, Kernels, kernels
from zeroone.deploy.integer_form import Inputs, Map, Stage
from zeroone.deploy.kernel_batch import BLOCK, NativeNetwork, are_roomy, full_blocks, pays
from zeroone.deploy.kernel_single import SingleNetwork
from zeroone.nn.heads import SoftmaxCE
from zeroone.utils.checks import InputError

NEEDS_KERNELS = pytest.mark.skipif(kernels().library is None, reason=kernels().why_not)


def dense(rng, widths, draw):
    """Make a network of these widths; ``draw`` gives weights of a shape, up to a size."""
    stages = []
    for i, (n_in, n_out) in enumerate(pairwise(widths)):
        weights = draw(rng, (n_out, n_in), 127 if i else 64).astype(np.int8)
        limits = rng.normal(0, 50 if i else 5000, n_out).astype(np.int32)
        stages.append(Stage(Map(weights, (n_in,)), limits))
    return IntegerNetwork(Inputs(widths[0]), stages, list(range(widths[-1])), SoftmaxCE())


def as_large_as_can_be(_rng, shape, size):
    return np.full(shape, size)


def as_small_as_can_be(_rng, shape, size):
    return np.full(shape, -size)


def beyond(rng, shape, size):
    return rng.choice([-128, 127], shape) if size > 64 else rng.choice([-64, 64], shape)


def of_one_sign_a_row(rng, shape, size):
    return size * rng.choice([-1, 1], (shape[0], 1)) * np.ones(shape)


def normal(rng, shape, size):
    return rng.normal(0, size / 4, shape).clip(-size, size).round()


def ternary(rng, shape, _size):
    return rng.integers(-1, 2, shape)


DRAWS = [as_large_as_can_be, as_small_as_can_be, beyond, of_one_sign_a_row, normal, ternary]


@NEEDS_KERNELS
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("rows", [1, 2, 7, SAMPLES - 1, SAMPLES, SAMPLES + 1, 3 * SAMPLES + 5])
def test_sums_of_any_size(draw, rows):
    """700 inputs with weights of 127 add up to several times what 16 bits hold."""
    rng = np.random.default_rng(rows)
    network = dense(rng, [90, 701, 130, 3], draw)
    X = random_samples(rng, network.inputs, rows)
    X[0] = 255
    for threads in (1, 3):
        made = NativeNetwork.of(network, threads)
        assert np.array_equal(made.scores(X), network.scores(X))


@NEEDS_KERNELS
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("widths", [[90, 701, 130, 3], [1, 1, 1], [33, 32, 31, 64, 65, 33]])
def test_sums_of_any_size_of_one_sample(draw, widths):
    rng = np.random.default_rng(len(widths))
    network = dense(rng, widths, draw)
    X = random_samples(rng, network.inputs, 20)
    X[0], X[1] = 255, 0
    assert np.array_equal(SingleNetwork.of(network).scores(X), network.scores(X))


@NEEDS_KERNELS
@pytest.mark.parametrize("kind", [NativeNetwork, SingleNetwork])
def test_without_hidden_layers(kind):
    rng = np.random.default_rng(0)
    network = dense(rng, [33, 5], normal)
    X = random_samples(rng, network.inputs, 40)
    assert np.array_equal(kind.of(network).scores(X), network.scores(X))


@NEEDS_KERNELS
def test_one_sample_has_a_kernel_of_its_own(monkeypatch):
    rng = np.random.default_rng(8)
    network = dense(rng, [20, 30, 3], normal)
    X = random_samples(rng, network.inputs, 2)
    model = IntegerModel(network)
    X[0, :15] = 0  # then most of the first layer, and half of the bits, need no reading
    n = 20 * 30 + 30 * 3
    monkeypatch.setattr(kernel_single, "LEAST_UNITS", 30)
    monkeypatch.setattr(kernel_single, "MOST_PADDED", 100)
    monkeypatch.setattr(kernel_single, "LEAST_WEIGHTS", n + 1)
    assert model.engine(X[:1]) == model._by_session
    monkeypatch.setattr(kernel_single, "LEAST_WEIGHTS", n)
    assert model.engine(X[:1]) == model.single.scores
    assert model.engine(X) == model._by_session
    assert model.engine(np.full((1, 20), 7, np.uint8)) == model._by_session  # too much to read
    monkeypatch.setattr(kernel_single, "LEAST_UNITS", 31)
    assert model.engine(X[:1]) == model._by_session  # too few units
    monkeypatch.setattr(kernel_single, "LEAST_UNITS", 30)
    monkeypatch.setattr(kernel_single, "MOST_PADDED", 1.5)
    assert model.engine(X[:1]) == model._by_session  # 3 units are padded to 32
    assert np.array_equal(model.scores(X[:1]), network.scores(X[:1]))


def test_tiles_are_roomy_only_where_no_bytes_overflow():
    tiles = np.zeros((3, 2, 3, 4), np.int8)
    tiles[0, 1, 0, :2] = 64, 64  # two products in one place: 128 in all
    tiles[1, 1, 0, :2], tiles[1, 1, 2, :2] = (64, 64), (1, -5)
    tiles[2, 0, 1, 2:], tiles[2, 0, 2, 2:] = (-64, 30), (-64, 30)
    assert are_roomy(tiles).tolist() == [1, 0, 1]
    assert 255 * 128 <= 2**15 - 1 < 255 * 129


def test_blocks_are_widened_before_they_overflow():
    rng = np.random.default_rng(1)
    for size in (1, 40, 127):
        weights = rng.integers(-size, size + 1, (5, 60 * BLOCK)).astype(np.int8)
        weights[0] = size
        ends = np.flatnonzero(full_blocks(weights)) + 1
        assert ends[-1] == 60
        bounds = [0, *ends.tolist()]
        for first, last in pairwise(bounds):
            part = weights[:, first * BLOCK : last * BLOCK].astype(int)
            assert max(part.clip(0).sum(1).max(), -part.clip(None, 0).sum(1).min()) < 2**15
    assert len(ends) > 1


def test_without_a_compiler(monkeypatch):
    """ONNX Runtime takes over; only the speed differs."""
    monkeypatch.setattr(kernel_batch, "LEAST_WORK", 1)
    monkeypatch.setattr(kernel_batch, "LEAST_SAMPLES", 1)
    monkeypatch.setattr(kernel_single, "LEAST_WEIGHTS", 1)
    for name in ("kernel_batch", "kernel_single", "runtime"):
        monkeypatch.setattr(f"zeroone.deploy.{name}.kernels", lambda: Kernels(why_not="a test"))
    rng = np.random.default_rng(2)
    network = dense(rng, [20, 30, 3], normal)
    X = random_samples(rng, network.inputs, 40)
    model = IntegerModel(network)
    assert model.native is model.single is None
    for rows in (1, 40):
        assert np.array_equal(model.scores(X[:rows]), network.scores(X[:rows]))


@NEEDS_KERNELS
def test_what_runs_it(monkeypatch):
    """Kernels do much work, ONNX Runtime does little work; the scores are the same."""
    rng = np.random.default_rng(5)
    network = dense(rng, [60, 200, 3], normal)
    X = random_samples(rng, network.inputs, 300)
    assert not pays(network, 10**6)
    monkeypatch.setattr(kernel_batch, "LEAST_WORK", 1)
    assert pays(network, kernel_batch.LEAST_SAMPLES)
    assert not pays(network, kernel_batch.LEAST_SAMPLES - 1)
    monkeypatch.setattr(kernel_batch, "LEAST_WORK", 100 * (60 * 200 + 600))
    monkeypatch.setattr(Kernels, "pay", True)
    model, wanted = IntegerModel(network), network.scores(X)
    for rows, engine in ((99, model._by_session), (100, model.native.scores)):
        assert model.engine(X[:rows]) == engine
        assert np.array_equal(model.scores(X[:rows]), wanted[:rows])


@NEEDS_KERNELS
def test_nothing_is_compiled_for_a_few_single_samples(monkeypatch):
    rng = np.random.default_rng(9)
    model = IntegerModel(dense(rng, [20, 64, 32], normal))
    monkeypatch.setattr(kernel_single, "LEAST_WEIGHTS", 1)
    monkeypatch.setattr(runtime, "are_there", lambda: False)
    monkeypatch.setattr(runtime, "MANY", 3)
    sample = np.zeros((1, 20), np.uint8)
    engines = [model.engine(sample) for _ in range(5)]
    assert engines[:3] == [model._by_session] * 3
    assert engines[3:] == [model.single.scores] * 2


@NEEDS_KERNELS
@pytest.mark.parametrize("kind", [lambda net: NativeNetwork.of(net, 2), SingleNetwork.of])
def test_after_a_fork_there_are_new_threads(kind):
    rng = np.random.default_rng(4)
    network = dense(rng, [50, 100, 4], normal)
    X = random_samples(rng, network.inputs, 600)
    made, wanted = kind(network), network.scores(X)
    assert np.array_equal(made.scores(X), wanted)
    child = os.fork()
    if not child:
        signal.alarm(20)  # if it hangs
        os._exit(0 if np.array_equal(made.scores(X), wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_other_types_are_refused():
    network = dense(np.random.default_rng(6), [5, 4, 3], normal)
    wide = network.stages[0].thresholds.astype(np.int64)
    with pytest.raises(InputError, match="thresholds of type int32"):
        replace(network.stages[0], thresholds=wide)


@NEEDS_KERNELS
@pytest.mark.parametrize("kind", ["native", "single"])
def test_models_are_copied_and_shared(kind):
    rng = np.random.default_rng(3)
    network = dense(rng, [50, 100, 60, 4], normal)
    X = random_samples(rng, network.inputs, 500)
    model, wanted = IntegerModel(network, threads=2), network.scores(X)
    assert np.array_equal(getattr(model, kind).scores(X), wanted)
    assert np.array_equal(getattr(pickle.loads(pickle.dumps(model)), kind).scores(X), wanted)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(getattr(model, kind).scores(X)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(np.array_equal(scores, wanted) for scores in found)
