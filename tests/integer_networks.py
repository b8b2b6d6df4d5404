"""Random integer networks of every kind, in widths that are hard on machine words."""

import math
from dataclasses import replace

import numpy as np
import torch

from zeroone.deploy import quantise
from zeroone.deploy.integer_form import Inputs, IntegerNetwork, Map, Stage
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network
from zeroone.nn.scaling import InputRange, Scaling

WIDTHS = (1, 2, 7, 31, 32, 33, 63, 64, 65)
SHAPES = {
    "dense": ((9,), [8, 7]),
    "no hidden layer": ((9,), []),
    "dense stream": ((9,), [8, 7, "7:stream", "14:stream"]),
    "images": ((2, 6, 5), ["conv3x3:5:pad1:max2", "conv2x2:4", 6]),
    "average": ((1, 6, 6), ["conv3x3:5:pad1:stride1:average2", 6]),
    "bits": ((9,), ["8:bits2", "7:bits3"]),
    "bits of images": ((2, 6, 5), ["conv3x3:5:pad1:bits2:max2", "conv2x2:4:bits3", 6]),
    "bits, average": ((1, 6, 6), ["conv3x3:5:pad1:bits3:average2", "conv2x2:9:bits2:average2"]),
    "bits, border": ((1, 6, 6), ["conv3x3:5:pad1:bits2:max2", "6:bits2"]),
    "bits, border, average": ((1, 6, 6), ["conv3x3:5:pad1:bits2:average2", "9:bits3"]),
    "bits, stream": (
        (1, 6, 6),
        ["conv3x3:5:pad1", "conv3x3:3:pad1:bits2", "conv3x3:6:pad1:bits2:stream:max2"],
    ),
    "stream": (
        (1, 6, 6),
        ["conv3x3:5:pad1", "conv3x3:5:pad1:max2", "conv3x3:5:pad1:stream", 6],
    ),
}


def whole_network(name, seed=0):
    """Make a float64 network of integer weights, with the largest possible one in every row."""
    shape, hidden = SHAPES[name]
    plans = [LayerPlan.parse(layer) for layer in hidden]
    n = int(np.prod(shape))
    low = torch.zeros(n, dtype=torch.float64)
    ranges = InputRange(low, low + 255, are_bytes=True)
    centre = low + 90 if "border" in name else low  # so that thresholds differ by position
    scaling = Scaling(centre, torch.tensor(1.0, dtype=torch.float64), inputs=ranges)
    network = Network.build(
        shape, plans, 4, SoftmaxCE(), seed=seed, dtype=torch.float64, scaling=scaling
    )
    rng = torch.Generator().manual_seed(seed)
    for i, layer in enumerate(network.layers):
        largest, size, op = (127, 100, layer.operator) if i else (64, 3000, layer.operator)
        op.linear.copy_(torch.randint(-largest, largest + 1, op.linear.shape, generator=rng))
        if op.offset is not None:
            op.offset.copy_(torch.randint(-size, size, op.offset.shape, generator=rng) + 0.5)
        op.linear[:, 0] = largest
        if layer.bits:  # so that thresholds divide the sums
            op.weight /= 128 if i else 8192
    network.operators[-1].offset.floor_()
    return network


def random_map(rng, shape_in, n_out, largest, **geometry):
    kernel = geometry.get("kernel", 0)
    columns = shape_in[0] * kernel**2 if kernel else math.prod(shape_in)
    weights = rng.integers(-largest, largest + 1, (n_out, columns)).astype(np.int8)
    weights[rng.random(weights.shape) < 0.1] = 0
    if rng.random() < 0.3:
        weights = np.sign(weights)  # as ternary training gives them
    return Map(weights, shape_in, **geometry)


def random_thresholds(rng, main, scale, sides=()):
    """Draw thresholds that about half of the sums exceed; a few are exceeded never or always.

    A unit has one or several, which rise; with ``sides``, they differ by position.
    """
    shape = (int(rng.choice((1, 1, 1, 2, 3, 8))), main.n_out, *sides)
    size = scale * math.sqrt(main.weights.shape[1]) * 40 + 1
    limits = rng.normal(0, size, shape).astype(np.int32)
    wild = rng.random(shape) < 0.05
    limits[wild] = rng.choice([-(10**7), 10**7], int(wild.sum()))
    return np.sort(limits, axis=0).reshape(-1, *sides)


def random_inputs(rng, n):
    """Draw inputs of bytes or numbers, some of them unused."""
    n_features, taken = n, None
    if rng.random() < 0.4:
        n_features = n + int(rng.integers(1, 9))
        taken = np.sort(rng.choice(n_features, n, replace=False)).astype(np.int64)
    if rng.random() < 0.5:
        return Inputs(n_features, taken, bits=int(rng.choice((1, 2, 3, 5, 8, 8, 8))))
    low = rng.normal(0, 3, n).astype(np.float32)
    rate = (255 / rng.uniform(0.01, 20, n)).astype(np.float32)
    return Inputs(n_features, taken, low, rate)


