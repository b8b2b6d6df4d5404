"""The command line: what a user types, sees and gets wrong."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from test_data_layouts import TINY_MNIST, write_idx
from zeroone import load
from zeroone.data.registry import REGISTRY
from zeroone.experiments import console

TINY = ["--hidden", "20", "--epochs", "2", "--quiet"]
EXACT = ["--solver", "exact", "--hidden", "20", "--max-iter", "2", "--quiet"]


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


def test_demo_writes_table_figure_records_models(command, tmp_path, monkeypatch):
    runs = {"one": {"epochs": 2}, "two": {"solver": "exact", "max_iter": 2, "lam": 0.1}}
    monkeypatch.setattr("zeroone.experiments.demo.RUNS", runs)
    rivals = {"ReLU + Adam": {"activation": "relu", "epochs": 2}}
    monkeypatch.setattr("zeroone.experiments.demo.RIVALS", rivals)
    code, out, _ = command("demo", "--out", "here", "--quiet")
    assert code == 0
    assert "active units" in out
    assert "ReLU + Adam" in out
    assert "zeroone train" in out.splitlines()[-2]
    page = (tmp_path / "here/report.html").read_text(encoding="utf-8")
    assert "here/relu-adam" in page
    assert json.loads((tmp_path / "here/relu-adam/record.json").read_text())["history"]
    assert (tmp_path / "here/training.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    for name in runs:
        assert load(tmp_path / "here" / name / "model.safetensors").n_features == 64
        assert json.loads((tmp_path / "here" / name / "record.json").read_text())["history"]


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


def test_reproduce_a_figure_that_needs_no_training(command, tmp_path):
    code, out, _ = command("reproduce", "fig-activations", "--page", "page.md")
    assert (code, out.splitlines()[-1]) == (0, "page: page.md")
    made = {path.name for path in (tmp_path / "zeroone-reproduce").iterdir()}
    assert made == {"fig-activations.png", "fig-activations.svg"}
    assert "(zeroone-reproduce/fig-activations.png)" in (tmp_path / "page.md").read_text()


def test_a_page_of_a_site_has_its_figures_beside_it(command, tmp_path):
    (tmp_path / "docs").mkdir()
    assert command("reproduce", "fig-prox", "--out", "out", "--page", "docs/page.md")[0] == 0
    page = (tmp_path / "docs/page.md").read_text()
    assert "![The U block: fig-prox](page-figures/fig-prox.png)" in page
    assert "`zeroone reproduce all --no-run --out out --page docs/page.md`" in page
    drawn = (tmp_path / "out/fig-prox.png").read_bytes()
    assert (tmp_path / "docs/page-figures/fig-prox.png").read_bytes() == drawn
    # A folder may be written as one pleases, and a page may have a name without a suffix.
    assert command("reproduce", "fig-prox", "--out", "docs/../out", "--page", "docs/name")[0] == 0
    assert "(name-figures/fig-prox.png)" in (tmp_path / "docs/name").read_text()
    assert command("reproduce", "fig-prox", "--out", "out", "--page", "docs/name")[0] == 0


def test_help_and_version(command):
    for words in (["--help"], ["train", "--help"], ["demo", "--help"], ["predict", "--help"]):
        code, out, _ = command(*words)
        assert code == 0
        assert "Usage" in out
    assert "Example: zeroone train" in command("train", "--help")[1]
    assert command("--version")[1].strip()


BAD = {
    "nan": (("train", "--data", "nan.npz", *TINY, "--out", "run"), "NaN or infinity"),
    "inf": (("train", "--data", "inf.npz", *TINY, "--out", "run"), "NaN or infinity"),
    "no samples": (("train", "--data", "none.npz", *TINY, "--out", "run"), "no samples"),
    "one class": (("train", "--data", "one.npz", *TINY, "--out", "run"), "one class only"),
    "lengths": (("train", "--data", "lengths.npz", *TINY, "--out", "run"), "5 rows but y has 4"),
    "pickle": (("train", "--data", "pickle.npz", *TINY, "--out", "run"), "holds Python objects"),
    "no X": (("train", "--data", "nox.npz", *TINY, "--out", "run"), "has no array 'X'"),
    "not npz": (("train", "--data", "text.npz", *TINY, "--out", "run"), "cannot be read as .npz"),
    "missing": (("train", "--data", "away.npz", *TINY, "--out", "run"), "there is no data file"),
    "name": (("train", "--data", "digit", *TINY, "--out", "run"), "unknown data 'digit'"),
    "width": (("train", "--data", "digits", "--hidden", "0", "--out", "run"), "hidden width"),
    "widths": (
        ("train", "--data", "digits", "--hidden", "a,b", "--out", "run"),
        "a layer is a number of units",
    ),
    "solver": (("train", "--data", "digits", "--solver", "x", "--out", "run"), "unknown solver"),
    "tau": (
        ("train", "--data", "digits", *EXACT, "--tau", "0", "--out", "run"),
        "tau must be a positive",
    ),
    "pi": (
        ("train", "--data", "digits", *EXACT, "--pi", "-1", "--out", "run"),
        "pi must be a positive",
    ),
    "gamma": (
        ("train", "--data", "digits", *EXACT, "--gamma", "0", "--out", "run"),
        "gamma must be",
    ),
    "lam": (("train", "--data", "digits", "--lam", "-1", "--out", "run"), "lam must be zero or"),
    "folder": (("train", "--data", "digits", *TINY, "--out", "text.npz/run"), "cannot make"),
    "many threads": (("demo", "--threads", "99999999999"), "threads must be a whole number up to"),
    "seed": (("demo", "--seed", "-1"), "seed must be a whole number of at least 0"),
    "deep": (("train", "--data", "one.npz", *TINY, "--out", "a/b/run"), "one class only"),
    "npy": (("train", "--data", "array.npz", *TINY, "--out", "run"), "cannot be read as .npz"),
    "diverged": (
        ("train", "--data", "digits", *EXACT, "--beta", "1e30", "--pgm-steps", "50", "--out", "."),
        "training diverged: F was no longer finite",
    ),
    "other solver": (
        ("train", "--data", "digits", "--tau", "1", "--out", "run"),
        "tau is a setting of solver='exact'",
    ),
    "move": (("train", "--data", "digits", "--move", "-2", "--out", "run"), "move"),
    "keep": (("train", "--data", "digits", "--keep", "0", "--out", "run"), "keep must be above 0"),
    "batch": (
        ("train", "--data", "digits", "--batch", "1438", "--out", "run"),
        "batch=1438 is larger than the 1437 training samples.",
    ),
    "resume": (("train", "--data", "digits", "--out", "run", "--resume"), "no unfinished run"),
    "no width": (
        ("train", "--data", "digits", "--hidden", "", "--out", "run"),
        "a layer is a number of units",
    ),
    "threads": (("demo", "--threads", "0"), "threads must be a whole number"),
    "not a number": (("train", "--data", "digits", "--tau", "x", "--out", "run"), "not a valid"),
    "no option": (("train", "--data", "digits"), "Missing option '--out'"),
    "data set": (("data", "get", "mnits"), "unknown data set 'mnits'"),
    "origin": (("data", "get", "mnist", "--from", "away"), "--from takes auto, url, npm"),
    "not there": (("data", "show", "cifar100"), "run 'zeroone data get cifar100' first"),
    "train without": (("train", "--data", "cifar10", "--out", "run"), "zeroone data get cifar10"),
    "no images": (("data", "show", "breast-cancer", "--out", "x.png"), "does not hold images"),
    "empty": (("data", "show", "none.npz"), "none has no samples"),
    "validation": (("train", "--data", "digits", "--validation", "2", "--out", "r"), "validation"),
    "command": (("tran",), "unknown command 'tran'; choose from"),
    "nearest command": (("data", "sho"), "Did you mean 'show'?"),
    "model": (("evaluate", "away", "--data", "digits"), "there is no model file"),
    "foreign model": (("evaluate", "text.npz", "--data", "digits"), "not a safetensors file"),
    "target": (("reproduce", "table3"), "unknown target 'table3'"),
    "protocol": (("reproduce", "table2", "--quick", "--only", "mnist"), "unknown protocol 'mnist'"),
    "target's data": (("reproduce", "table2", "--out", "new"), "zeroone data get cifar100"),
    "seeds": (("reproduce", "table2", "--quick", "--seeds", "0"), "seeds must be a whole number"),
    "page": (("reproduce", "fig-prox", "--page", "away/page.md"), "the folder away does not exist"),
    "report": (("report", "away"), "there is no record away"),
    "report's folder": (("report", ".", "--out", "away/r.html"), "the folder away does not exist"),
    "no run": (("report",), "Missing argument 'RUNS...'"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_input_is_one_sentence_and_exit_2(command, tmp_path, case):
    X, y = np.arange(10.0).reshape(5, 2), np.array([0, 1, 0, 1, 0])
    np.savez(tmp_path / "nan.npz", X=np.where(X == 3, np.nan, X), y=y)
    np.savez(tmp_path / "inf.npz", X=np.where(X == 3, np.inf, X), y=y)
    np.savez(tmp_path / "none.npz", X=X[:0], y=y[:0])
    np.savez(tmp_path / "one.npz", X=X, y=y * 0)
    np.savez(tmp_path / "lengths.npz", X=X, y=y[:4])
    np.savez(tmp_path / "pickle.npz", X=X.astype(object), y=y)
    np.savez(tmp_path / "nox.npz", y=y)
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "array.npy", X)
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    before = sorted(p.name for p in tmp_path.iterdir())
    words, sentence = BAD[case]
    code, out, err = command(*words)
    assert code == 2
    assert out == ""
    assert err.startswith("zeroone: ")
    assert sentence in err
    assert err.count("\n") == 1
    left = sorted(p.name for p in tmp_path.iterdir() if p.name != "record.json")
    assert left == before  # nothing half-written; a run that diverged keeps its record


def test_the_installed_command_and_the_module_agree():
    installed = Path(sys.executable).with_name("zeroone")
    for words in ([sys.executable, "-m", "zeroone"], [installed]):
        done = subprocess.run([*words, "train"], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr == "zeroone: Missing option '--data'.\n"


MATRIX = """
data = ["digits"]
architectures = ["f3nn:8"]
methods = ["relu", "wild"]
[train]
epochs = 1
[variants.wild]
method = "relu"
learning_rate = 1e30
"""


def test_a_matrix_and_its_failed_cells(command, tmp_path):
    Path("spec.toml").write_text(MATRIX)
    code, out, err = command("matrix", "spec.toml", "--out", "runs", "--json", "table.json")
    assert code == 1
    assert "ReLU" in out
    assert "2/2 digits" in err
    assert "failed: digits, f3nn:8, wild: the loss was no longer finite" in err
    assert "The same command with --only-failed runs them again." in err
    table = json.loads(Path("table.json").read_text())["table"]
    assert [row["n"] for row in table] == [1, 0]
    kept = Path("runs/digits/f3nn_8/relu/0.json")
    before = kept.stat().st_mtime_ns

    Path("spec.toml").write_text(MATRIX)
    code, _, err = command("matrix", "spec.toml", "--out", "runs", "--only-failed")
    assert code == 1
    assert "1/1 digits, f3nn:8, wild" in err
    code, _, err = command("matrix", "spec.toml", "--out", "runs")
    assert code == 1
    assert "1/" not in err  # nothing was missing
    assert kept.stat().st_mtime_ns == before


def test_ctrl_c_ends_a_matrix_with_one_sentence(tmp_path):
    """And all of its processes, which say nothing."""
    (tmp_path / "spec.toml").write_text(MATRIX.replace("epochs = 1", "epochs = 1000000"))
    words = [sys.executable, "-m", "zeroone", "matrix", "spec.toml", "--out", "runs"]
    run = subprocess.Popen(
        words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not (tmp_path / "runs/.lock").exists():
        time.sleep(0.05)
    time.sleep(1)
    os.killpg(run.pid, signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert err.strip() == (
        "zeroone: interrupted; the same command goes on, without the cells that are finished."
    )


def test_matrices_that_cannot_be(command):
    Path("spec.toml").write_text(MATRIX)
    for words, sentence in (
        (("spec.toml", "--out", "runs", "--json", "none/t.json"), "the folder none does not exist"),
        (("spec.toml", "--out", "runs", "--threads", "9999"), "threads must be a whole number up"),
        (("none.toml", "--out", "runs"), "cannot read none.toml"),
        (("spec.toml", "--out", "runs", "--jobs", "0"), "jobs must be a whole number"),
        (("spec.toml", "--out", "runs", "--threads", "0"), "threads must be a whole number"),
        (("spec.toml", "--out", "runs", "--seeds", "-1"), "seeds must be a whole number"),
    ):
        code, out, err = command("matrix", *words)
        assert (code, out) == (2, "")
        assert sentence in err
        assert not Path("runs").exists()
    Path("spec.toml").write_text(MATRIX.replace("f3nn:8", "convnet"))
    code, _, err = command("matrix", "spec.toml", "--out", "runs")
    assert code == 2
    assert "needs images of 18 x 18 pixels or more, these have 8 x 8" in err
    Path("spec.toml").write_text(MATRIX.replace("f3nn:8", "lenet"))
    code, _, err = command("matrix", "spec.toml", "--out", "runs")
    assert code == 2
    assert "layer 2 (conv5x5:64:max2): a kernel of 5 x 5" in err
    assert "larger than its input (32, 2, 2)" in err
    Path("spec.toml").write_text(MATRIX.replace("digits", "mnist"))
    code, _, err = command("matrix", "spec.toml", "--out", "runs")
    assert code == 2
    assert "zeroone data get mnist" in err


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


def test_a_matrix_of_own_images(command):
    """From a folder of images through a convolutional body; a changed folder is noticed."""
    rng = np.random.default_rng(0)
    for kind in "ab":
        Path("images", kind).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(0, 100, (18, 18), dtype=np.uint8) + np.uint8(150 * (kind == "b"))
            Image.fromarray(pixels).save(Path("images", kind, f"{i}.png"))
    spec = """
    data = ["images"]
    architectures = ["convnet:6"]
    methods = ["tanh"]
    noise = [0.1]
    train = {epochs = 2, validation = 0.25}
    """
    Path("spec.toml").write_text(spec)
    code, out, _ = command("matrix", "spec.toml", "--out", "runs", "--jobs", "1")
    assert code == 0
    assert "validation error in noise" in out
    record = json.loads(Path("runs/images/convnet_6/tanh/0.json").read_text())
    assert record["settings"]["rival"]["body"] == "small"
    assert record["result"]["noise"]["part"] == "validation"
    Image.new("L", (18, 18)).save("images/a/0.png")
    code, _, err = command("matrix", "spec.toml", "--out", "runs")
    assert code == 2
    assert "was made when images held other data" in err
    shutil.rmtree("images")
    code, out, _ = command("matrix", "spec.toml", "--out", "runs")
    assert code == 0
    assert "Tanh" in out


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
    assert [layer["kind"] for layer in record["network"]] == ["conv2d", "dense", "dense"]
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


def test_an_initial_process(command, bars, tmp_path):
    words = ["--data", bars, "--hidden", "12", "--epochs", "2", "--out", "run"]
    code, out, err = command(
        "train", *words, "--initial-epochs", "3", "--initial-batch", "15", "--initial-rate", "2e-3"
    )
    assert code == 0
    assert "initial process: epoch 3/3" in err
    assert "training: epoch 2/2" in err
    assert "initial process" in out
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


def test_without_initial_epochs_the_body_has_0_1_activations(command, bars, tmp_path):
    words = ["--hidden", "12", "--epochs", "1", "--initial-epochs", "0", "--quiet", "--out", "run"]
    code, _, _ = command("train", "--data", bars, *words)
    assert code == 0
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["settings"]["hidden"] == ["conv3x3:32:max2", "conv3x3:64:max2", "conv3x3:64", 12]
    assert "initial" not in record


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--body", "small"], "a body needs --initial-epochs"),
        (["--initial-batch", "20"], "a body needs --initial-epochs"),
        (["--initial-epochs", "-1"], "--initial-epochs must be a whole number"),
        (["--initial-epochs", "0", "--initial-batch", "20"], "need --initial-epochs above 0"),
        (
            ["--initial-epochs", "1", "--body", "smal"],
            "unknown body 'smal'; choose from tiny, small",
        ),
        (["--initial-epochs", "1", "--initial-batch", "4"], "batch must be a whole number"),
        (["--initial-epochs", "1", "--initial-batch", "400"], "larger than the 90 training"),
        (["--initial-epochs", "1", "--initial-rate", "0"], "learning_rate must be a positive"),
        (["--initial-epochs", "1", "--augment", "spin"], "unknown augment 'spin'"),
        (["--initial-epochs", "1", "--hidden", "conv3x3:4"], "the layers on a body are dense"),
        (["--initial-epochs", "0", "--body", "resnet18-3x3"], "unknown 0/1 body 'resnet18-3x3'"),
        (["--hidden", "conv3x3:4:skip2"], "layer 1 (conv3x3:4:skip2): skip2 reaches below"),
        (["--hidden", "conv3x3:4,conv3x3:4:skip2"], "(1, 20, 20) at a stride of 1,"),
        (["--hidden", "conv3x3:4:stride2"], "never see 1 of its rows or columns"),
        (["--initial-epochs", "1", "--resume"], "no unfinished run on a body"),
    ],
)
def test_initial_processes_that_cannot_be(command, bars, words, sentence):
    code, out, err = command("train", "--data", bars, *words, "--out", "run")
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert not Path("run").exists()


def test_bodies_need_images(command):
    words = ["--data", "breast-cancer", "--out", "run"]
    code, _, err = command("train", *words, "--initial-epochs", "1")
    assert (code, "the body 'resnet18' needs images" in err) == (2, True)
    code, _, err = command("train", *words, "--augment", "crop-flip")
    assert (code, "augment='crop-flip' is for images, these are not" in err) == (2, True)


def test_channels_come_first(command, tmp_path):
    np.savez(tmp_path / "last.npz", X=np.zeros((9, 20, 20, 3)), y=np.arange(9) % 3)
    code, _, err = command("train", "--data", "last.npz", "--out", "run")
    assert code == 2
    assert "seem to have their channels last" in err


@pytest.mark.parametrize("width", [80, 160])
def test_a_bar_fits_the_terminal(monkeypatch, width):
    """With what is done, the rate, the time that is left and the error."""
    shown = io.StringIO()

    def terminal(**_):
        return Console(file=shown, width=width, force_terminal=True, color_system=None)

    monkeypatch.setattr(console, "Console", terminal)
    with console.stages("initial process", "training") as ((first,), _):
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
    assert re.search(r"initial process .* 3.0/120 +\S+ s each +\d:\d\d:\d\d ", last)
    assert ("validation 25.00%" in last) == (width == 80)
    assert ("bits flipped 10.00%-20.00%" in last) == (width == 160)
