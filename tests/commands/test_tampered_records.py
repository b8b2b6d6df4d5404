"""Records that someone changed: they are shown, or one sentence says why not."""

import json
import random
import shutil
from types import SimpleNamespace

import pytest

from bar_images import IMAGE, LAYERS, SMALL, bars, features_of
from tampering import DEEP, outcome, tampered
from zeroone import TrainSettings, train
from zeroone.commands.console import print_results
from zeroone.commands.report import report
from zeroone.data.load import load_data
from zeroone.utils.checks import InputError
from zeroone.utils.records import read_record


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on few samples, the model of which is beside its record."""
    digits, out = load_data("digits"), tmp_path_factory.mktemp("run")
    settings = TrainSettings.from_options(hidden=(5, 4), epochs=3, validation=0.1)
    known = {"name": "digits", "test": (digits.test[0][:40], digits.test[1][:40])}
    train(digits.X[:90], digits.y[:90], settings, out=out, **known)
    return out


def written(record, path):
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "with a model"])
def test_a_record_is_shown_or_refused(run, tmp_path, pytestconfig, beside):
    """With its model, the data that the record names are looked for as well."""
    n = 3000 if pytestconfig.getoption("--thorough") else 150
    whole = json.loads((run / "record.json").read_text(encoding="utf-8"))
    if beside:
        shutil.copy(run / "model.safetensors", tmp_path)
    ends = {"done": 0, "refused": 0}
    for seed in range(n):
        path = written(tampered(whole, random.Random(seed)), tmp_path / "record.json")
        ends[outcome(lambda p=path: report((p,), out=tmp_path / "page.html"), seed)] += 1
        if outcome(lambda p=path: read_record(p), seed) == "done":
            print_results("title", {"run": read_record(path)})
    assert min(ends.values()) > n / 5


def test_json_that_is_nested_too_deeply_is_refused(tmp_path):
    path = tmp_path / "record.json"
    for text in (json.dumps(DEEP), "[" * 100_000, '{"schema": 1, "a": ' * 5000 + "1" + "}" * 5000):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match="is not a readable record"):
            read_record(path)


def test_the_record_of_a_backbone_is_used_or_refused(tmp_path):
    data = {"X": bars(60, 0)[0], "y": bars(60, 0)[1], "image": IMAGE}
    features_of(data, tmp_path)
    whole = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    ends = {"done": 0, "refused": 0}
    for seed in range(100):
        written(tampered(whole, random.Random(seed)), tmp_path / "record.json")
        again = SimpleNamespace()

        def use(made=again):
            made.summary = features_of(data, tmp_path, SMALL, LAYERS).summary

        ends[outcome(use, seed)] += 1
        if hasattr(again, "summary"):
            print_results("title", {"backbone": again.summary})
    assert min(ends.values()) > 10
