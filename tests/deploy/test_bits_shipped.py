"""Networks with several bits a unit, compressed and exported: a unit for each bit that matters."""

import numpy as np
import pytest
import torch

from benchmarks.engines import engines
from integer_networks import whole_network
from zeroone import IntegerModel, load, quantise
from zeroone.commands.compress import widths
from zeroone.deploy.compress import compress

NAMES = ("bits", "bits of images", "bits, stream")


def samples(network):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (60, network.n_features)).astype(np.uint8)
    return X * (rng.random(X.shape) < 0.5)


@pytest.mark.parametrize("name", NAMES)
def test_every_engine_agrees_with_the_network(name, tmp_path):
    """The weights are integers already, so that the scores stay the same to the bit."""
    network = whole_network(name)
    integers, expected = quantise(network), [layer.shape_out[0] for layer in network.layers]
    X = samples(network)
    scores = network.scores(X).numpy()
    assert len(np.unique(scores, axis=0)) > 10
    assert [stage.main.n_out for stage in integers.stages] == expected
    assert {"numpy", "onnxruntime"} <= set(engines())
    for engine, run in engines().items():
        assert np.array_equal(run(integers, X, tmp_path), scores), engine
    path = IntegerModel(integers).save(tmp_path / "m.safetensors")
    assert np.array_equal(load(path).predict(X), network.predict(X))


@pytest.mark.parametrize("name", NAMES[:2])
def test_bits_that_do_not_matter_leave(name):
    network = whole_network(name)
    units = network.operators[0].n_out
    with_bits = next(i for i, layer in enumerate(network.layers) if layer.bits)
    below = network.layers[with_bits].operator
    above = network.operators[with_bits + 1]  # one bit of unit 1 feeds nothing
    above.linear[:, above.columns_of(torch.tensor([1]))] = 0
    below.linear[2], below.offset[2] = 0, -1  # and unit 2 is never on
    small = compress(network)
    left = [layer.shape_out[0] for layer in network.layers]
    left[with_bits] -= 1 + network.layers[with_bits].bits
    assert [op.n_out for op in small.operators] == left
    X = samples(network)
    torch.testing.assert_close(small.scores(X), network.scores(X), rtol=0, atol=1e-9)
    assert network.operators[0].n_out == units  # which stays as it is


def test_widths_count_bits():
    """So that those before and after can be compared."""
    network = whole_network("bits")
    assert widths(network) == [9, 16, 21, 4]
    assert widths(compress(network)) == widths(IntegerModel(quantise(network))) == [9, 16, 21, 4]
