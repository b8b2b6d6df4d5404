"""Baselines learn in the same loop, from the same batches, and can be resumed."""

import math
from itertools import product

import pytest
import torch
from torch.nn import functional

from zeroone import TrainSettings
from zeroone.baselines.activations import ACTIVATIONS
from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import BaselineSettings
from zeroone.data.load import load_data
from zeroone.nn.operators import Convolution
from zeroone.nn.scaling import Scaling
from zeroone.training.baselines import AdamTrainer, train_baseline


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_baselines_learn_digits(activation):
    data = load_data("digits")
    settings = TrainSettings.from_options(hidden=(60, 40), epochs=25, batch=64)
    baseline = BaselineSettings(activation, learning_rate=3e-3)
    _, record = train_baseline(data.X, data.y, baseline, settings, test=data.test, name="digits")
    assert record["result"]["test_error"] < 0.09
    assert record["settings"]["rival"]["activation"] == activation
    assert record["result"]["active_units"] == [60, 40]
    assert record["result"]["parameters"] == 60 * 65 + 40 * 61 + 10 * 41
    assert len(record["history"]) == 26
    _, again = train_baseline(data.X, data.y, baseline, settings, test=data.test)
    assert again["history"][-1]["loss"] == record["history"][-1]["loss"]


def test_trained_scales_and_projections_move():
    data = load_data("digits")
    settings = TrainSettings.from_options(hidden=(20,), epochs=2, batch=64)
    for activation in ("ccnn", "pcnn"):
        model, _ = train_baseline(data.X, data.y, BaselineSettings(activation), settings)
        (trained,) = model.layers[0].activation.parameters()
        assert (trained != 1).all()


def test_one_step_of_adam():
    """By hand: the gradient of the smoothed cross entropy; Adam's first step is the rate's size."""
    X, y = torch.tensor([[1.0, -2.0]]), torch.tensor([1])
    settings = BaselineSettings(learning_rate=0.25, smoothing=0.3)
    model = FloatNetwork([2, 3], settings, Scaling.identity(2)).eval()
    torch.nn.init.zeros_(model.layers[0].linear.weight)
    torch.nn.init.zeros_(model.layers[0].linear.bias)
    trainer = AdamTrainer(model, settings, n_batches=4)
    losses = []
    for k in range(3):
        scores = trainer.update(X, y, torch.Generator())
        losses.append(float(trainer.head.losses(scores, y)))
        assert trainer.optimizer.param_groups[0]["lr"] == 0.25 * (1 - k / 4)
        if k == 0:  # softmax - target = 1/3 - (0.1, 0.8, 0.1): down, up, down by the rate
            expected = torch.tensor([-0.25, 0.25, -0.25])
            assert torch.allclose(model.layers[0].linear.bias, expected, atol=1e-4)
            gradient = model.layers[0].linear.bias.grad
            assert torch.allclose(gradient, torch.tensor([1 / 3 - 0.1, 1 / 3 - 0.8, 1 / 3 - 0.1]))
    assert losses[0] == pytest.approx(math.log(3))


def test_a_blow_up_in_the_last_update_is_seen():
    data = load_data("digits")
    settings = TrainSettings.from_options(hidden=(5,), epochs=1, batch=1437)
    _, record = train_baseline(data.X, data.y, BaselineSettings(learning_rate=1e38), settings)
    assert record["status"] == "diverged"
    assert record["reason"] == "the scores were no longer finite after epoch 1"


def test_noise_on_inputs_is_trained_with():
    data = load_data("digits")
    weights, records = [], []
    for noise in (0.0, 0.3, 0.3):
        few = {"hidden": (5,), "epochs": 1, "batch": 500, "input_noise": noise}
        settings = TrainSettings.from_options(**few)
        model, record = train_baseline(data.X, data.y, BaselineSettings(), settings)
        weights.append(model.operators[0].weight)
        records.append(record)
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(weights[1], weights[2])
    assert records[1]["settings"]["input_noise"] == 0.3


