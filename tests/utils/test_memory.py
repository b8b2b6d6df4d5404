"""Too little memory gets one sentence, wherever it is noticed."""

import numpy as np
import pytest

from zeroone import TrainSettings, ZeroOneClassifier, train
from zeroone.nn.network import Network
from zeroone.utils.checks import InputError, enough_memory

X = np.arange(40.0).reshape(10, 4)
y = np.arange(10) % 2
ENOUGH = r"^there is not enough memory for a network of this size\.$"
RAISED = [
    MemoryError("Unable to allocate 7.28 TiB for an array"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 4 bytes"),
    RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"),
]


@pytest.fixture(params=RAISED, ids=["numpy", "torch", "gpu"])
def short(request, monkeypatch):
    def build(*_arguments, **_options):
        raise request.param

    monkeypatch.setattr(Network, "build", build)


def test_training_says_so(short):
    classifier = ZeroOneClassifier((5,))
    for call in (
        lambda: train(X, y, TrainSettings(hidden=(5,))),
        lambda: classifier.fit(X, y),
        lambda: classifier.partial_fit(X, y, classes=[0, 1]),
    ):
        with pytest.raises(InputError, match=ENOUGH):
            call()


def test_the_command_line_says_so(short, command):
    code, out, err = command("train", "--data", "digits", "--out", "run", "--quiet")
    assert (code, out) == (2, "")
    assert err == "zeroone: there is not enough memory for a network of this size.\n"


def test_other_errors_stay_as_they_are():
    with pytest.raises(RuntimeError, match="shapes differ"), enough_memory():
        raise RuntimeError("shapes differ")
