"""The state of a run on disk: killed at any moment, the run resumes bit for bit."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from zeroone import Callback, TrainSettings, load, train
from zeroone.data.load import load_data
from zeroone.training import checkpoint
from zeroone.training.checkpoint import FILE

SETTINGS = {"hidden": (30, 20), "epochs": 6, "batch": 100, "keep": 0.5, "validation": 0.1}

# A process that trains and kills itself: in batch N of the run, or half-way through writing the
# state of iteration N.
CHILD = """
import os, signal, sys
import torch
from zeroone import Callback, TrainSettings, train
from zeroone.data.load import load_data
import zeroone.utils.storage as storage

torch.set_num_threads(1)
out, where, moment, settings = sys.argv[1], sys.argv[2], int(sys.argv[3]), eval(sys.argv[4])

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Killer(Callback):
    seen = 0
    def on_batch(self, iteration, done, total):
        self.seen += 1
        if where == "batch" and self.seen == moment:
            die()

import zeroone.training.checkpoint as checkpoint
checkpoint.INTERVAL = 0
if where == "write":
    whole, calls = storage.save_file, []
    def half(tensors, path, metadata):
        calls.append(path)
        whole(tensors, path, metadata=metadata)
        if len(calls) == moment:
            content = open(path, "rb").read()
            open(path, "wb").write(content[: len(content) // 2])
            die()
    storage.save_file = half

data = load_data("digits")
train(data.X, data.y, TrainSettings.from_options(**settings), test=data.test,
      callbacks=[Killer()], out=out, resume=os.path.exists(os.path.join(out, "state.safetensors")))
"""


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


def killed(out, where, moment):
    command = [sys.executable, "-c", CHILD, str(out), where, str(moment), repr(SETTINGS)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def settings(**changes):
    return TrainSettings.from_options(**{**SETTINGS, **changes})


@pytest.fixture(scope="module")
def whole(digits, tmp_path_factory):
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("whole")
    train(digits.X, digits.y, settings(), test=digits.test, out=out)
    with pytest.raises(ValueError, match="holds a finished run: there is nothing to resume"):
        resume(digits, out)
    return out


def resume(digits, out, **changes):
    return train(digits.X, digits.y, settings(**changes), test=digits.test, out=out, resume=True)


@pytest.mark.parametrize(
    "deaths",
    [
        [("batch", 5)],  # in the first epoch
        [("batch", 37)],
        [("batch", 78)],  # the last batch of all
        [("write", 1)],  # before anything was kept
        [("write", 4)],
        [("write", 8)],  # the model itself, when all is done
        [("batch", 20), ("write", 3), ("batch", 12)],  # again and again
    ],
    ids=str,
)
def test_killed_and_resumed_gives_the_same_bits(digits, whole, tmp_path, deaths):
    for where, moment in deaths:
        killed(tmp_path, where, moment)
    if deaths == [("write", 1)]:
        with pytest.raises(ValueError, match="holds no unfinished run: there is nothing to resume"):
            resume(digits, tmp_path)
        train(digits.X, digits.y, settings(), test=digits.test, out=tmp_path)
    else:
        assert not (tmp_path / "model.safetensors").exists()
        record = resume(digits, tmp_path).record
        assert record["resumed"]
    name = "model.safetensors"
    assert (tmp_path / name).read_bytes() == (whole / name).read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", name, "record.json"]
    one, other = (json.loads((p / "record.json").read_text()) for p in (tmp_path, whole))
    for a, b in zip(one["history"], other["history"], strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


@pytest.fixture(autouse=True)
def _keep_every_state(monkeypatch):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)


class Interrupt(Callback):
    """Ctrl-C in the second epoch."""

    def on_batch(self, iteration, done, total):
        if iteration == 2:
            raise KeyboardInterrupt


def interrupted(digits, out, **changes):
    with pytest.raises(KeyboardInterrupt):
        train(
            digits.X,
            digits.y,
            settings(**changes),
            test=digits.test,
            callbacks=[Interrupt()],
            out=out,
        )


def test_noise_on_inputs_resumes_bit_for_bit(digits, tmp_path):
    noisy = {"input_noise": 0.2, "epochs": 3}
    expected = train(digits.X, digits.y, settings(**noisy), test=digits.test)
    interrupted(digits, tmp_path, **noisy)
    again = resume(digits, tmp_path, **noisy)
    for a, b in zip(expected.network.operators, again.network.operators, strict=True):
        assert torch.equal(a.weight, b.weight)


def test_the_exact_solver_resumes_too(digits, tmp_path):
    exact = TrainSettings.from_options(solver="exact", hidden=(20,), max_iter=4)
    expected = train(digits.X, digits.y, exact, out=tmp_path / "a")

    class AfterTwo(Callback):
        def on_iteration(self, entry, model):
            if entry["iteration"] == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(digits.X, digits.y, exact, callbacks=[AfterTwo()], out=tmp_path / "b")
    again = train(digits.X, digits.y, exact, out=tmp_path / "b", resume=True)
    assert again.record["resumed"] == [1]
    for a, b in zip(expected.network.operators, again.network.operators, strict=True):
        assert torch.equal(a.weight, b.weight)
    for a, b in zip(expected.record["history"], again.record["history"], strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


@pytest.mark.parametrize("hidden", [(1,), (6, 1), ("conv3x3:2:pad1", "conv3x3:2:pad1:stream")])
def test_states_of_layers_that_take_a_single_number_are_kept(digits, tmp_path, hidden):
    """Torch gives a vector of one number any stride, and then refuses to view it as bytes."""
    X, y = digits.X[:200], digits.y[:200]
    settings = TrainSettings.from_options(hidden=hidden, epochs=2, batch=50)
    run = train(X, y, settings, image=(1, 8, 8), out=tmp_path)
    assert torch.equal(load(tmp_path / "model.safetensors").scores(X), run.network.scores(X))


def test_a_resume_with_other_settings_or_data_is_refused(digits, tmp_path, monkeypatch):
    interrupted(digits, tmp_path)
    for name in ("zeroone", "torch"):  # a bug fix may change numbers
        with monkeypatch.context() as later:
            later.setitem(checkpoint.VERSIONS, name, "99.1")
            with pytest.raises(ValueError, match=rf"begun with {name}=.*, not '99.1': resume it"):
                resume(digits, tmp_path)
    cases = [
        (digits.X, digits.y, {"move": 0.3}, "begun with move=0.08, not 0.3"),
        (digits.X, digits.y, {"hidden": (30,)}, r"begun with hidden=\[30, 20\], not \[30\]"),
        (digits.X, digits.y, {"seed": 1}, "begun with seed=0, not 1"),
        (digits.X + 1, digits.y, {}, "begun on other data"),
        (digits.X, digits.y[::-1], {}, "begun on other data"),
    ]
    for X, y, changes, sentence in cases:
        with pytest.raises(ValueError, match=sentence) as error:
            train(X, y, settings(**changes), test=digits.test, out=tmp_path, resume=True)
        assert "\n" not in str(error.value)
    torch.set_num_threads(2)
    with pytest.raises(ValueError, match="begun with threads=1, not 2"):
        resume(digits, tmp_path)
    torch.set_num_threads(1)
    with pytest.raises(ValueError, match="begun on other data"):
        train(digits.X, digits.y, settings(), out=tmp_path, resume=True)
    with pytest.raises(ValueError, match="holds an unfinished run: continue it with --resume"):
        train(digits.X, digits.y, settings(), test=digits.test, out=tmp_path)
    with pytest.raises(ValueError, match="resume needs the folder"):
        train(digits.X, digits.y, settings(), resume=True)
    state = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(state[:-10])
    with pytest.raises(ValueError, match="truncated or not a safetensors file"):
        resume(digits, tmp_path)
    load_model = tmp_path / "model.safetensors"
    load_model.write_bytes(state)
    with pytest.raises(ValueError, match="not a zeroone model"):
        load(load_model)


def test_early_stopping_goes_back_to_the_best_weights(digits, tmp_path):
    changes = {"epochs": 60, "patience": 2, "hidden": (10,), "move": 0.5, "keep": None}
    run = train(digits.X, digits.y, settings(**changes))
    assert str(run.status) == "early"
    assert "came within patience=2" in run.reason
    history = run.record["history"]
    errors = [entry["validation_error"] for entry in history[1:]]
    assert len(errors) == int(np.argmin(errors)) + 1 + 2 < 60
    assert run.record["result"]["validation_error"] == min(errors)
    assert run.record["best_iteration"] == int(np.argmin(errors)) + 1
    assert run.record["objective"] == history[run.record["best_iteration"]]["loss"]
    interrupted(digits, tmp_path, **changes)
    again = resume(digits, tmp_path, **changes)
    for a, b in zip(run.network.operators, again.network.operators, strict=True):
        assert torch.equal(a.weight, b.weight)


def test_early_stopping_waits_until_the_units_have_left(digits):
    changes = {"epochs": 20, "patience": 1, "hidden": (20,), "keep": 0.5}
    run = train(digits.X, digits.y, settings(**changes))
    assert run.record["result"]["active_units"] == [10]
    assert run.n_iter > 12


def test_a_new_run_clears_away_the_old_results(digits, tmp_path):
    train(digits.X, digits.y, settings(epochs=1), out=tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    wild = settings(epochs=2, head_step=1e30, head="hardmax")
    diverged = train(digits.X, digits.y, wild, out=tmp_path, overwrite=True)
    assert str(diverged.status) == "diverged"
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "record.json"]


def test_a_callback_may_stop_the_training(digits):
    class Enough(Callback):
        batches = 0

        def on_start(self, done, total):
            assert (done, total) == (0, 6)

        def on_batch(self, iteration, done, total):
            self.batches += 1

        def on_iteration(self, entry, model):
            return entry["iteration"] == 2

    enough = Enough()
    run = train(digits.X, digits.y, settings(), callbacks=[enough])
    assert (str(run.status), run.n_iter, enough.batches) == ("stopped", 2, 26)


BITS = {"hidden": ("30:bits2", "20:bits3"), "momentum": 0.9}


@pytest.mark.parametrize(
    "changes", [{"weights": "ternary"}, {"weights": "binary"}, BITS, BITS | {"bf16": True}], ids=str
)
def test_other_weights_and_layers_go_on_to_the_same_bits(digits, tmp_path, monkeypatch, changes):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)

    class Interrupt(Callback):
        def on_iteration(self, entry, model):
            if entry["iteration"] == 4:
                raise KeyboardInterrupt

    whole, cut, few = tmp_path / "whole", tmp_path / "cut", settings(**changes)
    train(digits.X, digits.y, few, test=digits.test, out=whole)
    with pytest.raises(KeyboardInterrupt):
        train(digits.X, digits.y, few, test=digits.test, out=cut, callbacks=[Interrupt()])
    resume(digits, cut, **changes)
    models = [(folder / "model.safetensors").read_bytes() for folder in (whole, cut)]
    assert models[0] == models[1]
