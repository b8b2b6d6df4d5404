"""``compress``, ``export``, ``bench inference`` and what else a model of integers can do."""

import json
from dataclasses import replace

import numpy as np
import pytest

from zeroone import IntegerModel, load
from zeroone.data.registry import REGISTRY


@pytest.fixture
def run(command, tmp_path):
    """A small network on digits, in the folder run."""
    words = ["--hidden", "20,15", "--epochs", "10", "--quiet", "--threads", "1", "--out", "run"]
    assert command("train", "--data", "digits", *words)[0] == 0
    return tmp_path / "run"


def test_compress_evaluate_predict(command, run, tmp_path):
    code, out, _ = command(
        "compress", "run", "--out", "small.safetensors", "--data", "digits", "--json", "c.json"
    )
    assert code == 0
    record = json.loads((tmp_path / "c.json").read_text())
    before, after = record["result"]["bytes"]
    assert f"{after:,} bytes, {before / after:.1f} times smaller than {before:,}" in out
    assert "64-20-15-10 became" in out
    assert record["result"]["agree"] > 0.9
    model = load("small.safetensors")
    assert isinstance(model, IntegerModel)
    error = record["result"]["errors"][1]
    _, out, _ = command("evaluate", "small.safetensors", "--data", "digits", "--json", "e.json")
    assert out.startswith(f"test error {100 * error:.2f}% of 360 samples\ntop-5 error ")
    assert json.loads((tmp_path / "e.json").read_text())["result"]["bytes"] == model.network.n_bytes
    X = np.random.default_rng(0).uniform(0, 16, (7, 64))
    np.savez(tmp_path / "new.npz", X=X)
    _, out, _ = command("predict", "small.safetensors", "--data", "new.npz", "--json", "p.json")
    assert out.split() == [str(label) for label in model.predict(X)]
    answers = json.loads((tmp_path / "p.json").read_text())
    assert np.sum(answers["probabilities"], axis=1) == pytest.approx(1, abs=1e-5)


def test_smaller_in_float(command, run):
    code, out, _ = command(
        "compress", "run", "--to", "float", "--out", "s.safetensors", "--data", "digits"
    )
    assert code == 0
    assert "100.00% of the answers agree" in out
    code, _, err = command("evaluate", "s.safetensors", "--data", "digits", "--noise", "0,1")
    assert code == 0
    assert "2 levels of noise on 360 samples" in err


@pytest.mark.parametrize("source", ["run", "small.safetensors"])
def test_exports(command, run, tmp_path, source):
    command("compress", "run", "--out", "small.safetensors")
    for to, said in (("onnx", "opset 17"), ("c", "RAM"), ("html", "open it in a browser")):
        code, out, _ = command("export", source, "--to", to, "--out", f"digits.{to}")
        assert code == 0
        assert said in out
        assert (tmp_path / f"digits.{to}").is_file()
    assert "#define DIGITS_INPUTS 64" in (tmp_path / "digits.h").read_text()


def test_the_page_names_classes(command, run, tmp_path, monkeypatch):
    digits = REGISTRY["digits"].load()
    names = tuple(f"digit {k}" for k in range(10))
    named = replace(digits, class_names=names)
    monkeypatch.setattr(type(REGISTRY["digits"]), "load", lambda *_: named)
    page = tmp_path / "digits.html"
    command("export", "run", "--to", "html", "--out", "digits.html")
    assert "digit 7" not in page.read_text(encoding="utf-8")
    command("export", "run", "--to", "html", "--out", "digits.html", "--data", "digits")
    assert "digit 7" in page.read_text(encoding="utf-8")
    others = replace(named, y=np.array([f"class {k}" for k in digits.y]))
    monkeypatch.setattr(type(REGISTRY["digits"]), "load", lambda *_: others)
    command("export", "run", "--to", "html", "--out", "digits.html", "--data", "digits")
    assert "digit 7" not in page.read_text(encoding="utf-8")


BAD = {
    "ending": (("export", "run", "--to", "onnx", "--out", "a.c"), "is a .onnx file"),
    "kind": (("export", "run", "--to", "onx", "--out", "a.onnx"), "Did you mean 'onnx'?"),
    "name": (("export", "run", "--to", "c", "--out", "1.c"), "a name in C"),
    "image": (("export", "run", "--to", "html", "--out", "a.html", "--image", "8"), "1,28,28"),
    "pixels": (
        ("export", "run", "--to", "html", "--out", "a.html", "--image", "1,2,3"),
        "no image",
    ),
    "not for c": (("export", "run", "--to", "c", "--out", "a.c", "--image", "1,8,8"), "--to html"),
    "folder": (("export", "run", "--to", "c", "--out", "no/a.c"), "the folder no does not exist"),
    "model's ending": (("compress", "run", "--out", "a"), "should be a .safetensors file"),
    "no model": (("compress", "away", "--out", "a.safetensors"), "there is no model file"),
    "form": (("compress", "run", "--to", "int4", "--out", "a.safetensors"), "unknown form 'int4'"),
    "itself": (("compress", "run", "--out", "run/model.safetensors"), "is read by this command"),
    "twice": (("compress", "small.safetensors", "--out", "a.safetensors"), "integers already"),
    "data": (
        ("compress", "run", "--out", "a.safetensors", "--data", "breast-cancer"),
        "takes 64 features",
    ),
    "noise": (
        ("evaluate", "small.safetensors", "--data", "digits", "--noise", "1"),
        "not of integers",
    ),
    "threads": (("bench", "inference", "--threads", "0"), "threads must be"),
    "repeats": (("bench", "inference", "--repeats", "0"), "repeats must be"),
    "widths": (("bench", "inference", "--hidden", "a"), "widths such as 300,300"),
}


def test_wrong_input(command, run, tmp_path):
    command("compress", "run", "--out", "small.safetensors")
    before = sorted(path.name for path in tmp_path.iterdir())
    for case, (words, sentence) in BAD.items():
        code, _, err = command(*words)
        assert code == 2, case
        assert sentence in err, case
        assert err.count("\n") == 1, case
        assert sorted(path.name for path in tmp_path.iterdir()) == before, case


def test_a_body_is_not_shipped(command, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 255, (40, 12, 12)).astype(np.uint8), np.arange(40) % 2
    np.savez(tmp_path / "i.npz", X=X, y=y)
    words = ["--backbone", "tiny", "--pretraining-epochs", "1", "--hidden", "5", "--epochs", "1"]
    command("train", "--data", "i.npz", *words, "--quiet", "--out", "run")
    code, _, err = command("export", "run", "--to", "c", "--out", "a.c")
    assert code == 2
    assert "the backbone 'tiny' has real activations" in err


def test_bench_inference(command, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.bench_inference.BATCHES", (1, 3))
    monkeypatch.setattr("benchmarks.bench_inference.LEAST_SECONDS", 1e-4)
    words = ["--hidden", "9,8", "--repeats", "2", "--threads", "1", "--json", "speed.json"]
    code, out, _ = command("bench", "inference", *words)
    assert code == 0
    assert "times smaller" in out
    result = json.loads((tmp_path / "speed.json").read_text())["result"]
    assert [row["batch"] for row in result["rows"]] == [1, 3]
    for row in result["rows"]:
        assert len(row["seconds"]) == 5
        assert row["ratios"]["0/1 int8"]["median"] == 1
        ratio = row["ratios"]["ReLU float32, torch"]
        assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
