"""One file adds a head, a baseline, a backbone or a pooling: by name, it works everywhere."""

import pytest
import torch
from torch import nn

from zeroone import TrainSettings, load, quantise, train
from zeroone.analysis.counts import counts
from zeroone.baselines import Activation, register_baseline
from zeroone.baselines.activations import OneBit
from zeroone.baselines.settings import BaselineSettings
from zeroone.data.load import load_data
from zeroone.exact.blocks import u_gap, u_step
from zeroone.nn import Head, Pool, register_backbone, register_head, register_pool
from zeroone.nn.functional import one_hot, step
from zeroone.nn.layers import LayerPlan
from zeroone.pretraining import PretrainingSettings, train_on_backbone
from zeroone.training.baselines import train_baseline
from zeroone.utils.checks import InputError

IMAGE = (1, 8, 8)


@pytest.fixture(autouse=True)
def _registered(registries):
    """Registers the parts below; ``registries`` forgets them after each test."""
    register_head(SquaredError)
    register_baseline("cube")(Cube)
    register_baseline("ternary-slope")(TernarySlope)
    register_backbone("single", least=6, bits=("conv3x3:6:pad1:max2",))(single)
    register_pool(MinPool)


class SquaredError(Head):
    """loss(u, y) = 1/2 ||u - y||^2."""

    kind = "squares"

    def losses(self, U, y):
        return (U - one_hot(y, U.shape[1], U.dtype)).square().sum(dim=1) / 2

    def training_losses(self, B, y, smoothing=0.0):
        return self.losses(B, y)

    def u_step(self, B, y, mu):
        return (one_hot(y, B.shape[1], B.dtype) + mu * B) / (1 + mu)

    def gap(self, U, B, y, mu):
        return (1 + mu) / 2 * (U - self.u_step(B, y, mu)).square().sum(dim=1)

    def probabilities(self, U):
        return U.softmax(dim=1)


class Cube(Activation):
    """u^3 in a window."""

    def forward(self, u):
        return u.clamp(-1, 1) ** 3


class TernarySlope(OneBit):
    """step(u), slope 2 next to the threshold and 1 beyond."""

    value = staticmethod(step)

    @staticmethod
    def slope(u):
        return 1.0 + (u.abs() < 0.5)


def single(channels, activation):
    return nn.Sequential(
        nn.Conv2d(channels, 6, 3, padding=1), activation(6), nn.MaxPool2d(2), nn.Flatten()
    )


class MinPool(Pool):
    """The smallest entry of each window."""

    kind = "min"

    def forward(self, U):
        return -nn.functional.max_pool2d(-U, self.size)

    def flip(self, W):
        least, first = W.min(dim=-1, keepdim=True)
        tiny = torch.finfo(W.dtype).tiny
        is_on = least > 0
        cost = torch.where(is_on, least**2, W.clamp_max(0).square().sum(dim=-1, keepdim=True))
        flipped = torch.where(is_on, W.scatter(-1, first, 0.0), W.clamp_min(tiny))
        return flipped, cost[..., 0]


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


@pytest.mark.parametrize("solver", ["stochastic", "exact"])
def test_a_head_trains_by_both_solvers_and_comes_back_from_its_file(digits, tmp_path, solver):
    own = {"epochs": 10, "batch": 64} if solver == "stochastic" else {"max_iter": 3}
    settings = TrainSettings.from_options(hidden=(60,), head="squares", solver=solver, **own)
    run = train(digits.X, digits.y, settings, test=digits.test, out=tmp_path)
    assert run.record["result"]["test_error"] < (0.1 if solver == "stochastic" else 0.8)
    assert run.record["settings"]["head"] == "squares"
    again = load(tmp_path / "model.safetensors")
    assert again.head.describe() == {"kind": "squares"}
    assert torch.equal(again.scores(digits.X_test), run.network.scores(digits.X_test))


