"""Networks of dense layers and convolutions as kernels take them, of many kinds of weights."""

from itertools import pairwise

import numpy as np

from zeroone.deploy import IntegerNetwork
from zeroone.deploy.integer_form import Inputs, Map, Stage
from zeroone.nn.heads import SoftmaxCE


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


def binary(rng, shape, _size):
    return rng.choice([-1, 1], shape)


DRAWS = [as_large_as_can_be, as_small_as_can_be, beyond, of_one_sign_a_row, normal, ternary, binary]


def of_few_weights(rng, bits, draw):
    """Make a network of random widths and thresholds, whose limits are among the sums."""
    widths = rng.choice([1, 2, 31, 33, 64, 65, 130, 300], rng.integers(2, 5)).tolist()
    stages, n_in, largest = [], widths[0], 2**bits
    for n_out in widths[1:]:
        each = int(rng.choice([1, 2, 5]))
        main = Map(draw(rng, (n_out, n_in), None).astype(np.int8), (n_in,))
        limits = rng.normal(0, 0.3 * largest * np.sqrt(n_in), (each, n_out)).astype(np.int32)
        stages.append(Stage(main, np.sort(limits, axis=0).ravel()))
        n_in, largest = each * n_out, 1
    classes = int(rng.choice([1, 5, 17, 257]))
    wide = rng.integers(-128, 128, (classes, n_in)) // rng.choice([1, 16, 128], (classes, 1))
    offsets = (rng.integers(-50, 50, classes) * rng.choice([1, 10**6])).astype(np.int32)
    stages.append(Stage(Map(wide.astype(np.int8), (n_in,)), offsets))
    # Whole blocks of 64 features are out of use where those in use follow each other.
    n_features = widths[0] + int(rng.choice([0, 1, 65, 500]))
    start = int(rng.integers(0, n_features - widths[0] + 1))
    taken = np.arange(start, start + widths[0])
    if rng.random() < 0.5:
        taken = np.sort(rng.choice(n_features, widths[0], replace=False))
    inputs = Inputs(n_features, None if n_features == widths[0] else taken, bits=bits)
    return IntegerNetwork(inputs, stages, list(range(classes)), SoftmaxCE())


def few(rng, shape, _size):
    return rng.choice([-1, 0, 0, 0, 0, 0, 0, 0, 1], shape)


def convolutional(rng, channels, draw):
    """Two convolutions with random geometry and pooling, and a dense layer."""
    shape, stages = (int(rng.integers(1, 4)), 9, 8), []
    for i in range(2):
        kernel = int(rng.integers(1, 1 + min(3, *shape[1:])))
        geometry = (kernel, int(rng.integers(1, 3)), int(rng.integers(0, kernel)))
        weights = draw(rng, (channels, shape[0] * kernel**2), 127 if i else 64).astype(np.int8)
        main = Map(weights, shape, *geometry)
        limits = rng.normal(0, 30 if i else 3000, channels).astype(np.int32)
        window = int(rng.integers(1, 3)) if min(main.shape_out[1:]) > 1 else 1
        stages.append(Stage(main, limits, "max" if window > 1 else "none", window))
        shape = stages[-1].shape_out
    n = int(np.prod(shape))
    last = Map(draw(rng, (4, n), 127).astype(np.int8), (n,))
    stages.append(Stage(last, rng.integers(-50, 50, 4).astype(np.int32)))
    return IntegerNetwork(Inputs(stages[0].main.n_inputs), stages, list(range(4)), SoftmaxCE())
