"""The C kernels: exact where sums overflow 16 bits, for any number of samples."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from integer_networks import random_network, random_samples
from kernel_networks import DRAWS, convolutional, dense, normal, ternary
from zeroone.deploy import IntegerModel, kernel
from zeroone.deploy.build import ROWS, Kernels, kernels
from zeroone.deploy.integer_form import Inputs
from zeroone.deploy.kernel import KernelNetwork, _room
from zeroone.utils.checks import InputError

NEEDS_KERNELS = pytest.mark.skipif(kernels().library is None, reason=kernels().why_not)


@NEEDS_KERNELS
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("rows", [1, 2, 7, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS + 5])
def test_sums_of_any_size(draw, rows, level):
    """700 inputs with weights of 127 add up to several times what 16 bits hold."""
    rng = np.random.default_rng(rows)
    network = dense(rng, [90, 701, 130, 3], draw)
    X = random_samples(rng, network.inputs, rows)
    X[0], X[-1] = 255, 0
    wanted = network.scores(X)
    for threads in (1, 3):
        assert np.array_equal(KernelNetwork.of(network, threads, level).scores(X), wanted)


@NEEDS_KERNELS
@pytest.mark.parametrize("draw", DRAWS)
def test_widths(draw, level):
    """Widths around those of words and tiles, in every place of a network."""
    for width in (1, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 97, 127, 128, 129, 250):
        rng = np.random.default_rng(width)
        for widths in ([width, width, 5], [3, width, 33, width]):
            network = dense(rng, widths, draw)
            X = random_samples(rng, network.inputs, 66)
            assert np.array_equal(
                KernelNetwork.of(network, level=level).scores(X), network.scores(X)
            )


@NEEDS_KERNELS
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("channels", [1, 3, 31, 33, 64, 100])
def test_convolutions(draw, channels, level):
    rng = np.random.default_rng(channels)
    for _ in range(4):
        network = convolutional(rng, channels, draw)
        X = random_samples(rng, network.inputs, 3)
        assert np.array_equal(KernelNetwork.of(network, level=level).scores(X), network.scores(X))


@NEEDS_KERNELS
def test_without_hidden_layers(level):
    rng = np.random.default_rng(0)
    network = dense(rng, [33, 5], normal)
    X = random_samples(rng, network.inputs, 40)
    assert np.array_equal(KernelNetwork.of(network, level=level).scores(X), network.scores(X))


@NEEDS_KERNELS
@pytest.mark.parametrize("limit", [2**31 - 1, -(2**31 - 1)])
def test_limits_of_any_size(limit, level):
    """Kernels add a constant to the limits of weights of few bits."""
    rng = np.random.default_rng(1)
    network = dense(rng, [40, 50, 60, 3], ternary)
    stages = [replace(s, thresholds=np.full_like(s.thresholds, limit)) for s in network.stages[:2]]
    network = replace(network, stages=[*stages, network.stages[2]])
    X = random_samples(rng, network.inputs, 5)
    for least in (1, None):
        made = KernelNetwork.of(network, level=level, least_sliced=least)
        assert np.array_equal(made.scores(X), network.scores(X))


@NEEDS_KERNELS
@pytest.mark.parametrize("n_features", [33, 34, 63, 64, 65, 128, 200, 700])
def test_unused_inputs(n_features, level):
    """Those in use are taken first, 64 features at a time, whatever the others are."""
    rng = np.random.default_rng(n_features)
    network = dense(rng, [33, 20, 3], normal)
    for end in (False, True):
        taken = np.sort(rng.choice(n_features - end, 33 - end, replace=False))
        taken = np.append(taken, n_features - 1) if end else taken
        one = replace(network, inputs=Inputs(n_features, taken, bits=int(rng.integers(1, 9))))
        for rows in (1, 9, ROWS + 1):
            X = random_samples(rng, one.inputs, rows)
            assert np.array_equal(KernelNetwork.of(one, level=level).scores(X), one.scores(X))


@NEEDS_KERNELS
def test_the_short_way_for_one_sample():
    rng = np.random.default_rng(8)
    for seed in range(20):
        network = random_network(np.random.default_rng(seed))
        model, out = IntegerModel(network), np.empty(1, np.int32)
        X = random_samples(rng, network.inputs, 8)
        for k in range(len(X)):
            wanted = network.predict(X[k : k + 1])
            assert model.predict(X[k : k + 1]).tolist() == wanted.tolist()
            model.predict_into(X[k : k + 1], out)
            assert network.classes[out[0]] == wanted[0]
        all_out = np.empty(len(X), np.int32)
        model.predict_into(X, all_out)
        assert [network.classes[k] for k in all_out] == network.predict(X).tolist()


@NEEDS_KERNELS
def test_what_cannot_take_the_short_way():
    """Other types, layouts and shapes are converted, or refused, as ever."""
    rng = np.random.default_rng(8)
    network = dense(rng, [20, 30, 3], normal)
    X = random_samples(rng, network.inputs, 40)
    model, wanted = IntegerModel(network), network.predict(X)
    assert model.predict(X[:1].astype(np.float64)) == wanted[:1]
    assert model.predict(np.repeat(X[:1], 2, axis=1)[:, ::2]) == wanted[:1]
    assert model.predict(X[:1].tolist()) == wanted[:1]
    assert model.predict(np.asfortranarray(X)).tolist() == wanted.tolist()
    for wrong in (X[:1, :-1], X[:1] + 0.5, X[:1].astype(np.int16) - 300):
        with pytest.raises(InputError):
            model.predict(wrong)
    for out in (np.empty(1, np.int64), np.empty(2, np.int32), np.empty((1, 1), np.int32)):
        with pytest.raises(InputError, match="int32 array of shape"):
            model.predict_into(X[:1], out)


@NEEDS_KERNELS
def test_products_fit_in_16_bits():
    weights = np.zeros((3, 8), np.int8)
    weights[1, 2:4], weights[2, 4:6] = (64, 64), (-64, 30)
    assert _room(weights, 255) == 1
    assert _room(np.sign(weights), 255) == 64
    assert 64 * 2 * 255 <= 2**15 - 1 < 65 * 2 * 255


def test_without_a_compiler(monkeypatch):
    """ONNX Runtime takes over; only the speed differs."""
    monkeypatch.setattr(kernel, "kernels", lambda: Kernels(why_not="a test"))
    rng = np.random.default_rng(2)
    network = dense(rng, [20, 30, 3], normal)
    X = random_samples(rng, network.inputs, 40)
    model = IntegerModel(network)
    assert model.native is None
    for rows in (1, 40):
        assert np.array_equal(model.scores(X[:rows]), network.scores(X[:rows]))
        assert np.array_equal(model.predict(X[:rows]), network.predict(X[:rows]))


@NEEDS_KERNELS
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.85, 1.0])
def test_inputs_of_any_density(share, level):
    """Few zeros let more rows share the weights; inputs may all be 0, and few bits 1."""
    rng = np.random.default_rng(5)
    for draw, shift in ((normal, 0), (normal, 60_000), (ternary, 0)):
        network = dense(rng, [300, 150, 70, 3], draw)
        first = network.stages[0]
        first = replace(first, thresholds=first.thresholds + np.int32(shift))
        network = replace(network, stages=[first, *network.stages[1:]])
        for rows in (1, 3, 4, 5, 6, 90):
            X = random_samples(rng, network.inputs, rows)
            X[rng.random(X.shape) >= share] = 0
            made = KernelNetwork.of(network, level=level)
            assert np.array_equal(made.scores(X), network.scores(X))


@NEEDS_KERNELS
def test_kernels_run_all_batches():
    rng = np.random.default_rng(5)
    network = dense(rng, [60, 400, 300, 3], normal)
    model = IntegerModel(network)
    for rows in (1, 300):
        X = random_samples(rng, network.inputs, rows)
        assert model.engine == model.native.scores
        assert np.array_equal(model.scores(X), network.scores(X))


@NEEDS_KERNELS
def test_where_places_are_written():
    """To any int32 array that can be written to, and to no other."""
    rng = np.random.default_rng(7)
    network = dense(rng, [60, 40, 3], normal)
    model, X = IntegerModel(network), random_samples(rng, network.inputs, 300)
    X.flags.writeable = False
    wanted = network.predict(X)
    for out in (np.empty(300, np.int32), np.empty(600, np.int32)[::2]):
        model.predict_into(X, out)
        assert np.array_equal(out, wanted)
    for rows in (1, 300):
        fixed = np.full(rows, -1, np.int32)
        fixed.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            model.predict_into(X[:rows], fixed)
        assert (fixed == -1).all()


SANITIZED = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
import numpy as np
from zeroone.deploy import build
sanitize = "-fsanitize=address,undefined", "-fno-sanitize-recover=all"
build.FLAGS = *build.FLAGS, *sanitize, "-O1", "-g"
build.user_cache_path = lambda _name: Path({folder!r})
from integer_networks import random_network, random_samples
from zeroone.deploy.kernel import KernelNetwork
import kernel_networks as t
def check(rng, network, rows):
    X = random_samples(rng, network.inputs, rows)
    for level in range(build.kernels().level + 1):
        for least in (None, 1):
            made = KernelNetwork.of(network, level=level, least_sliced=least)
            if made is not None:
                wanted = network.scores(X)
                assert np.array_equal(made.scores(network.check(X)), wanted)
                assert np.array_equal(made.leading(network.check(X)), wanted.argmax(1))
assert build.kernels().library is not None, build.kernels().why_not
for seed in range(60):
    rng = np.random.default_rng(seed)
    draw = t.DRAWS[seed % len(t.DRAWS)]
    check(rng, random_network(rng), 5)
    check(rng, t.dense(rng, [int(rng.integers(1, 99)), int(rng.integers(1, 200)), 70, 3], draw), 65)
    check(rng, t.convolutional(rng, int(rng.integers(1, 70)), draw), 2)
    check(rng, t.of_few_weights(rng, 1 + seed % 8, t.few), int(rng.integers(1, 300)))
print("clean")
"""