def test_a_head_on_the_command_line(command, tmp_path):
    words = ("--data", "digits", "--hidden", "30", "--epochs", 2, "--out", tmp_path / "run")
    code, _, error = command("train", "--head", "squares", *words)
    assert code == 0, error
    assert load(tmp_path / "run/model.safetensors").head.kind == "squares"
    code, _, error = command("train", "--head", "circles", *words)
    assert code == 2
    assert "choose from hardmax, softmax, logistic, linear, squares" in error


@pytest.mark.parametrize(("name", "one_bit"), [("cube", False), ("ternary-slope", True)])
def test_a_baseline_trains_and_is_counted(digits, name, one_bit):
    settings = TrainSettings.from_options(hidden=("conv3x3:8:max2", 40), epochs=12, batch=64)
    baseline = BaselineSettings(name, learning_rate=3e-3)
    model, record = train_baseline(
        digits.X, digits.y, baseline, settings, test=digits.test, image=IMAGE
    )
    assert record["result"]["test_error"] < 0.2
    assert record["settings"]["rival"]["activation"] == name
    assert bool(counts(model)["operations"]["additions"]) == one_bit
    with pytest.raises(InputError, match=r"unknown activation 'cub'.* Did you mean 'cube'"):
        BaselineSettings("cub")


def test_a_backbone_is_pretrained_and_comes_back_from_its_file(digits, tmp_path):
    settings = TrainSettings.from_options(hidden=(40,), epochs=4, batch=64)
    data = {"test": digits.test, "image": IMAGE}
    initial = PretrainingSettings("single", epochs=3)
    run = train_on_backbone(digits.X, digits.y, initial, settings, out=tmp_path, **data)
    assert run.record["result"]["test_error"] < 0.15
    again = load(tmp_path / "model.safetensors")
    assert again.backbone.describe() == {"kind": "single", "image": [1, 8, 8]}
    assert torch.equal(again.scores(digits.X_test), run.network.scores(digits.X_test))
    with pytest.raises(InputError, match="needs images of 6 x 6 pixels or more"):
        train_on_backbone(
            digits.X, digits.y, initial, settings, out=tmp_path / "b", image=(4, 4, 4)
        )


def test_a_backbone_of_bits_on_the_command_line(command, tmp_path):
    words = ("--data", "digits", "--hidden", "30", "--epochs", 1, "--out", tmp_path / "run")
    code, _, error = command("train", "--backbone", "single", "--pretraining-epochs", 0, *words)
    assert code == 0, error
    first = load(tmp_path / "run/model.safetensors").layers[0]
    assert (first.operator.n_out, first.pool.kind) == (6, "max")


@pytest.mark.parametrize("solver", ["stochastic", "exact"])
def test_a_pooling_is_a_word_in_a_layer(digits, tmp_path, solver):
    own = {"epochs": 5, "batch": 64} if solver == "stochastic" else {"max_iter": 2}
    hidden = ("conv3x3:8:min2", 40)
    settings = TrainSettings.from_options(hidden=hidden, solver=solver, **own)
    run = train(digits.X, digits.y, settings, image=IMAGE, out=tmp_path)
    assert run.record["result"]["train_error"] < (0.15 if solver == "stochastic" else 0.95)
    again = load(tmp_path / "model.safetensors")
    assert str(LayerPlan.of(again.layers[0])) == "conv3x3:8:min2"
    assert torch.equal(again.scores(digits.X), run.network.scores(digits.X))
    with pytest.raises(InputError, match="layer 1: the pooling 'min' has no integer form"):
        quantise(run.network)
    with pytest.raises(InputError, match="there are max2, average2, min2, stride2"):
        TrainSettings(hidden=("conv3x3:8:mean2",))


def test_the_flip_of_a_pooling_is_all_that_its_u_block_needs(rng):
    B = torch.randn(200, 1, 2, 2, generator=rng, dtype=torch.float64)
    A = 0.5 + torch.randn(200, 1, 1, 1, generator=rng, dtype=torch.float64)
    pool = MinPool(2)
    U = u_step(A, B, 1.0, pool)
    assert float(u_gap(U, A, B, 1.0, pool).max()) < 1e-12
    assert bool((step(pool(U)) != step(pool(B))).any())
