"""Logs of a training for other tools, and what else the command line offers around it."""

import csv
import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone

from zeroone import Callback, CSVLogger, TensorBoardLogger, ZeroOneClassifier
from zeroone.data.load import load_data
from zeroone.training import TrainSettings, train
from zeroone.training.callbacks import flat_numbers


def read(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run(folder, *callbacks, **more):
    digits = load_data("digits")
    settings = TrainSettings.from_options(hidden=(9, 8), epochs=4, batch=200, keep=0.5)
    return train(digits.X, digits.y, settings, callbacks=callbacks, out=folder / "run", **more)


def test_a_line_an_iteration(tmp_path):
    done = run(tmp_path, CSVLogger(tmp_path / "log.csv"))
    rows = read(tmp_path / "log.csv")
    assert [int(row["iteration"]) for row in rows] == [1, 2, 3, 4]
    last = done.record["history"][-1]
    assert float(rows[-1]["train_error"]) == last["train_error"]
    assert float(rows[-1]["flipped/2"]) == last["flipped"][1]
    assert int(rows[-1]["active_units/1"]) == last["active_units"][0]


def test_a_resumed_run_goes_on_with_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)

    class Interrupt(Callback):
        def on_iteration(self, entry, model):
            if entry["iteration"] == 3:
                raise KeyboardInterrupt

    path = tmp_path / "log.csv"
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, CSVLogger(path), Interrupt())
    assert len(read(path)) == 3  # of which the third was not kept
    run(tmp_path, CSVLogger(path), resume=True)
    assert [int(row["iteration"]) for row in read(path)] == [1, 2, 3, 4]
    run(tmp_path, CSVLogger(path), overwrite=True)
    assert [int(row["iteration"]) for row in read(path)] == [1, 2, 3, 4]


def test_a_value_that_comes_later_gets_a_column(tmp_path):
    class Late(Callback):
        def on_iteration(self, entry, model):
            if entry["iteration"] > 2:
                entry["mine"] = 10 * entry["iteration"]

    run(tmp_path, Late(), CSVLogger(tmp_path / "log.csv"))
    rows = read(tmp_path / "log.csv")
    assert [row["mine"] for row in rows] == ["", "", "30", "40"]
    assert [row["iteration"] for row in rows] == ["1", "2", "3", "4"]


def test_a_file_that_is_no_log_is_left_alone(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="is not a log of a training"):
        CSVLogger(path).on_start(0, 9)
    assert path.read_text() == "a,b\n1,2\n"


def test_loggers_are_copied_with_their_estimator(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not there (make extras)")
    for log in (CSVLogger(tmp_path / "a.csv"), TensorBoardLogger(tmp_path / "tb")):
        assert clone(ZeroOneClassifier(callbacks=[log])).callbacks[0] is not log


def test_numbers_of_an_entry():
    entry = {
        "F": 1.0,
        "flipped": [0.1, 0.2],
        "residuals": {"W": 3},
        "blocks": [{"F": 1}],
        "x": None,
    }
    assert flat_numbers(entry) == {"F": 1.0, "flipped/1": 0.1, "flipped/2": 0.2, "residuals/W": 3}


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not there (make extras)"
)
def test_tensorboard(tmp_path):
    code = (
        "import sys; from zeroone import TensorBoardLogger\n"
        "log = TensorBoardLogger(sys.argv[1])\n"
        "log.on_start(0, 2)\n"
        "for k in (1, 2):\n"
        "    log.on_iteration({'iteration': k, 'loss': 0.5 * k, 'flipped': [0.1]}, None)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, tmp_path / "tb"], check=True)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"loss", "flipped/1"}
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(1, 0.5), (2, 1.0)]


def test_tensorboard_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match="pip install tensorboard"):
        TensorBoardLogger(tmp_path)


def test_logs_on_the_command_line(command, tmp_path):
    words = ["--hidden", "8", "--epochs", "2", "--quiet", "--out", "run"]
    code, _, _ = command("train", "--data", "digits", *words, "--csv", "log.csv")
    assert code == 0
    assert len(read(tmp_path / "log.csv")) == 2
    code, _, err = command("train", "--data", "digits", *words, "--csv", "away/log.csv")
    assert (code, err) == (2, "zeroone: the folder away does not exist.\n")