@NEEDS_KERNELS
@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_sanitizers_find_nothing(tmp_path):
    command = ["gcc", "-print-file-name=libasan.so"]
    found = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    if not found.is_absolute():
        pytest.skip("gcc has no address sanitizer")
    script = SANITIZED.format(
        paths=[str(Path(__file__).parents[1]), str(Path(__file__).parent)], folder=str(tmp_path)
    )
    options = {"ASAN_OPTIONS": "detect_leaks=0", "LD_PRELOAD": str(found), "CC": "gcc"}
    run = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | options,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.stdout == "clean\n", run.stderr[-3000:]


@NEEDS_KERNELS
def test_after_a_fork_there_are_new_threads():
    rng = np.random.default_rng(4)
    network = dense(rng, [50, 100, 4], normal)
    X = random_samples(rng, network.inputs, 600)
    made, wanted = KernelNetwork.of(network, 2), network.scores(X)
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
def test_models_are_copied_and_shared():
    rng = np.random.default_rng(3)
    network = dense(rng, [50, 100, 60, 4], normal)
    X = random_samples(rng, network.inputs, 500)
    model, wanted = IntegerModel(network, threads=2), network.scores(X)
    assert np.array_equal(model.native.scores(X), wanted)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).native.scores(X), wanted)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(model.native.scores(X))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(np.array_equal(scores, wanted) for scores in found)
