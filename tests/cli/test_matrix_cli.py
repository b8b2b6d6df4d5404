"""``zeroone matrix`` and ``zeroone reproduce``."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


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


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("matrix", "some.toml", "--out", "new"), "matrix"),
        (("reproduce", "all", "--quick"), "reproduce"),
        (("bench", "train"), "bench train"),
        (("bench", "inference", "--json", "new"), "bench inference"),
    ],
)
def test_what_is_not_in_the_wheel_is_said(command, monkeypatch, tmp_path, words, named):
    for folder in ("paper", "benchmarks"):
        for name in [name for name in sys.modules if name.partition(".")[0] == folder]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, folder, None)
    code, out, err = command(*words)
    sentence = "needs the repository: clone it and run 'make demo' there first."
    assert (code, out, err) == (2, "", f"zeroone: zeroone {named} {sentence}\n")
    assert list(tmp_path.iterdir()) == []


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
    lines = Path("runs/records.jsonl").read_text().splitlines()
    (before,) = [line for line in lines if '"method":"relu"' in line]

    Path("spec.toml").write_text(MATRIX)
    code, _, err = command("matrix", "spec.toml", "--out", "runs", "--only-failed")
    assert code == 1
    assert "1/1 digits, f3nn:8, wild" in err
    code, _, err = command("matrix", "spec.toml", "--out", "runs")
    assert code == 1
    assert "1/" not in err  # nothing was missing
    assert before in Path("runs/records.jsonl").read_text().splitlines()


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
        "zeroone: interrupted; the same command goes on, without the runs that are finished."
    )


def test_matrices_that_cannot_be(command):
    Path("spec.toml").write_text(MATRIX)
    for words, sentence in (
        (("spec.toml", "--out", "runs", "--json", "none/t.json"), "the folder none does not exist"),
        (("spec.toml", "--out", "runs", "--threads", "9999"), "threads must be a whole number up"),
        (("none.toml", "--out", "runs"), "there is no file none.toml"),
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


def test_a_matrix_of_own_images(command):
    """From a folder of images through a convolutional backbone; a changed folder is noticed."""
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
    record = json.loads(Path("runs/records.jsonl").read_text())["record"]
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
