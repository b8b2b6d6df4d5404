"""A data set that one file adds is found by its name everywhere."""

import importlib.util
import json

import numpy as np
import pytest

from zeroone.data.load import load_data
from zeroone.data.registry import REGISTRY, DataSet, register_data_set
from zeroone.utils.checks import InputError

MOONS = '''
import numpy as np
from zeroone.data.registry import DataSet, register_data_set
from zeroone.data.splits import Split


class Moons(DataSet):
    """Two half circles."""

    name = "moons"

    def load(self, data_dir=None):
        y = np.arange(300) % 2
        angle = np.linspace(0, np.pi, 300)
        X = np.stack([np.cos(angle) + y, np.sin(angle) * (1 - 2 * y)], axis=1)
        return Split(self.name, X[:200], y[:200], X[200:], y[200:], feature_names=("a", "b"))


register_data_set(Moons())
'''


@pytest.fixture
def moons(tmp_path):
    """Import the file; the registry is as before after the test."""
    before = dict(REGISTRY)
    path = tmp_path / "moons.py"
    path.write_text(MOONS)
    spec = importlib.util.spec_from_file_location("moons", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    yield REGISTRY["moons"]
    REGISTRY.clear()
    REGISTRY.update(before)


def test_one_file_adds_a_data_set(moons, command, tmp_path):
    assert np.array_equal(load_data("moons").X, moons.load().X)
    assert command("data", "list", "--json", "list.json")[0] == 0
    entry = json.loads((tmp_path / "list.json").read_text())["data"][-1]
    assert entry == {
        "name": "moons",
        "train": 200,
        "test": 100,
        "shape": [2],
        "classes": 2,
        "there": True,
    }
    assert command("data", "get", "moons")[1] == "moons: 200 + 100 samples in memory\n"
    code, _, err = command("data", "get", "moons", "--from", "npm")
    assert (code, "moons needs no --from" in err) == (2, True)
    shown = command("data", "show", "moons")[1].split("\n")
    assert shown[0] == "moons: 200 samples of 2 features"
    words = ("train", "--data", "moons", "--hidden", "8", "--epochs", "2", "--quiet")
    assert command(*words, "--out", "run")[0] == 0
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["data"]["samples"] == {"train": 200, "test": 100}
    with pytest.raises(InputError, match="Did you mean 'moons'"):
        load_data("moon")


def test_a_name_is_given_once(moons):
    with pytest.raises(InputError, match="there is a data set 'moons' already"):
        register_data_set(moons)


def test_a_data_set_without_load_is_refused():
    class Nothing(DataSet):
        name = "nothing"

    with pytest.raises(TypeError, match="load"):
        Nothing()
