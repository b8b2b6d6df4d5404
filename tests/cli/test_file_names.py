"""File names that no file can have, or that a terminal would obey."""

import numpy as np
import pytest

from zeroone import IntegerModel, quantise
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.network import Network

LONG = "x" * 300
TRAIN = ("train", "--data", "digits", "--hidden", "4", "--epochs", "1", "--quiet")


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--data", f"{LONG}.csv", "--out", "run"),
        ("train", "--data", LONG, "--out", "run"),
        (*TRAIN, "--out", LONG),
        (*TRAIN, "--out", "run", "--csv", LONG),
        ("evaluate", LONG, "--data", "digits"),
        ("evaluate", "m.safetensors", "--data", f"{LONG}.npz"),
        ("evaluate", "m.safetensors", "--data", "mnist", "--data-dir", LONG),
        ("predict", LONG, "--data", "a.npz"),
        ("predict", "m.safetensors", "--data", f"{LONG}.csv"),
        ("predict", "m.safetensors", "--data", "a.npz", "--json", LONG),
        ("report", LONG, "--out", "r.html"),
        ("report", ".", "--out", f"{LONG}.html"),
        ("compress", LONG, "--out", "a.safetensors"),
        ("compress", "m.safetensors", "--out", f"{LONG}.safetensors"),
        ("export", LONG, "--to", "c", "--out", "a.c"),
        ("export", "m.safetensors", "--to", "c", "--out", f"{LONG}.c"),
        ("data", "show", LONG),
        ("data", "get", "mnist", "--from", LONG),
        ("data", "shard", "digits", "--out", LONG),
        ("data", "list", "--json", LONG),
        ("matrix", f"{LONG}.toml", "--out", "m"),
        ("demo", "--out", LONG),
    ],
    ids=lambda words: " ".join(words).replace(LONG, "LONG"),
)
def test_names_of_more_than_255_bytes(words, command, tmp_path):
    Network.build((2,), [2], 2, SoftmaxCE()).save(tmp_path / "m.safetensors")
    np.savez(tmp_path / "a.npz", X=np.zeros((2, 2)))
    code, _, err = command(*words)
    assert code == 2
    assert err.startswith("zeroone: ")
    assert err.count("\n") == 1
    assert LONG[:200] in err


EVIL = "a\x1b]0;owned\x07\nb\x9b31m\u202e"
ESCAPED = r"a\x1b]0;owned\x07\nb\x9b31m\u202e"


@pytest.fixture
def evil_model(tmp_path):
    network = Network.build((2,), [2], 2, SoftmaxCE(), classes=[EVIL, f"{EVIL}2"])
    network.name_features([EVIL, "other"])
    network.save(tmp_path / "m.safetensors")
    IntegerModel(quantise(network, np.eye(2))).save(tmp_path / "i.safetensors")


@pytest.mark.usefixtures("evil_model")
@pytest.mark.parametrize("model", ["m.safetensors", "i.safetensors"])
def test_labels_and_names_do_not_control_the_terminal(model, command, tmp_path):
    np.savez(tmp_path / "a.npz", X=np.zeros((3, 2)), y=[EVIL, EVIL, "c"])
    np.savez(tmp_path / "b.npz", X=np.zeros((3, 2)), y=[0, 1, 2])
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / EVIL).mkdir()
    _, out, _ = command("predict", model, "--data", "a.npz")
    assert out.splitlines() == [ESCAPED] * 3
    said = [
        command("predict", model, "--data", "a.csv"),
        command("evaluate", model, "--data", "b.npz"),
        command("evaluate", EVIL, "--data", "b.npz"),
        command("data", "show", "a.npz"),
        command("export", "i.safetensors", "--to", "onnx", "--out", f"{EVIL}.onnx"),
        command("data", "show", EVIL),
    ]
    for _, out, err in said:
        assert "a\\x1b]0" in out + err
        assert not set("\x1b\x07\x9b\u202e") & set(out + err)