def test_batch_normalisation():
    data = load_data("digits")
    settings = TrainSettings.from_options(hidden=(60,), epochs=15, batch=64)
    baseline = BaselineSettings("ste", batch_norm=True, learning_rate=3e-3)
    _, record = train_baseline(data.X, data.y, baseline, settings, test=data.test)
    assert record["result"]["test_error"] < 0.08
    assert record["result"]["parameters"] == 60 * 65 + 10 * 61  # it folds into the weights


@pytest.mark.parametrize("activation", ["ste", "ccnn", "pcnn"])
def test_the_state_is_all_that_the_next_batch_depends_on(activation):
    rng = torch.Generator().manual_seed(0)
    X, y = torch.randn(50, 6, generator=rng), torch.arange(50) % 3
    settings = BaselineSettings(activation, batch_norm=True)

    def fresh(seed):
        torch.manual_seed(seed)
        model = FloatNetwork([6, 8, 3], settings, Scaling.identity(6)).eval()
        return AdamTrainer(model, settings, 20)

    whole = fresh(0)
    for k in range(20):
        if k == 11:
            state = {name: T.clone() for name, T in whole.state().items()}
        whole.update(X, y, rng)
    other = fresh(1)
    other.restore(state)
    for _ in range(11, 20):
        other.update(X, y, rng)
    assert torch.equal(whole.model.forward(X), other.model.forward(X))


def test_a_small_convnet_learns_and_shares_its_body():
    rng = torch.Generator().manual_seed(0)
    y = torch.arange(240) % 3
    images = 0.3 * torch.randn(240, 1, 18, 18, generator=rng)
    for k in range(3):  # a bright bar at a random height, of a thickness that tells the class
        for i in torch.nonzero(y == k)[:, 0]:
            top = int(torch.randint(0, 12, (1,), generator=rng))
            images[i, 0, top : top + 2 * k + 1] += 2
    settings = TrainSettings.from_options(hidden=(30,), epochs=6, batch=20)
    for activation in ("relu", "ste"):
        baseline = BaselineSettings(activation, backbone="small", smoothing=0.0)
        model, record = train_baseline(
            images.flatten(1), y, baseline, settings, image=tuple(images.shape[1:])
        )
        assert record["result"]["train_error"] < 0.1
        assert not any(getattr(m, "one_bit", False) for m in model.backbone.modules())


def test_convolutions_are_torch_s():
    torch.manual_seed(0)
    sizes = product((1, 2, 5), (1, 4), (1, 2, 3, 5), (1, 2, 4), (0, 1, 2))
    for height, width, kernel, stride, padding in sizes:
        if min(height, width) + 2 * padding < kernel:
            continue
        convolution = Convolution(3, 5, kernel, stride, padding)
        images = torch.randn(2, 3, height, width)
        expected = functional.conv2d(images, convolution.weight, convolution.bias, stride, padding)
        assert torch.allclose(convolution(images), expected, atol=1e-5)


def test_float64():
    rng = torch.Generator().manual_seed(0)
    X, y = torch.randn(60, 4, generator=rng), torch.arange(60) % 2
    settings = TrainSettings.from_options(hidden=(5,), epochs=1, batch=20, dtype="float64")
    for activation in ACTIVATIONS:
        model, _ = train_baseline(X, y, BaselineSettings(activation), settings)
        assert {p.dtype for p in model.parameters()} == {torch.float64}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"activation": "rellu"}, "unknown activation 'rellu'.*Did you mean 'relu'"),
        ({"backbone": "resnet"}, "unknown backbone 'resnet'.*Did you mean 'resnet18'"),
        ({"backbone_activation": "swish"}, "unknown backbone_activation 'swish'"),
        ({"learning_rate": 0}, "learning_rate must be a positive number"),
        ({"smoothing": 2}, "smoothing must lie between 0 and 1"),
    ],
)
def test_bad_settings(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        BaselineSettings(**options)
