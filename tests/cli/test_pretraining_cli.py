"""``zeroone train`` on a backbone."""

import json
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def bars(tmp_path):
    """Images of 20 x 20 bytes: a bright bar, of a thickness that tells the class."""
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 60, (120, 20, 20)), np.arange(120) % 3
    for image, kind in zip(X, y, strict=True):
        top = rng.integers(0, 14)
        image[top : top + 2 * kind + 1] += 150
    X = X.astype(np.uint8)
    np.savez(tmp_path / "bars.npz", X=X[:90], y=y[:90], X_test=X[90:], y_test=y[90:])
    return "bars.npz"


def test_pretraining(command, bars, tmp_path):
    words = ["--data", bars, "--hidden", "12", "--epochs", "2", "--out", "run"]
    code, out, err = command(
        "train",
        *words,
        "--pretraining-epochs",
        "3",
        "--pretraining-batch",
        "15",
        "--pretraining-rate",
        "2e-3",
    )
    assert code == 0
    assert "pretraining: epoch 3/3" in err
    assert "training: epoch 2/2" in err
    assert "pretraining" in out
    record = json.loads((tmp_path / "run/initial/record.json").read_text())
    assert (record["settings"]["batch"], record["settings"]["augment"]) == (15, "none")
    assert record["settings"]["rival"]["learning_rate"] == 2e-3
    assert record["settings"]["rival"]["body"] == "small"
    for model in ("run", "run/initial"):
        code, out, _ = command("evaluate", model, "--data", bars, "--noise", "0.1")
        assert code == 0
        assert "noise 0.1" in out
    code, out, _ = command("predict", "run", "--data", bars)
    assert len(out.split()) == 90


def test_without_pretraining_epochs_the_backbone_has_0_1_activations(command, bars, tmp_path):
    words = [
        "--hidden",
        "12",
        "--epochs",
        "1",
        "--pretraining-epochs",
        "0",
        "--quiet",
        "--out",
        "run",
    ]
    code, _, _ = command("train", "--data", bars, *words)
    assert code == 0
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["settings"]["hidden"] == ["conv3x3:32:max2", "conv3x3:64:max2", "conv3x3:64", 12]
    assert "initial" not in record


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--backbone", "small"], "a backbone needs --pretraining-epochs"),
        (["--pretraining-batch", "20"], "a backbone needs --pretraining-epochs"),
        (["--pretraining-epochs", "-1"], "--pretraining-epochs must be a whole number"),
        (
            ["--pretraining-epochs", "0", "--pretraining-batch", "20"],
            "need --pretraining-epochs above 0",
        ),
        (
            ["--pretraining-epochs", "1", "--backbone", "smal"],
            "unknown backbone 'smal'; choose from tiny, small",
        ),
        (["--pretraining-epochs", "1", "--pretraining-batch", "4"], "batch must be a whole number"),
        (
            ["--pretraining-epochs", "1", "--pretraining-batch", "400"],
            "larger than the 90 training",
        ),
        (
            ["--pretraining-epochs", "1", "--pretraining-rate", "0"],
            "learning_rate must be a positive",
        ),
        (["--pretraining-epochs", "1", "--augment", "spin"], "unknown augment 'spin'"),
        (
            ["--pretraining-epochs", "1", "--hidden", "conv3x3:4"],
            "the layers on a backbone are dense",
        ),
        (
            ["--pretraining-epochs", "0", "--backbone", "resnet18-3x3"],
            "unknown 0/1 backbone 'resnet18-3x3'",
        ),
        (["--hidden", "conv3x3:4:stream"], "layer 1 (conv3x3:4:stream): a stream begins at the"),
        (["--hidden", "conv3x3:4,conv3x3:4:stream"], "to (4, 16, 16): it needs the same sides"),
        (["--hidden", "conv3x3:4:stride2"], "never see 1 of its rows or columns"),
        (["--pretraining-epochs", "1", "--resume"], "holds no unfinished run"),
    ],
)
def test_pretraining_that_cannot_be(command, bars, words, sentence):
    code, out, err = command("train", "--data", bars, *words, "--out", "run")
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert not Path("run").exists()


def test_bodies_need_images(command):
    words = ["--data", "breast-cancer", "--out", "run"]
    code, _, err = command("train", *words, "--pretraining-epochs", "1")
    assert (code, "the backbone 'resnet18' needs images" in err) == (2, True)
    code, _, err = command("train", *words, "--augment", "crop-flip")
    assert (code, "augment='crop-flip' is for images, these are not" in err) == (2, True)