def test_what_is_read_is_not_overwritten(command, tmp_path):
    rng = np.random.default_rng(0)
    lines = ["a,b,kind", *(f"{x:.3f},{y:.3f},{x > y}" for x, y in rng.normal(size=(40, 2)))]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    before = (tmp_path / "mine.csv").read_text()
    data = ["--data", "mine.csv", "--label", "kind"]
    words = [*data, "--hidden", "4", "--epochs", "1", "--quiet", "--out", "run"]
    assert command("train", *words, "--csv", "run/log.csv")[0] == 0
    code, out, _ = command("predict", "run", "--data", "mine.csv", "--label", "kind")
    assert code == 0
    assert set(out.split()) <= {"True", "False"}
    (tmp_path / "new.csv").write_text("a,b\n1,2\n3,1\n")
    assert len(command("predict", "run", "--data", "new.csv")[1].split()) == 2
    assert "neither a .npz nor a .csv" in command("predict", "run", "--data", "new.txt")[2]
    for bad in (
        ("train", *words, "--csv", "mine.csv"),
        ("evaluate", "run", *data, "--json", "mine.csv"),
        ("report", "run", *data, "--out", "mine.csv"),
        ("report", "run/record.json", "--out", "run/record.json"),
    ):
        code, _, err = command(*bad)
        assert code == 2
        assert "is read by this command: write to another file" in err or ".html file" in err
    assert (tmp_path / "mine.csv").read_text() == before


def test_predictions_as_json(command, tmp_path):
    words = ["--hidden", "8", "--epochs", "1", "--quiet", "--out", "run"]
    command("train", "--data", "digits", *words)
    np.savez(tmp_path / "new.npz", X=np.zeros((3, 64)))
    code, out, _ = command("predict", "run", "--data", "new.npz", "--json", "answers.json")
    assert code == 0
    answers = json.loads((tmp_path / "answers.json").read_text())
    assert [str(label) for label in answers["predicted"]] == out.split()
    assert np.sum(answers["probabilities"], axis=1) == pytest.approx(1, abs=1e-5)
    assert answers["classes"] == list(range(10))


def test_completion_completes(command, monkeypatch):
    monkeypatch.setenv("_ZEROONE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "zeroone rep")
    monkeypatch.setenv("COMP_CWORD", "1")
    code, out, _ = command()
    assert code == 0
    assert out.split() == ["plain,report", "plain,reproduce"]


def test_bench_train(command, tmp_path):
    words = ["--hidden", "20,10", "--samples", "512", "--repeats", "2", "--threads", "1"]
    code, out, _ = command("bench", "train", *words, "--json", "cost.json")
    assert code == 0
    assert "stochastic BCD" in out
    result = json.loads((tmp_path / "cost.json").read_text())["result"]
    assert len(result["seconds"]["STE + Adam"]) == 2
    medians = result["medians"]
    assert result["ratio"] == medians["stochastic BCD"] / medians["STE + Adam"]
    for bad in (["--hidden", "a"], ["--samples", "0"], ["--repeats", "0"], ["--json", "no/x.json"]):
        code, _, err = command("bench", "train", *bad)
        assert code == 2
        assert err.count("\n") == 1


def test_columns_are_found_by_their_names(command, tmp_path):
    rng = np.random.default_rng(0)
    rows = [(f"{x:.3f}", f"{100 * y:.3f}", x > y) for x, y in rng.normal(size=(60, 2))]
    files = {
        "mine.csv": ("a,b,kind", lambda x, y, kind: f"{x},{y},{kind}"),
        "turned.csv": ("extra,kind,b,a", lambda x, y, kind: f"7,{kind},{y},{x}"),
        "bare.csv": ("a,b", lambda x, y, kind: f"{x},{y}"),
        "other.csv": ("A,b,kind", lambda x, y, kind: f"{x},{y},{kind}"),
    }
    for name, (header, line) in files.items():
        (tmp_path / name).write_text("\n".join([header, *(line(*row) for row in rows)]))
    words = ["--hidden", "6", "--epochs", "5", "--quiet", "--out", "run"]
    assert command("train", "--data", "mine.csv", *words)[0] == 0
    answers = [
        command("predict", "run", "--data", f"{f}.csv")[1] for f in ("mine", "turned", "bare")
    ]
    assert len(answers[0].split()) == 60
    assert answers[0] == answers[1] == answers[2]
    same = [
        command("evaluate", "run", "--data", f"{name}.csv", "--label", "kind")[1]
        for name in ("mine", "turned")
    ]
    assert same[0] == same[1]
    for name in ("evaluate", "predict"):
        code, _, err = command(name, "run", "--data", "other.csv")
        assert code == 2
        assert "lacks 1 of the 2 columns that the network takes, such as 'a'" in err
    assert command("predict", "run", "--data", "mine.csv", "--quiet", "--threads", "1")[1] == ""
