"""Training on another device than the CPU: a disguised one stands for a GPU."""

import numpy as np
import pytest
import torch

from elsewhere import DEVICE, Elsewhere
from zeroone import Callback, TrainSettings, ZeroOneClassifier, train
from zeroone.data.load import load_data
from zeroone.pretraining import PretrainingSettings, train_on_backbone
from zeroone.utils.checks import InputError
from zeroone.utils.device import find_device


class Look(Callback):
    """Where the network is while it is trained; may stop the run by an error."""

    def __init__(self, fail_at=None):
        self.devices, self.fail_at = set(), fail_at

    def on_iteration(self, entry, model):
        self.devices.add(model.device)
        if entry["iteration"] == self.fail_at:
            raise KeyboardInterrupt


def trained(options, **arguments):
    digits = load_data("digits")
    settings = TrainSettings.from_options(**options)
    arguments = {"test": (digits.X_test, digits.y_test), "image": (1, 8, 8)} | arguments
    return train(digits.X, digits.y, settings, **arguments)


@pytest.mark.parametrize(
    "options",
    [
        {"hidden": (32, 16), "epochs": 4, "validation": 0.2, "patience": 1},
        {"hidden": (32, 16), "epochs": 3, "keep": 0.5},
        {"hidden": (32, 16), "epochs": 3, "lam": 0.3, "weights": "ternary"},
        {"hidden": (32, 16), "epochs": 2, "u_rule": "drawn"},
        {"hidden": ("conv3x3:4:pad1:max2", "conv3x3:4:pad1:stream", 16), "epochs": 2},
        {"hidden": (16, 8), "solver": "exact", "max_iter": 2, "head": "hardmax"},
        {"hidden": ("conv3x3:4:pad1:max2", 8), "solver": "exact", "max_iter": 2},
    ],
    ids=lambda options: "-".join(f"{name}={value}" for name, value in options.items()),
)
def test_the_same_numbers_elsewhere(options):
    """All of the training is there, and what comes out is here, and the same to the bit."""
    here, look = trained(options), Look()
    with Elsewhere():
        there = trained(options | {"device": str(DEVICE)}, callbacks=[look])
    assert look.devices == {DEVICE}
    assert there.network.device == torch.device("cpu")
    for one, other in zip(here.network.operators, there.network.operators, strict=True):
        assert torch.equal(one.weight, other.weight)
    assert (here.record["device"], there.record["device"]) == ("cpu", str(DEVICE))


def test_weights_and_a_trained_start_elsewhere():
    heavy = np.linspace(0.5, 2, len(load_data("digits").y))
    options = {"hidden": (16,), "epochs": 3, "lam": 0.5}
    here = trained(options, sample_weight=heavy)
    further = trained(options, start=here.network)
    with Elsewhere():
        far = options | {"device": str(DEVICE)}
        there = trained(far, sample_weight=heavy)
        further_there = trained(far, start=there.network)
    for one, other in ((here, there), (further, further_there)):
        assert torch.equal(one.network.operators[0].weight, other.network.operators[0].weight)


@pytest.mark.parametrize("solver", ["stochastic", "exact"])
def test_a_run_may_go_on_elsewhere(solver, tmp_path):
    """The state of a run is the same wherever it is trained."""
    lengths = {"epochs": 4, "keep": 0.5} if solver == "stochastic" else {"max_iter": 4}
    options = {"hidden": (16,), "solver": solver} | lengths
    whole = trained(options)
    with pytest.raises(KeyboardInterrupt):
        trained(options, out=tmp_path, callbacks=[Look(fail_at=3)])
    with Elsewhere():
        rest = trained(options | {"device": str(DEVICE)}, out=tmp_path, resume=True)
    assert torch.equal(whole.network.operators[0].weight, rest.network.operators[0].weight)


def test_a_network_elsewhere_predicts():
    digits = load_data("digits")
    network = trained({"hidden": (16,), "epochs": 1}).network
    wanted = network.predict(digits.X_test)
    with Elsewhere():
        assert np.array_equal(network.to(DEVICE).predict(digits.X_test), wanted)
        assert network.predict_proba(digits.X_test[:3]).shape == (3, 10)


@pytest.mark.parametrize(
    ("name", "sentence"), [("nowhere", "unknown device 'nowhere'"), ("cuda:99", "no device 'cuda")]
)
def test_devices_that_are_not_there(name, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        find_device(name)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=sentence):
        ZeroOneClassifier(device=name).fit(np.eye(8), np.arange(8) % 2)


def test_a_device_may_be_given_as_torch_has_it():
    settings = TrainSettings(device=torch.device("cpu"))
    assert settings.device == "cpu"
    assert "device" not in settings.describe() | settings.flat()
    with pytest.raises(InputError, match="no device 'meta'"):  # outside its disguise
        find_device("meta")


def test_the_command_takes_a_device(command):
    code, _, error = command("train", "--data", "digits", "--device", "nowhere", "--out", "run")
    assert code == 2
    assert "unknown device 'nowhere'" in error


@pytest.fixture
def swapping():
    """A module's parameters become other objects on another device, as the disguise needs it."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.usefixtures("swapping")
def test_pretraining_elsewhere(tmp_path):
    """Adam, the features and the layers on them."""
    digits = load_data("digits")
    runs = []
    for device in ("cpu", str(DEVICE)):
        settings = TrainSettings.from_options(hidden=(16,), epochs=1, device=device)
        arguments = {"test": digits.test, "image": digits.shape, "out": tmp_path / device}
        with Elsewhere():
            runs.append(
                train_on_backbone(
                    digits.X, digits.y, PretrainingSettings("tiny", 1), settings, **arguments
                )
            )
    here, there = runs
    for one, other in zip(here.network.operators, there.network.operators, strict=True):
        assert torch.allclose(one.weight, other.weight, atol=1e-5)
    assert here.record["initial"]["result"] == there.record["initial"]["result"] | {
        "seconds": here.record["initial"]["result"]["seconds"]
    }
