"""Slices, a bit of many samples at a time, are exact in scores and labels."""

from dataclasses import replace

import numpy as np
import pytest

from integer_networks import random_samples
from kernel_networks import binary, convolutional, dense, few, normal, of_few_weights, ternary
from zeroone.deploy import IntegerNetwork, slices
from zeroone.deploy.build import ROWS, kernels
from zeroone.deploy.integer_form import Inputs, Map, Stage
from zeroone.deploy.kernel import KernelNetwork
from zeroone.nn.heads import SoftmaxCE

NEEDS_KERNELS = pytest.mark.skipif(kernels().library is None, reason=kernels().why_not)


@NEEDS_KERNELS
@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("draw", [ternary, binary, few])
def test_slices(draw, bits, level):
    """One bit of all samples at a time, in counters of all sizes."""
    rng = np.random.default_rng(bits)
    for rows in (1, 64, 65, ROWS - 1, ROWS, 600):
        network = of_few_weights(rng, bits, draw)
        X = random_samples(rng, network.inputs, rows)
        made = KernelNetwork.of(network, level=level, least_sliced=1)
        assert made.slices is not None
        wanted = network.scores(X)
        assert np.array_equal(made.scores(X), wanted)
        assert np.array_equal(made.leading(X), wanted.argmax(1))
        assert made.leading_one(X[0].tobytes()) == wanted[0].argmax()


@NEEDS_KERNELS
@pytest.mark.parametrize("bits", [1, 8])
@pytest.mark.parametrize("n", [126, 127, 128, 129, 2056])
def test_counters_at_their_bounds(n, bits, level):
    """All weights have one sign, all inputs are 0 or as large as they can be."""
    largest = 2**bits - 1
    for sign in (-1, 1):
        main = Map(np.full((3, n), sign, np.int8), (n,))
        ends = np.sort([sign * largest * n, 0, sign * largest * n - 1])
        limits = np.repeat(ends, 3).astype(np.int32)
        last = Map(np.arange(-9, 9).reshape(2, 9).astype(np.int8), (9,))
        stages = [Stage(main, limits), Stage(last, np.zeros(2, np.int32))]
        network = IntegerNetwork(Inputs(n, bits=bits), stages, [0, 1], SoftmaxCE())
        X = np.array([[0], [255]], np.uint8) * np.ones(n, np.uint8)
        made = KernelNetwork.of(network, level=level, least_sliced=1)
        assert made.slices is not None
        assert np.array_equal(made.scores(X), network.scores(X))
        assert np.array_equal(made.leading(X), network.scores(X).argmax(1))


@NEEDS_KERNELS
@pytest.mark.parametrize("offset", [2**18 - 128, 2**18 - 127, 2**18, 2**31 - 200])
def test_scores_at_the_bounds_of_counters(offset, level):
    """Beyond 2**18, differences of scores need more than 20 bits."""
    first = Map(np.array([[1], [-1]], np.int8), (1,))
    last = Map(np.array([[127, 0], [0, -128]], np.int8), (2,))
    offsets = np.array([offset, -offset], np.int32)
    stages = [Stage(first, np.array([3, -9], np.int32)), Stage(last, offsets)]
    X = np.arange(256, dtype=np.uint8)[:, None]
    for order in (slice(None), slice(None, None, -1)):
        turned = Stage(replace(last, weights=last.weights[order]), offsets[order])
        network = IntegerNetwork(Inputs(1), [stages[0], turned], [0, 1], SoftmaxCE())
        made = KernelNetwork.of(network, level=level, least_sliced=1)
        assert np.array_equal(made.leading(X), network.scores(X).argmax(1))


@NEEDS_KERNELS
def test_slices_of_any_number_of_samples(level):
    rng = np.random.default_rng(2)
    network = of_few_weights(rng, 2, few)
    X = random_samples(rng, network.inputs, 600)
    wanted = network.scores(X)
    for least in (1, 100):
        made = KernelNetwork.of(network, level=level, least_sliced=least)
        for rows in range(1, 601):
            assert np.array_equal(made.scores(X[:rows]), wanted[:rows])
            assert np.array_equal(made.leading(X[:rows]), wanted[:rows].argmax(1))


@NEEDS_KERNELS
def test_the_first_of_several_leading_classes(level):
    """Scores of few different values: most samples have several classes that lead."""
    rng = np.random.default_rng(5)
    network = dense(rng, [64, 33, 20], few)
    network = replace(
        network,
        stages=[
            *network.stages[:-1],
            replace(network.stages[-1], thresholds=np.zeros(20, np.int32)),
        ],
    )
    X = random_samples(rng, network.inputs, 300)
    wanted = network.scores(X)
    assert ((wanted == wanted.max(1, keepdims=True)).sum(1) > 1).mean() > 0.3
    made = KernelNetwork.of(network, level=level, least_sliced=1)
    assert np.array_equal(made.leading(X), wanted.argmax(1))


def test_digits_of_weights():
    """Their sum is the weight, and of two in turn one is 0."""
    assert np.isin(slices.DIGITS, (-1, 0, 1)).all()
    assert not (slices.DIGITS[1:] & slices.DIGITS[:-1] & 1).any()
    weights = 2 ** np.arange(8)[::-1] @ slices.DIGITS
    assert np.array_equal(weights.astype(np.int8).view(np.uint8), np.arange(256))
    assert np.array_equal(np.sort(weights), np.arange(-128, 128))


@NEEDS_KERNELS
def test_slices_of_numbers(level):
    """Inputs that are no bytes become bytes first."""
    rng = np.random.default_rng(3)
    network = of_few_weights(rng, 8, few)
    n = network.inputs.n_taken
    low, rate = rng.normal(0, 3, n).astype(np.float32), np.full(n, 20, np.float32)
    network = replace(network, inputs=replace(network.inputs, low=low, rate=rate))
    X = random_samples(rng, network.inputs, 300)
    made = KernelNetwork.of(network, level=level, least_sliced=1)
    assert np.array_equal(made.scores(X), network.scores(X))


@NEEDS_KERNELS
def test_what_has_slices():
    """Few weights of -1 and 1 in all hidden layers, if that is ever faster."""
    rng = np.random.default_rng(4)
    of = slices.Slices.of
    sparse = dense(rng, [784, 384, 64, 10], few)
    assert of(replace(sparse, inputs=Inputs(784, bits=2)), 2).least < ROWS
    assert of(dense(rng, [784, 384, 64, 10], binary), 2) is None
    assert of(dense(rng, [784, 384, 64, 10], binary), 2, 1) is not None
    assert of(dense(rng, [784, 384, 64, 10], normal), 2, 1) is None
    assert of(replace(dense(rng, [784, 256, 1000], few), inputs=Inputs(784, bits=2)), 2).least < 99
    assert of(dense(rng, [70_000, 2, 2], few), 2, 1) is None
    assert of(dense(rng, [2100, 2, 2], binary), 2, 1) is None  # sums of 20 bits
    assert of(dense(rng, [33, 5], few), 2, 1) is None
    assert of(convolutional(rng, 3, few), 2, 1) is None
