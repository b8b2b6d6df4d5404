"""Commands that are refused, or told to write in odd places, destroy nothing."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from zeroone.utils.storage import write_json


@pytest.fixture
def run(command, tmp_path):
    words = ["--hidden", "6", "--epochs", "2", "--quiet", "--threads", "1", "--out", "run"]
    assert command("train", "--data", "digits", *words)[0] == 0
    return tmp_path / "run"


def test_links_and_pipes_are_written_into(tmp_path):
    (tmp_path / "target.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "target.json")
    write_json(tmp_path / "link.json", {"a": 1})
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "target.json").read_text()) == {"a": 1}
    os.mkfifo(tmp_path / "pipe")
    seen = []
    reader = threading.Thread(target=lambda: seen.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_json(tmp_path / "pipe", {"b": 2})
    reader.join(timeout=10)
    assert json.loads(seen[0]) == {"b": 2}
    assert (tmp_path / "pipe").is_fifo()


def test_json_on_the_standard_output(run, tmp_path):
    np.savez(tmp_path / "new.npz", X=np.zeros((2, 64)))
    words = ["predict", "run", "--data", "new.npz", "--quiet", "--json", "/dev/stdout"]
    done = subprocess.run(
        [sys.executable, "-m", "zeroone", *words], cwd=tmp_path, capture_output=True, check=True
    )
    assert len(json.loads(done.stdout)["predicted"]) == 2


def test_a_full_disk_behind_the_output(run, tmp_path):
    words = ["evaluate", "run", "--data", "digits"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "zeroone", *words],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("zeroone: cannot write the output")


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_what_is_refused_touches_nothing(command, run, tmp_path):
    (tmp_path / "notes.csv").write_text("mine\n")
    (tmp_path / "mine.h").write_text("mine\n")
    np.savez(tmp_path / "own.npz", X=np.zeros((20, 64)), y=np.arange(20) % 10)
    before = contents(tmp_path)
    again = ["train", "--data", "digits", "--hidden", "6", "--epochs", "2", "--out", "run"]
    for words in (
        [*again, "--csv", "notes.csv"],
        [*again, "--tensorboard", "notes.csv"],
        ["evaluate", "run", "--data", "digits", "--json", "run/model.safetensors"],
        ["evaluate", "run", "--data", "digits", "--json", "run/record.json"],
        ["report", "run", "--out", "run/record.json"],
        ["report", "run", "--out", "notes.csv"],
        ["compress", "run", "--data", "own.npz", "--out", "own.npz"],
        ["compress", "run", "--out", "c.safetensors", "--json", "c.safetensors"],
        ["data", "show", "digits", "--out", "notes.csv"],
        ["export", "run", "--to", "c", "--out", "mine.c"],
    ):
        code, _, err = command(*words)
        assert code == 2, words
        assert err.count("\n") == 1, words
        assert contents(tmp_path) == before, words


def test_the_old_results_stay_until_there_are_new_ones(command, run, monkeypatch):
    before = (run / "model.safetensors").read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("zeroone.training.epochs.Epochs.iterate", interrupted)
    words = ["--hidden", "5", "--epochs", "2", "--quiet", "--out=run", "--overwrite"]
    code, _, err = command("train", "--data", "digits", *words)
    assert code == 130
    assert "the same command with --resume, without --overwrite, goes on" in err
    assert (run / "model.safetensors").read_bytes() == before


def test_headers_of_numbers(command, tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3))
    kinds = ["yes" if row[0] > 0 else "no" for row in rows]
    lines = [",".join(f"{x:.3f}" for x in row) for row in rows]
    text = "\n".join(["0,1,2,kind", *(f"{a},{b}" for a, b in zip(lines, kinds, strict=True))])
    (tmp_path / "mine.csv").write_text(text)
    (tmp_path / "new.csv").write_text("\n".join(["2,1,0", *lines[:5]]))
    words = ["--hidden", "4", "--epochs", "2", "--quiet", "--out", "run"]
    assert command("train", "--data", "mine.csv", *words)[0] == 0
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["data"]["classes"] == ["no", "yes"]
    assert len(command("predict", "run", "--data", "new.csv")[1].split()) == 5
    (tmp_path / "index.csv").write_text(",a,kind\n0,1,x\n1,2,y\n")
    code, _, err = command("train", "--data", "index.csv", *words[:-1], "other")
    assert code == 2
    assert "the first column has no name" in err
    code, _, err = command("train", "--data", "mine.csv", "--label", "kin", *words[:-1], "other")
    assert "Did you mean 'kind'?" in err


def test_labels_that_are_written_alike(command, tmp_path):
    rng = np.random.default_rng(0)
    values = [f"{x:.3f}" for x in rng.normal(size=60)]
    kinds = ["0" if float(x) < 0 else "1" for x in values]
    whole = [f"{x},{-float(x)},{k}" for x, k in zip(values, kinds, strict=True)]
    (tmp_path / "text.csv").write_text("\n".join(["a,b,kind", *whole, "9,9,other", "9,8,other"]))
    (tmp_path / "numbers.csv").write_text("\n".join(["a,b,kind", *whole]))
    (tmp_path / "foreign.csv").write_text("a,b,kind\n1,2,cat\n2,1,dog\n")
    words = ["--hidden", "8", "--epochs", "60", "--quiet", "--out", "run"]
    assert command("train", "--data", "text.csv", *words)[0] == 0
    _, out, _ = command("evaluate", "run", "--data", "numbers.csv")
    assert float(out.split("error ")[1].split("%")[0]) < 20
    code, _, err = command("evaluate", "run", "--data", "foreign.csv")
    assert code == 2
    assert "no label is one of the network's classes (cat is none of 0, 1, other)" in err