def random_samples(rng, inputs, count):
    if inputs.are_bytes:
        X = rng.integers(0, 256, (count, inputs.n_features)).astype(np.uint8)
        X[rng.random(X.shape) < 0.3] = 0
        return X
    X = rng.normal(0, 10, (count, inputs.n_features)).astype(np.float32)
    # Put some next to the boundary between two bytes, where rounding shows.
    columns = np.arange(inputs.n_features) if inputs.taken is None else inputs.taken
    steps = rng.integers(0, 256, (count, len(columns))) + np.float32(0.5)
    edges = (inputs.low + steps / inputs.rate).astype(np.float32)
    near = np.nextafter(edges, rng.choice([-np.inf, np.inf], edges.shape).astype(np.float32))
    chosen = rng.random(edges.shape)
    X[:, columns] = np.where(
        chosen < 0.4, X[:, columns], np.where(chosen < 0.7, edges, near)
    ).astype(np.float32)
    return X


def random_network(rng):
    return (_random_images if rng.random() < 0.5 else _random_dense)(rng)


def _finish(rng, stages, shape, inputs):
    n_classes = int(rng.integers(2, 12))
    last = random_map(rng, shape, n_classes, 127 if stages else 64)
    offsets = rng.integers(-500, 500, n_classes).astype(np.int32)
    classes = [f"class {k}" for k in range(n_classes)]
    return IntegerNetwork(inputs, [*stages, Stage(last, offsets)], classes, SoftmaxCE(), 0.01)


def _random_dense(rng):
    n = int(rng.choice(WIDTHS))
    inputs, stages, shape = random_inputs(rng, n), [], (n,)
    for i in range(int(rng.integers(0, 5))):
        stream = i >= 2 and rng.random() < 0.5
        below = stages[-1].main.n_out if stream else 0
        units = below * int(rng.integers(1, 4)) if stream else int(rng.choice(WIDTHS))
        main = random_map(rng, shape, units, 127 if i else 64)
        limits = random_thresholds(rng, main, 1 if i else 60)
        stages.append(Stage(main, limits, stream=stream))
        shape = stages[-1].shape_out
    return _finish(rng, stages, shape, inputs)


def _random_images(rng):
    shape = (int(rng.choice((1, 2, 3))), int(rng.integers(5, 10)), int(rng.integers(5, 10)))
    inputs, stages = random_inputs(rng, math.prod(shape)), []
    for i in range(int(rng.integers(1, 5))):
        kernel = int(rng.choice((1, 2, 3, 5)))
        geometry = {"kernel": kernel, "stride": int(rng.choice((1, 1, 2, 3)))}
        geometry["padding"] = int(rng.integers(0, kernel))
        if min(shape[1:]) + 2 * geometry["padding"] < kernel:
            geometry |= {"kernel": 1, "padding": 0}
        units = int(rng.choice((1, 3, 8, 33)))
        stream = i >= 2 and stages[-1].pool != "average" and rng.random() < 0.6
        if stream:
            kernel, units = int(rng.choice((1, 3))), stages[-1].main.n_out * int(rng.integers(1, 3))
            geometry = {"kernel": kernel, "stride": 1, "padding": kernel // 2}
        main = random_map(rng, shape, units, 127 if i else 64, **geometry)
        pool = str(rng.choice(["none", "max", "average"]))
        window = 1 if pool == "none" else int(rng.integers(1, min(3, *main.shape_out[1:]) + 1))
        stage = Stage(main, np.zeros(units, np.int32), pool, window, stream)
        sides = stage.compared[1:] if rng.random() < 0.3 else ()
        limits = random_thresholds(rng, main, 1 if i else 60, sides)
        stage = replace(stage, thresholds=limits)
        stages.append(stage)
        shape = stage.shape_out
        if min(shape[1:]) < 3:
            break
    return _finish(rng, stages, shape, inputs)


def signs_of_bytes():
    """Make a dense network of bytes with ternary weights in the first layer."""
    rng = np.random.default_rng(0)
    weights = rng.integers(-1, 2, (50, 70)), rng.integers(-9, 10, (5, 50))
    limits = rng.integers(-900, 900, 50), np.zeros(5)
    stages = [
        Stage(Map(W.astype(np.int8), (W.shape[1],)), b.astype(np.int32))
        for W, b in zip(weights, limits, strict=True)
    ]
    return IntegerNetwork(Inputs(70), stages, list("abcde"), SoftmaxCE())


def network_with_border():
    """Make a convolution of padded images of bytes, centred at 90."""
    low = torch.zeros(64)
    ranges = InputRange(low, low + 255, are_bytes=True)
    scaling = Scaling(low + 90, torch.tensor(70.0), inputs=ranges)
    plans = ["conv3x3:5:pad1:max2", 6]
    return quantise(Network.build((1, 8, 8), plans, 4, SoftmaxCE(), scaling=scaling))
