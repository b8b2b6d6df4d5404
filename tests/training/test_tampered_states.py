"""States that someone changed and gave the right checksum: they resume, or one sentence says no."""

import random
import shutil

import pytest

from tampering import outcome, tampered
from zeroone import Callback, TrainSettings, train
from zeroone.baselines.settings import BaselineSettings
from zeroone.data.embedded import load_embedded
from zeroone.training.baselines import train_baseline
from zeroone.training.checkpoint import FILE, STATE_VERSION
from zeroone.training.trainers import as_bytes, from_bytes
from zeroone.utils.storage import STATE, read_tensors, write_tensors

STOCHASTIC = {"hidden": (6, 5), "epochs": 6, "batch": 20, "validation": 0.2}
KINDS = {
    "keep": STOCHASTIC | {"keep": 0.5},
    "patience": STOCHASTIC | {"patience": 3},
    "ternary": STOCHASTIC | {"weights": "ternary", "lam": 0.5},
    "convolution": STOCHASTIC | {"hidden": ("conv3x3:3:max2", 5)},
    "exact": {"solver": "exact", "hidden": (6,), "max_iter": 6, "validation": 0.2, "patience": 3},
    "baseline": {"hidden": (6,), "epochs": 6, "batch": 20},
}


class Interrupt(Callback):
    def on_iteration(self, entry, model):
        if entry["iteration"] == 5:
            raise KeyboardInterrupt


def run(kind, out, **more):
    digits, settings = load_embedded("digits"), TrainSettings.from_options(**KINDS[kind])
    data = {"image": (1, 8, 8), "out": out, **more}
    X, y = digits.X[:60], digits.y[:60]
    if kind == "baseline":
        return train_baseline(X, y, BaselineSettings("relu"), settings, **data)
    return train(X, y, settings, **data)


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """The folder of an interrupted run of each kind."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zeroone.training.checkpoint.INTERVAL", 0)
        for kind in KINDS:
            made[kind] = tmp_path_factory.mktemp(kind)
            with pytest.raises(KeyboardInterrupt):
                run(kind, made[kind], callbacks=[Interrupt()])
    return made


def tamper(path, rng):
    """Change a state's header or tensors, or what its bytes hold."""
    header, tensors = read_tensors(path, STATE, STATE_VERSION)
    bytes_of = [name for name in tensors if name.endswith((".optimizer", ".state"))]
    where = rng.choice(("header", "tensors", "bytes"))
    if where == "header":
        header = tampered(header, rng)
    elif where == "bytes" and bytes_of:
        name = rng.choice(bytes_of)
        tensors[name] = as_bytes(tampered(from_bytes(tensors[name]), rng))
    else:
        tensors = tampered(tensors, rng)
        tensors = {name: T for name, T in tensors.items() if hasattr(T, "dtype")}
    write_tensors(path, STATE, header, tensors)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_resumes_or_is_refused(kind, states, tmp_path, pytestconfig):
    n = 400 if pytestconfig.getoption("--thorough") else 50
    ends = {"done": 0, "refused": 0}
    for seed in range(n):
        out = tmp_path / str(seed)
        shutil.copytree(states[kind], out)
        tamper(out / FILE, random.Random(seed))
        ends[outcome(lambda out=out: run(kind, out, resume=True), seed)] += 1
    assert ends["done"] > 0
    assert ends["refused"] > n / 4
