"""The rivals: their activations, and that they learn in the same loop from the same batches."""

import pytest
import torch

from zeroone import TrainSettings
from zeroone.baselines.activations import ACTIVATIONS
from zeroone.baselines.adam import AdamRule, AdamSettings
from zeroone.baselines.train import train_rival
from zeroone.data.embedded import load_embedded
from zeroone.scaling import Scaling


def test_the_straight_through_estimator():
    u = torch.tensor([-1.5, -1.0, -0.1, 0.0, 0.1, 1.0, 1.5], requires_grad=True)
    v = ACTIVATIONS["step-ste"](u)
    assert v.tolist() == [0, 0, 0, 0, 1, 1, 1]
    (v * torch.arange(1.0, 8.0)).sum().backward()
    assert u.grad.tolist() == [0, 2, 3, 4, 5, 6, 0]


@pytest.mark.parametrize(
    ("rival", "error"),
    [
        ({"activation": "relu"}, 0.08),
        ({"activation": "step-ste", "learning_rate": 3e-3}, 0.08),
        ({"activation": "step-ste", "batch_norm": True, "learning_rate": 3e-3}, 0.08),
    ],
)
def test_rivals_learn_digits(rival, error):
    data = load_embedded("digits")
    settings = TrainSettings.from_options(hidden=(60,), epochs=20, batch=64)
    model, record = train_rival(
        data.X, data.y, AdamSettings(**rival), settings, test=data.test, name="digits"
    )
    assert record["result"]["test_error"] < error
    assert record["settings"]["rival"]["activation"] == rival["activation"]
    assert record["result"]["active_units"] == [60]
    assert record["result"]["parameters"] == sum(p.numel() for p in model.parameters())
    assert len(record["history"]) == 21
    _, again = train_rival(data.X, data.y, AdamSettings(**rival), settings, test=data.test)
    assert again["history"][-1]["loss"] == record["history"][-1]["loss"]


def test_the_state_is_all_that_the_next_batch_depends_on():
    rng = torch.Generator().manual_seed(0)
    X, y = torch.randn(50, 6, generator=rng), torch.arange(50) % 3
    settings = AdamSettings("step-ste", batch_norm=True)

    def fresh(seed):
        return AdamRule.fresh([6, 8, 3], settings, Scaling.identity(6), 20, seed)

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


def test_bad_settings():
    with pytest.raises(ValueError, match="unknown activation 'rellu'"):
        AdamSettings("rellu")
