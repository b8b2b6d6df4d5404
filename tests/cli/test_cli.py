"""The command line: what a user types, sees and gets wrong."""

import io
import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from data_files import TINY_MNIST, write_idx
from zeroone import load
from zeroone.baselines.settings import BaselineSettings
from zeroone.commands import console, demo
from zeroone.commands.figures import plot_methods as plot
from zeroone.data.registry import REGISTRY

TINY = ["--hidden", "20", "--epochs", "2", "--quiet"]


def test_train_evaluate_predict(command, tmp_path):
    code, out, _ = command("train", "--data", "digits", *TINY, "--out", "run")
    assert code == 0
    assert "test error" in out
    error = json.loads((tmp_path / "run/record.json").read_text())["result"]["test_error"]
    code, out, _ = command("evaluate", "run", "--data", "digits")
    assert out.startswith(f"test error {100 * error:.2f}% of 360 samples\ntop-5 error ")
    np.savez(tmp_path / "new.npz", X=np.zeros((3, 64)))
    code, out, _ = command("predict", "run/model.safetensors", "--data", "new.npz")
    assert code == 0
    assert len(out.split()) == 3


def test_own_data_and_progress_lines(command, tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.array(["yes", "no"] * 20)
    np.savez(tmp_path / "own.npz", X=X, y=y)
    words = ["--hidden", "5", "--epochs", "3", "--seed", "4", "--out", "run"]
    code, _, err = command("train", "--data", "own.npz", *words)
    assert code == 0
    assert "training: epoch 3/3, loss " in err
    assert "bits flipped" in err
    network = load(tmp_path / "run/model.safetensors")
    assert set(network.predict(X)) <= {"yes", "no"}


def test_demo_compares_and_ships(command, tmp_path, monkeypatch):
    runs = {"paper's": {"solver": "exact", "max_iter": 2}, demo.SHIPPED: {"epochs": 9, "keep": 0.5}}
    monkeypatch.setattr(demo, "RUNS", runs)
    monkeypatch.setattr(demo, "BASELINES", {"ReLU": BaselineSettings("relu")})
    monkeypatch.setattr(demo, "HIDDEN", (16,))
    monkeypatch.setattr(demo, "FOLDS", 2)
    drawn = []
    monkeypatch.setattr(demo, "plot_methods", lambda *given: drawn.append(given) or plot(*given))
    code, out, err = command("demo", "--out", "here")
    assert code == 0
    assert "ReLU: 2 of 2" in err
    here = tmp_path / "here"
    table = out[: out.index("Shipped")]
    assert "64-16-10, 2-fold" in table
    rows = {line.split("│")[1].strip(): line for line in table.splitlines() if "│" in line}
    assert rows.keys() == {*runs, "ReLU"}
    errors = [100 * run["result"]["test_error"] for run in drawn[0][0]["ReLU"]]
    assert float(rows["ReLU"].split("│")[2].strip(" %")) == pytest.approx(sum(errors) / 2, abs=0.1)
    assert "8 " in rows[demo.SHIPPED]
    assert " of 899 labels of the first fold as in float32." in out
    assert (here / "digits.c").exists()
    assert "zeroone train" in out.splitlines()[-2]
    assert "<html" in (here / "draw.html").read_text(encoding="utf-8")
    assert (here / "demo.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert load(here / "digits.safetensors").n_features == 64
    again = command("demo", "--out", "again", "--quiet")[1]
    assert again[: again.index("Shipped")] == table


def test_data_list_get_show(command, tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROONE_DATA", str(tmp_path / "[cache]"))
    monkeypatch.setitem(REGISTRY, "mnist", replace(TINY_MNIST, npm=None, remotes=()))
    _, out, _ = command("data", "list", "--json", "list.json")
    assert "no: zeroone data get mnist" in out
    assert "digits" in out
    entries = {e["name"]: e for e in json.loads((tmp_path / "list.json").read_text())["data"]}
    assert entries["digits"] == {
        "name": "digits",
        "train": 1437,
        "test": 360,
        "shape": [1, 8, 8],
        "classes": 10,
        "there": True,
    }
    assert not entries["mnist"]["there"]
    (tmp_path / "mine").mkdir()
    write_idx(tmp_path / "mine", TINY_MNIST, packed=True)
    code, out, err = command("data", "get", "mnist", "--from", "mine", "--quiet")
    assert (code, err) == (0, "")
    assert out.startswith("mnist: 20 + 10 samples in ")
    code, out, _ = command("data", "show", "mnist", "--out", "sheet.png")
    assert code == 0
    assert out.splitlines()[1].split() == ["0", "2", "+", "1"]
    assert (tmp_path / "sheet.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "yes" in command("data", "list")[1]
    code, out, _ = command("train", "--data", "mnist", *TINY, "--validation", "0.5", "--out", "run")
    assert code == 0
    assert "validation error" in out


def test_report(command, tmp_path):
    assert command("train", "--data", "digits", *TINY, "--out", "run")[0] == 0
    code, out, _ = command("report", "run", "run")
    assert (code, out) == (0, "report: report.html\n")
    assert "<h2>Confusions</h2>" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_help_and_version(command):
    for words in (["--help"], ["train", "--help"], ["demo", "--help"], ["predict", "--help"]):
        code, out, _ = command(*words)
        assert code == 0
        assert "Usage" in out
    assert "Example: zeroone train" in command("train", "--help")[1]
    assert command("--version")[1].strip()


def test_the_installed_command_and_the_module_agree():
    installed = Path(sys.executable).with_name("zeroone")
    for words in ([sys.executable, "-m", "zeroone"], [installed]):
        done = subprocess.run([*words, "train"], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr == "zeroone: Missing option '--data'.\n"


def test_evaluate_in_noise(command):
    command("train", "--data", "digits", *TINY, "--out", "run")
    code, out, _ = command(
        "evaluate", "run", "--data", "digits", "--noise", "0,2", "--json", "e.json"
    )
    assert code == 0
    result = json.loads(Path("e.json").read_text())["result"]
    clean, noisy = result["noise"]["errors"]
    assert clean == result["error"] < noisy
    assert f"noise 2: error {100 * noisy:.2f}%" in out
    assert "20 active hidden units, 1,510 parameters" in out
    assert "1,280 multiply-adds and 200 additions" in out
    for levels, sentence in (("0,x", "--noise takes numbers"), ("-1", "every noise level must be")):
        code, _, err = command("evaluate", "run", "--data", "digits", f"--noise={levels}")
        assert code == 2
        assert sentence in err


def test_a_convnet_from_own_arrays(command):
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    X = rng.normal(size=(80, 8, 8))
    X[y == 1, 2:5] += 3
    np.savez("images.npz", X=X[:60], y=y[:60], X_test=X[60:], y_test=y[60:])
    hidden = "conv3x3:4:max2,6"
    words = (
        "--data",
        "images.npz",
        "--hidden",
        hidden,
        "--epochs",
        "20",
        "--quiet",
        "--out",
        "run",
    )
    assert command("train", *words)[0] == 0
    record = json.loads(Path("run/record.json").read_text())
    assert record["result"]["test_error"] < 0.2
    assert record["settings"]["hidden"] == ["conv3x3:4:max2", 6]
    assert record["network"] == ["conv3x3:4:max2", "6", "2"]
    _, out, _ = command("predict", "run", "--data", "images.npz")
    assert len(out.split()) == 60
    np.savez("rows.npz", X=X.reshape(80, 64), y=y)
    code, _, err = command("train", "--data", "rows.npz", "--hidden", hidden, "--out", "other")
    assert code == 2
    assert "a convolution needs images" in err
    assert not Path("other").exists()
    np.savez("unlike.npz", X=X, y=y, X_test=X[:, :7], y_test=y)
    code, _, err = command("train", "--data", "unlike.npz", "--hidden", "5", "--out", "other")
    assert code == 2
    assert "samples of X have shape (8, 8), of X_test (7, 8)" in err


def test_channels_come_first(command, tmp_path):
    np.savez(tmp_path / "last.npz", X=np.zeros((9, 20, 20, 3)), y=np.arange(9) % 3)
    code, _, err = command("train", "--data", "last.npz", "--out", "run")
    assert code == 2
    assert "seem to have their channels last" in err


@pytest.mark.parametrize("width", [80, 160])
def test_a_bar_fits_the_terminal(monkeypatch, width):
    """With what is done, the time that is left and the error."""
    shown = io.StringIO()

    def terminal(**_):
        return Console(file=shown, width=width, force_terminal=True, color_system=None)

    monkeypatch.setattr(console, "Console", terminal)
    with console.stages("pretraining", "training") as ((first,), _):
        first.on_start(0, 120)
        for k in range(1, 4):
            first.on_batch(k, 5, 10)
            time.sleep(0.01)
            entry = {"iteration": k, "loss": 0.5, "train_error": 0.1, "validation_error": 0.25}
            first.on_iteration(entry | {"flipped": [0.1, 0.2]}, None)
    last = [line for line in re.split(r"[\r\n]|\x1b\[[\d;?]*[A-Za-z]", shown.getvalue()) if line][
        -1
    ]
    assert len(last) <= width
    assert re.search(r"pretraining .* 3.0/120 +\d:\d\d:\d\d +validation 25.00%", last)


def test_labels_that_the_output_cannot_print_are_escaped(command, tmp_path, monkeypatch):
    rows = "".join(f"{k},{'wäßrig' if k % 2 else '水'}\n" for k in range(20))
    (tmp_path / "a.csv").write_text(rows, encoding="utf-8")
    code, *_ = command("train", "--data", "a.csv", "--out", "run", "--epochs", "1", "--quiet")
    assert code == 0
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii"))
    code, *_ = command("predict", "run", "--data", "a.csv", "--label", "column 2")
    sys.stdout.flush()
    assert code == 0
    assert set(printed.getvalue().decode().split()) <= {r"w\xe4\xdfrig", r"\u6c34"}
