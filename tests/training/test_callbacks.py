"""Callbacks that see the optimizer, change its settings and add to the history."""

import pytest
import torch
from sklearn.base import clone

from zeroone import Callback, CSVLogger, TrainSettings, ZeroOneClassifier, train
from zeroone.data.load import load_data
from zeroone.exact.solver import ExactBCD
from zeroone.optim import BCD

SETTINGS = {"hidden": (30, 20), "epochs": 5, "batch": 100}


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


def run(digits, *callbacks, options=SETTINGS, **more):
    settings = TrainSettings.from_options(**options)
    return train(digits.X, digits.y, settings, callbacks=callbacks, **more)


def weights(done):
    return torch.cat([op.weight.flatten() for op in done.network.operators])


class Change(Callback):
    """Change settings after an iteration; log one of them."""

    def __init__(self, after=2, move=0.01, window=0.3):
        self.after, self.move, self.window = after, move, window

    def on_iteration(self, entry, model):
        (group,) = self.optimizer.param_groups
        if entry["iteration"] == self.after:
            group["move"], self.optimizer.window = self.move, self.window
        entry["window"] = self.optimizer.window


class Interrupt(Callback):
    def __init__(self, at):
        self.at = at

    def on_batch(self, iteration, done, total):
        if iteration == self.at:
            raise KeyboardInterrupt


def test_a_changed_setting_has_its_effect(digits):
    done, plain = run(digits, Change()), run(digits)
    same, other = Change(move=0.08, window=1.0), Change(window=1.0)
    assert torch.equal(weights(run(digits, same)), weights(plain))
    variants = [weights(r) for r in (done, run(digits, other), plain)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert not torch.equal(variants[a], variants[b])
    moves = [[entry["move"] for entry in r.record["history"]] for r in (done, plain)]
    assert moves[0] == pytest.approx([0.08, 0.08 * 0.8, 0.08 * 0.6, 0.01 * 0.4, 0.01 * 0.2, 0])
    assert moves[1][:3] == moves[0][:3]
    assert moves[1][3] == pytest.approx(0.08 * 0.4)


def test_it_survives_in_the_state_of_a_run(digits, tmp_path, monkeypatch):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)
    whole = run(digits, Change(after=2))
    for at in (2, 3, 4):
        out = tmp_path / str(at)
        with pytest.raises(KeyboardInterrupt):
            run(digits, Change(after=2), Interrupt(at), out=out)
        resumed = run(digits, Change(after=2), out=out, resume=True)
        assert torch.equal(weights(resumed), weights(whole))
        windows = [entry.get("window") for entry in resumed.record["history"]]
        assert windows == [None, 1.0, 0.3, 0.3, 0.3, 0.3]


class Look(Callback):
    seen = None

    def on_start(self, done, total):
        self.seen = self.optimizer


@pytest.mark.parametrize(
    ("options", "kind"),
    [(SETTINGS, BCD), ({"solver": "exact", "hidden": (9,), "max_iter": 1}, ExactBCD)],
)
def test_every_solver_is_shown_while_it_runs(digits, options, kind):
    look = Look()
    run(digits, look, options=options)
    assert isinstance(look.seen, kind)
    assert look.optimizer is None
    stopped = Interrupt(1)
    with pytest.raises(KeyboardInterrupt):
        run(digits, stopped, options=options)
    assert stopped.optimizer is None


def test_callbacks_of_a_classifier_can_be_copied_after_fit(digits):
    classifier = ZeroOneClassifier((9,), epochs=3, callbacks=[Change()])
    classifier.fit(digits.X, digits.y)
    assert clone(classifier).callbacks[0].move == 0.01
    assert classifier.record_["history"][-1]["window"] == 0.3


class Add(Callback):
    def __init__(self, value):
        self.value = value

    def on_iteration(self, entry, model):
        entry["mine"] = self.value


def test_what_a_callback_adds_is_logged_and_kept(digits, tmp_path):
    done = run(digits, Add(0.25), CSVLogger(tmp_path / "log.csv"), out=tmp_path / "run")
    assert [entry.get("mine") for entry in done.record["history"]] == [None, *[0.25] * 5]
    header, *rows = (tmp_path / "log.csv").read_text().splitlines()
    assert {row.split(",")[header.split(",").index("mine")] for row in rows} == {"0.25"}
