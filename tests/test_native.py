"""Kernels of our own: exact where sums would overflow 16 bits, for any number of samples."""

import pickle
import threading
from itertools import pairwise

import numpy as np
import pytest

from integer_networks import random_samples
from zeroone.deploy import IntegerModel, IntegerNetwork, native
from zeroone.deploy.form import Inputs, Map, Stage
from zeroone.deploy.native import (
    BLOCK,
    LEAST_SAMPLES,
    SAMPLES,
    NativeNetwork,
    are_roomy,
    full_blocks,
    kernels,
)
from zeroone.heads import SoftmaxCE

NEEDS_KERNELS = pytest.mark.skipif(kernels() is None, reason="no C compiler, or none that pays")


def dense(rng, widths, draw):
    """A network of these widths; ``draw`` gives the weights of a shape, up to a size."""
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


def of_one_sign_a_row(rng, shape, size):
    return size * rng.choice([-1, 1], (shape[0], 1)) * np.ones(shape)


def normal(rng, shape, size):
    return rng.normal(0, size / 4, shape).clip(-size, size).round()


def ternary(rng, shape, _size):
    return rng.integers(-1, 2, shape)


DRAWS = [as_large_as_can_be, as_small_as_can_be, of_one_sign_a_row, normal, ternary]


@NEEDS_KERNELS
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("rows", [1, 2, 7, SAMPLES - 1, SAMPLES, SAMPLES + 1, 3 * SAMPLES + 5])
def test_sums_of_any_size(draw, rows):
    """Of 700 inputs of 127 and more: several times what 16 bits hold."""
    rng = np.random.default_rng(rows)
    network = dense(rng, [90, 701, 130, 3], draw)
    X = random_samples(rng, network.inputs, rows)
    X[0] = 255
    for threads in (1, 3):
        made = NativeNetwork.of(network, threads)
        assert np.array_equal(made.scores(X), network.scores(X))


@NEEDS_KERNELS
def test_without_hidden_layers():
    rng = np.random.default_rng(0)
    network = dense(rng, [33, 5], normal)
    X = random_samples(rng, network.inputs, 40)
    assert np.array_equal(NativeNetwork.of(network).scores(X), network.scores(X))


def test_tiles_are_roomy_only_where_no_bytes_overflow():
    tiles = np.zeros((3, 2, 3, 4), np.int8)
    tiles[0, 1, 0, :2] = 64, 64  # two products in one place: 128, and nothing else
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
    """ONNX Runtime does it, and nobody notices but the clock."""
    monkeypatch.setattr(native, "kernels", lambda: None)
    rng = np.random.default_rng(2)
    network = dense(rng, [20, 30, 3], normal)
    X = random_samples(rng, network.inputs, 2 * LEAST_SAMPLES)
    model = IntegerModel(network)
    assert model.native is None
    assert np.array_equal(model.scores(X), network.scores(X))


@pytest.mark.parametrize("switch", ["0", None])
def test_how_they_are_found(switch, monkeypatch, tmp_path):
    """Not where they are not wanted; in a folder of their own where the cache cannot be written."""
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setattr(native, "user_cache_path", lambda _name: blocked / "cache")
    if switch is not None:
        monkeypatch.setenv(native.SWITCH, switch)
    found = kernels.__wrapped__()
    assert (found is None) == (switch == "0" or kernels() is None)
    monkeypatch.setattr(native.shutil, "which", lambda _name: None)
    assert kernels.__wrapped__() is None


@NEEDS_KERNELS
def test_a_library_that_is_none_is_built_again(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "user_cache_path", lambda _name: tmp_path)
    assert kernels.__wrapped__() is not None
    (built,) = tmp_path.iterdir()
    built.unlink()  # else what this process has loaded would change
    built.write_text("no library")
    assert kernels.__wrapped__() is not None


@NEEDS_KERNELS
def test_models_are_copied_and_shared():
    rng = np.random.default_rng(3)
    network = dense(rng, [50, 100, 60, 4], normal)
    X = random_samples(rng, network.inputs, 500)
    model, wanted = IntegerModel(network, threads=2), network.scores(X)
    assert model.native is not None
    assert np.array_equal(model.scores(X), wanted)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).scores(X), wanted)
    found = []
    threads = [threading.Thread(target=lambda: found.append(model.scores(X))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(np.array_equal(scores, wanted) for scores in found)
