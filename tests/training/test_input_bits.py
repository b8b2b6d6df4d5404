"""Networks that use only the upper bits of their bytes: the same everywhere."""

import numpy as np
import pytest
import torch

from benchmarks.engines import engines
from zeroone import (
    IntegerModel,
    TrainSettings,
    ZeroOneClassifier,
    from_torch,
    load,
    quantise,
    to_torch,
    train,
)
from zeroone.data.load import load_data
from zeroone.nn.scaling import Scaling
from zeroone.utils.checks import InputError

DIGITS = load_data("digits")
X, Y = (DIGITS.X * (255 / DIGITS.X.max())).astype(np.uint8), DIGITS.y
X_TEST = (DIGITS.X_test * (255 / DIGITS.X.max())).astype(np.uint8)


def run_of(X, bits, hidden=(50, 33), **options):
    given = {"hidden": hidden, "epochs": 3, "weights": "ternary", "batch": 100} | options
    settings = TrainSettings.from_options(input_bits=bits, **given)
    return train(X, Y, settings, image=DIGITS.shape)


@pytest.fixture(scope="module", params=[1, 2, 3, 7])
def run(request):
    return run_of(X, request.param), request.param


def test_lower_bits_do_not_count(run):
    """Training sees what a training on bytes without them sees."""
    network, bits = run[0].network, run[1]
    step = 2 ** (8 - bits)
    same = run_of(X // step * step, None).network
    assert torch.equal(network.scaling.centre, same.scaling.centre)
    for a, b in zip(network.operators, same.operators, strict=True):
        torch.testing.assert_close(a.weight, b.weight, rtol=0.01, atol=0.01)
    for other in (X_TEST // step * step, X_TEST // step * step + step - 1):
        assert np.array_equal(network.scores(other), network.scores(X_TEST))


def test_every_form_is_the_same(run, tmp_path):
    network, bits = run[0].network, run[1]
    again = load(network.save(tmp_path / "network.safetensors"))
    assert again.scaling.bits == bits
    for other in (again, from_torch(to_torch(network))):
        assert torch.equal(
            torch.as_tensor(other.scores(X_TEST)), torch.as_tensor(network.scores(X_TEST))
        )
    integers = quantise(network)
    assert integers.inputs.bits == bits
    assert set(np.unique(integers.stages[0].main.weights)) <= {-1, 0, 1}
    assert (integers.predict(X_TEST) == network.predict(X_TEST)).mean() > 0.98
    model = load(IntegerModel(integers).save(tmp_path / "integers.safetensors"))
    wanted = integers.scores(X_TEST)
    assert np.array_equal(model.scores(X_TEST), wanted)
    for name, run_engine in engines().items():
        assert np.array_equal(run_engine(integers, X_TEST[:40], tmp_path), wanted[:40]), name


def test_numbers_that_are_no_bytes_are_refused(run):
    network = run[0].network
    with pytest.raises(InputError, match="whole numbers from 0 to 255"):
        network.predict(X_TEST / 255)
    assert np.array_equal(network.predict(X_TEST.astype(float)), network.predict(X_TEST))


def test_images():
    """Below a convolution, and with ranges given: the bytes stay what they are."""
    network = run_of(X, 2, ("conv3x3:6:pad1:max2", 20)).network
    integers = quantise(network, like=X[:5])
    assert integers.inputs.bits == 2
    assert (integers.predict(X_TEST) == network.predict(X_TEST)).mean() > 0.95


def test_estimator_and_further_training():
    options = {"input_bits": 2}
    clf = ZeroOneClassifier((20,), epochs=2, options=options).fit(X, Y)
    assert clf.network_.scaling.bits == 2
    clf.partial_fit(X[:100], Y[:100])
    assert clf.network_.scaling.bits == 2
    online = ZeroOneClassifier((20,), options=options).partial_fit(X, Y, classes=range(10))
    assert online.network_.scaling.bits == 2
    start = clf.network_
    assert train(X, Y, start=start).network.scaling.bits == 2
    with pytest.raises(InputError, match="input_bits=2, not None"):
        train(X, Y, TrainSettings(hidden=(20,), dtype="float32"), start=start)


def test_weights_of_samples():
    """Means and deviations are those of the upper bits, however they are computed."""
    raw = torch.from_numpy(X)
    plain = Scaling.fit(raw, bits=3)
    weighted = Scaling.fit(raw, bits=3, weights=torch.ones(len(raw)))
    without = Scaling.fit(torch.from_numpy(X // 32 * 32))
    for other in (weighted, without):
        torch.testing.assert_close(plain.centre, other.centre)
        torch.testing.assert_close(plain.scale, other.scale)


@pytest.mark.parametrize(
    ("bits", "data", "message"),
    [
        (0, X, "input_bits"),
        (8, X, "input_bits"),
        (2.5, X, "input_bits"),
        (2, X / 255, "input_bits=2 takes the upper bits of bytes"),
    ],
)
def test_refused(bits, data, message):
    with pytest.raises(InputError, match=message):
        run_of(data, bits)
