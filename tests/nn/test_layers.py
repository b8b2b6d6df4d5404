"""Layers as users write them, pooling and its U block by brute force, convolutional networks."""

import itertools

import pytest
import torch

from zeroone import TrainSettings, load, train
from zeroone.analysis.counts import counts
from zeroone.exact.blocks import u_gap, u_step
from zeroone.nn.functional import step
from zeroone.nn.heads import SoftmaxCE, make_head
from zeroone.nn.layers import LayerPlan
from zeroone.nn.network import Network
from zeroone.nn.pooling import AvgPool, MaxPool, NoPool
from zeroone.optim.observer import thresholds_apart
from zeroone.training.stochastic_settings import StochasticSettings
from zeroone.training.trainers import BCDTrainer


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        (500, LayerPlan(500)),
        ("500", LayerPlan(500)),
        ("conv5x5:32", LayerPlan(32, 5)),
        ("conv3x3:16:stride2:pad1:max2", LayerPlan(16, 3, 2, 1, "max", 2)),
        ("conv1x1:8:average3", LayerPlan(8, 1, pool="average", window=3)),
        ("conv3x3:16:max2:stream:pad1", LayerPlan(16, 3, 1, 1, "max", 2, stream=True)),
        ("500:stream", LayerPlan(500, stream=True)),
    ],
)
def test_layers_are_read_and_written(text, plan):
    assert LayerPlan.parse(text) == plan
    assert LayerPlan.parse(str(plan)) == plan


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("conv5x3:32", "a layer is a number of units"),
        ("conv5x5", "a layer is a number of units"),
        ("dense:3", "a layer is a number of units"),
        ("conv5x5:32:min2", "unknown option 'min2' of the layer"),
        ("conv5x5:32:max0", "the number after max must be"),
        ("conv0x0:32", "a kernel's side must be"),
        ("conv3x3:8:stream2", "unknown option 'stream2' of the layer"),
        ("500:stream:stream", "unknown option 'stream' of the layer"),
        ("500:max2", "a dense layer has the options bits2 and stream only, got '500:max2'"),
        ("500:slip2", "unknown option 'slip2' of the layer '500:slip2'"),
        ("500:", "unknown option '' of the layer"),
        ("conv3x3:4:max2:average2", "the layer 'conv3x3:4:max2:average2' has a second pooling"),
        ("conv3x3:4:max2:max2", "has a second pooling"),
        ("conv3x3:4:stride2:pad1:stride1", "has stride twice"),
        ("conv5x5:0", "every hidden width must be"),
        (-3, "every hidden width must be"),
        (2.5, "every hidden width must be"),
    ],
)
def test_layers_that_cannot_be(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        LayerPlan.parse(text)


@pytest.mark.parametrize(
    ("shape", "hidden", "sentence"),
    [
        (
            (1, 8, 8),
            ["conv9x9:4"],
            r"layer 1 \(conv9x9:4\): a kernel of 9 x 9 .* larger .*\(1, 8, 8\)",
        ),
        ((1, 8, 8), ["conv5x5:4:max2", "conv3x3:4"], r"layer 2 \(conv3x3:4\): .*\(4, 2, 2\)"),
        ((1, 8, 8), ["conv7x7:4:max3"], r"layer 1 .*windows of 3 x 3 do not fit into \(4, 2, 2\)"),
        (
            (1, 9, 9),
            ["conv3x3:4:pad1", "conv2x2:4:stride2"],
            r"layer 2 \(conv2x2:4:stride2\): .* make \(4, 4, 4\) of \(4, 9, 9\) and never see 1 of",
        ),
        ((64,), ["conv3x3:4"], r"layer 1 .*takes images, not samples of shape \(64,\)"),
        ((1, 8, 8), [5, "conv3x3:4"], r"layer 2 .*takes images, not samples of shape \(5,\)"),
        (
            (1, 8, 8),
            ["conv1000000x1000000:4"],
            r"a kernel's side must be a whole number up to 10000",
        ),
        (
            (1, 8, 8),
            ["conv9000x9000:4000"],  # no memory would hold its weights
            r"layer 1 .*a kernel of 9000 x 9000 .* larger than its input \(1, 8, 8\)",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_named(shape, hidden, sentence):
    with pytest.raises(ValueError, match=sentence):
        Network.build(shape, [LayerPlan.parse(h) for h in hidden], 3, SoftmaxCE())


def test_a_window_that_does_not_fit_is_named_with_its_layer():
    with pytest.raises(ValueError, match=r"layer 1 .*: windows of 3 x 3 .*\(2, 2, 2\)"):
        Network.build((1, 4, 4), ["conv3x3:2:max3"], 2, SoftmaxCE())


def test_settings_keep_layers_as_they_were_written():
    hidden = (60, "conv3x3:8:pad1:stream:max2", "60:stream", "50")
    assert TrainSettings(hidden=hidden).hidden == (*hidden[:3], 50)
    with pytest.raises(ValueError, match=r"layer 1 \(60:stream\): a stream begins at the second"):
        TrainSettings(hidden=("60:stream",))


POOLS = [NoPool(), MaxPool(2), MaxPool(3), AvgPool(2)]


@pytest.mark.parametrize("pool", POOLS, ids=lambda p: f"{p.kind}{p.size}")
def test_pooling(pool, rng):
    U = torch.randn(3, 2, 7, 6, generator=rng, dtype=torch.float64)
    assert pool.forward(U).shape[1:] == pool.shape_out((2, 7, 6))


@pytest.mark.parametrize("pool", POOLS[1:], ids=lambda p: f"{p.kind}{p.size}")
def test_windows_and_back(pool, rng):
    U = torch.randn(3, 2, 7, 8, generator=rng)
    W = pool.windows(U)
    values = W.amax(-1) if pool.kind == "max" else W.mean(-1)
    assert torch.allclose(values, pool.forward(U))
    assert torch.equal(pool.unwindow(W, U), U)
    assert torch.equal(pool.windows(pool.unwindow(2 * W, U)), 2 * W)


@pytest.mark.parametrize("pool", [MaxPool(2), AvgPool(2)], ids=lambda p: p.kind)
@pytest.mark.parametrize("rho", [0.1, 1.0, 10.0])
def test_the_pooled_u_block_by_brute_force(pool, rho, rng):
    """No candidate on a fine grid, nor the step of each entry to its threshold, is better."""
    B = torch.randn(40, 1, 2, 2, generator=rng, dtype=torch.float64)
    A = 0.5 + torch.randn(40, 1, 1, 1, generator=rng, dtype=torch.float64)

    def value(U):
        misfit = (A - step(pool.forward(U))).square().sum(dim=(1, 2, 3))
        return misfit + rho * (U - B).square().sum(dim=(1, 2, 3))

    best = value(u_step(A, B, rho, pool))
    assert torch.allclose(
        u_gap(u_step(A, B, rho, pool), A, B, rho, pool),
        torch.zeros(40, 1, 1, 1, dtype=torch.float64),
        atol=1e-9,
    )
    grid = torch.linspace(-2, 2, 9, dtype=torch.float64)
    for point in itertools.product(grid.tolist(), repeat=4):
        U = torch.tensor(point, dtype=torch.float64).reshape(1, 1, 2, 2).expand_as(B)
        assert bool((best <= value(U) + 1e-9).all())
    for mask in itertools.product([0.0, 1.0], repeat=4):
        stay = torch.tensor(mask, dtype=torch.float64).reshape(1, 1, 2, 2)
        for shift in (-1e-6, 1e-6):
            assert bool((best <= value(B * stay + (1 - stay) * shift) + 1e-9).all())
    shifted = B - B.mean(dim=(2, 3), keepdim=True)
    for hair in (-1e-9, 1e-9):
        assert bool((best <= value(shifted + hair) + 1e-6).all())


def bars(n, rng):
    """Images of 10 x 10 with a bright bar, lying or standing, somewhere."""
    y = torch.arange(n) % 2
    X = 0.3 * torch.randn(n, 1, 10, 10, generator=rng)
    for i in range(n):
        at = int(torch.randint(0, 9, (1,), generator=rng))
        bar = X[i, 0, at : at + 2] if y[i] else X[i, 0, :, at : at + 2]
        bar += 2
    return X.flatten(1), y


CONVNET = ("conv3x3:6:max2", "conv3x3:8", 12)


@pytest.mark.parametrize("head", ["softmax", "hardmax"])
def test_a_0_1_convnet_learns(head, rng, tmp_path):
    X, y = bars(400, rng)
    settings = TrainSettings.from_options(hidden=CONVNET, head=head, epochs=8, batch=32)
    run = train(
        X[:300], y[:300], settings, test=(X[300:], y[300:]), image=(1, 10, 10), out=tmp_path
    )
    assert run.record["result"]["test_error"] < 0.05
    bits = run.network.bits(X[:5])
    assert [tuple(b.shape[1:]) for b in bits] == [(6, 4, 4), (8, 2, 2), (12,)]
    assert all(set(b.unique().tolist()) <= {0, 1} for b in bits)
    again = load(tmp_path / "model.safetensors")
    assert torch.equal(again.scores(X), run.network.scores(X))
    assert [str(LayerPlan.of(layer)) for layer in again.layers] == run.record["network"]


def test_a_pooled_layer_starts_balanced(rng):
    X, y = bars(200, rng)
    plans = [LayerPlan.parse(h) for h in CONVNET]
    network = Network.build((1, 10, 10), plans, 2, SoftmaxCE(), seed=3)
    before = float(network.hidden_bits(X)[0].mean())
    trainer = BCDTrainer(network, StochasticSettings(move=1e-12), 10)
    trainer.update(X, y, rng)
    network = trainer.model
    assert before > 0.7
    assert 0.3 < float(network.hidden_bits(X)[0].mean()) < 0.7
    pooled = network.layers[0].sums(X)
    off = pooled.mean(dim=(0, 2, 3)) / pooled.std(dim=(0, 2, 3))
    torch.testing.assert_close(off, -thresholds_apart(len(off)).to(off), atol=0.02, rtol=0)


@pytest.mark.parametrize("u_rule", ["expected", "drawn", "half"])
def test_every_u_rule_runs_on_a_convnet(u_rule, rng):
    X, y = bars(64, rng)
    settings = TrainSettings.from_options(hidden=CONVNET, u_rule=u_rule, epochs=1, batch=32)
    run = train(X, y, settings, image=(1, 10, 10))
    assert run.status == "completed"


@pytest.mark.parametrize(
    ("weights", "left"), [("real", [True, False, False]), ("binary", [True, True, True])]
)
def test_a_price_removes_input_channels_that_say_nothing(weights, left, rng):
    """And goes on after that: a channel that is gone costs nothing more. Two values have no 0."""
    X = torch.randn(200, 3, 6, 6, generator=rng)
    y = (X[:, 0].mean(dim=(1, 2)) > 0).long()
    X[:, 0] += 2 * y[:, None, None]
    options = {"hidden": ("conv3x3:6:max2", 12), "lam": 0.3, "epochs": 20, "batch": 25}
    options["weights"] = weights
    run = train(X.flatten(1), y, TrainSettings.from_options(**options), image=(3, 6, 6))
    kernels = run.network.operators[0].linear.reshape(-1, 3, 9)
    assert [bool(kernels[:, channel].any()) for channel in range(3)] == left
    assert run.record["result"]["train_error"] < 0.05


def test_removed_filters_disappear_from_both_sides(rng):
    X, y = bars(300, rng)
    settings = TrainSettings.from_options(hidden=CONVNET, keep=0.5, epochs=8, batch=32)
    run = train(X, y, settings, image=(1, 10, 10))
    assert run.record["result"]["active_units"] == [3, 4, 6]
    shapes = [tuple(op.weight.shape) for op in run.network.operators]
    assert shapes == [(3, 10), (4, 28), (6, 4 * 4 + 1), (2, 7)]
    assert run.record["result"]["train_error"] < 0.05


def test_counts_of_a_convnet():
    network = Network.build((1, 10, 10), [LayerPlan.parse(h) for h in CONVNET], 2, SoftmaxCE())
    assert counts(network) == {
        "active_units": [6, 8, 12],
        "active_inputs": 1,
        "parameters": 6 * 10 + 8 * 55 + 12 * 33 + 2 * 13,
        "operations": {
            "macs": 64 * 6 * 9,
            "additions": 4 * 8 * 54 + 12 * 32 + 2 * 12,
            "word_operations": 4 * 8 + 12 + 2,
        },
    }
    network.operators[1].weight[:, 9:18] = 0  # the second filter feeds nothing
    assert counts(network)["active_units"] == [5, 8, 12]
    assert make_head("softmax").kind == "softmax"


def test_convolutions_need_images(rng):
    X, y = bars(40, rng)
    settings = TrainSettings.from_options(hidden=CONVNET, epochs=1, batch=8)
    with pytest.raises(ValueError, match="a convolution needs images"):
        train(X, y, settings)
    with pytest.raises(
        ValueError, match=r"samples of 100 numbers are no images of shape \(1, 9, 9\)"
    ):
        train(X, y, settings, image=(1, 9, 9))


def test_a_convnet_goes_on_from_its_state(rng):
    """Filters removed on the way included."""
    X, y = bars(64, rng)
    settings = StochasticSettings(keep=0.5)

    def fresh(seed):
        plans = [LayerPlan.parse(h) for h in CONVNET]
        network = Network.build((1, 10, 10), plans, 2, SoftmaxCE(), seed=seed)
        return BCDTrainer(network, settings, 40)

    whole = fresh(0)
    for k in range(40):
        if k == 17:
            state = {name: T.clone() for name, T in whole.state().items()}
        whole.update(X, y, rng)
    other = fresh(1)
    other.restore(state)
    for _ in range(17, 40):
        other.update(X, y, rng)
    assert whole.model.operators[0].n_out == 3
    assert torch.equal(whole.model.scores(X), other.model.scores(X))
