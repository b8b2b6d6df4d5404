"""A training whose network fits into the flash of a device."""

import numpy as np
import pytest
import torch

from zeroone import TrainSettings, ZeroOneClassifier, quantise, train
from zeroone.data.load import load_data
from zeroone.deploy.exporters.c import size_of
from zeroone.training.flash import flash_of
from zeroone.training.training_data import TrainingData
from zeroone.utils.checks import InputError

DIGITS = load_data("digits")
X, Y = DIGITS.X[:300].astype(np.uint8), DIGITS.y[:300]


def run_of(X=X, **options):
    settings = TrainSettings.from_options(**{"hidden": (40, 30), "epochs": 20} | options)
    return train(X, Y, settings, image=(1, 8, 8), scores=False)


@pytest.mark.parametrize(
    ("hidden", "more", "budget"),
    [
        ((40, 30), {}, 3000),
        ((40, 30), {}, "3k"),
        ((40, 30), {"weights": "ternary"}, 2000),
        ((40, 30), {"weights": "binary"}, 1600),
        (("conv3x3:9:pad1:max2", 20), {}, 3500),
        (("conv3x3:9:pad1:bits2:max2", "20:bits2"), {}, 3500),
        (("conv3x3:9:max2", "conv2x2:8", 20), {"weights": "binary"}, 2500),
    ],
)
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_the_budget_is_met_and_used(hidden, more, budget, kind):
    """The widest layer with one more unit would not fit."""
    budget = budget if kind is np.uint8 else 2 * 3500
    run = run_of(X.astype(kind), hidden=hidden, flash=budget, **more)
    stochastic = run.record["settings"]["stochastic"]
    limit, keep = stochastic["flash"], stochastic["keep"]
    assert limit == (3072 if budget == "3k" else budget)
    assert size_of(quantise(run.network)).flash <= limit
    if keep is not None:
        settings = TrainSettings.from_options(hidden=hidden, **more)
        task = TrainingData.prepare(X.astype(kind), Y, settings, image=(1, 8, 8))
        widest = max(plan.units for plan in settings.plans)
        assert flash_of(task, task.scaling, keep) <= limit
        assert flash_of(task, task.scaling, keep + 1 / widest) > limit


def test_it_is_a_training_with_that_keep():
    budgeted = run_of(flash=3000)
    keep = budgeted.record["settings"]["stochastic"]["keep"]
    assert keep < 1
    by_hand = run_of(keep=keep)
    for mine, theirs in zip(budgeted.network.operators, by_hand.network.operators, strict=True):
        assert torch.equal(mine.weight, theirs.weight)


def test_a_large_budget_changes_nothing():
    for more in ({}, {"keep": 0.5}):
        roomy, free = run_of(flash="1M", **more), run_of(**more)
        for mine, theirs in zip(roomy.network.operators, free.network.operators, strict=True):
            assert torch.equal(mine.weight, theirs.weight)
    tight = run_of(flash=3000, keep=0.9)
    assert tight.record["settings"]["stochastic"]["keep"] < 0.9


def test_what_cannot_be_met_is_refused_before_the_training():
    with pytest.raises(InputError, match=r"at least 7.. bytes of flash, more than 500") as said:
        run_of(flash=500)
    least = int(str(said.value).split("at least ")[1].split()[0].replace(",", ""))
    assert size_of(quantise(run_of(flash=least).network)).flash <= least
    for wrong in ("64q", 0, -5, True, "", 1.5, "k"):
        with pytest.raises(InputError, match="flash must be a number of bytes such as"):
            TrainSettings.from_options(flash=wrong)
    with pytest.raises(InputError, match="either lam or flash"):
        TrainSettings.from_options(flash="4k", lam=0.1)
    with pytest.raises(InputError, match="flash is a setting of solver='stochastic'"):
        TrainSettings.from_options(solver="exact", flash="4k")
    pieces = ZeroOneClassifier((9,), options={"flash": "4k"})
    with pytest.raises(InputError, match="learning in pieces removes no units"):
        pieces.partial_fit(X, Y, classes=np.unique(Y))


def test_by_the_classifier_and_the_command(command):
    clf = ZeroOneClassifier((40, 30), options={"flash": "3k"}, epochs=10).fit(X, Y)
    assert sum(clf.n_active_) < 60
    clf.partial_fit(X, Y)
    warm = ZeroOneClassifier((40, 30), options={"flash": "3k"}, epochs=5, warm_start=True)
    units = warm.fit(X, Y).n_active_
    assert warm.fit(DIGITS.X.astype(np.uint8), DIGITS.y).n_active_ <= units
    assert size_of(quantise(warm.network_)).flash <= 3072
    words = ["--hidden", "40,30", "--epochs", "20", "--quiet", "--out", "run", "--data", "digits"]
    code, out, _ = command("train", *words, "--flash", "4k")
    assert code == 0
    found = int(out.split("C export: about ")[1].split()[0].replace(",", ""))
    assert found <= 4096
    assert out.endswith(f"C export: about {found:,} of 4,096 bytes of flash\n")
    _, out, _ = command("export", "run", "--to", "c", "--out", "a.c")
    assert f"flash about {found:,} bytes" in out
