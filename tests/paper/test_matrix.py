"""The run matrix: failures that stay alone, records to be trusted."""

import importlib
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from runs_made_up import keep_made_up, made_up, read_lines, whole, write_record

from paper.matrix.command import run_matrix
from paper.matrix.matrix import Matrix
from paper.matrix.record_file import FILE
from paper.matrix.run import execute
from paper.matrix.spec import Spec
from paper.matrix.tables import failures, summarise
from paper.matrix.workers import Ended
from zeroone.nn.network_file import load
from zeroone.utils.checks import InputError


def pretend(run, callbacks):
    """Work that ends as the run's method says."""
    if run.method == "ccnn":
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 4 bytes")
    if run.method == "pcnn":
        os.kill(os.getpid(), signal.SIGKILL)
    if run.method == "tanh":
        os._exit(3)
    if run.method == "selu":
        raise InputError("the data are not to its taste.")
    if run.method == "swish":
        raise ZeroDivisionError("one\ntwo")
    if run.method == "bi-real":  # dies in the middle of a sentence
        os.write(callbacks[0].pipe.fileno(), b"\0\0\1\0half")
        os.kill(os.getpid(), 35)
    threads = [torch.get_num_threads(), int(os.environ["OMP_NUM_THREADS"])]
    return {"record": whole(run) | {"threads": threads}, "seconds": [1.0, 3.0, 2.0]}


def test_failures_stay_alone_and_run_again(tmp_path):
    """Out of memory, killed, gone without a word: recorded with the reason, the others go on."""
    bad = ["ccnn", "pcnn", "tanh", "selu", "swish", "bi-real"]
    runs = [made_up(method) for method in [*bad, "relu"]]
    matrix = Matrix.open(runs, tmp_path)
    events = []
    matrix.run(matrix.missing, jobs=2, work=pretend, watch=events.append)
    assert [type(event) for event in events] == [Ended] * 7
    assert [run.method for run in matrix.failed] == bad
    reasons = {run.method: record.get("reason", "") for run, record in matrix.records.items()}
    assert "out of memory" in reasons["ccnn"]
    assert reasons["pcnn"] == "its process was ended by SIGKILL, perhaps for want of memory"
    assert "exit code 3" in reasons["tanh"]
    assert reasons["selu"] == "the data are not to its taste."
    assert reasons["swish"] == "ZeroDivisionError: one"
    assert reasons["bi-real"] == "its process was ended by signal 35"
    good = matrix.records[runs[-1]]
    assert good["result"] == whole(runs[-1])["result"]
    assert good["threads"] == [1, 1]
    assert matrix.times() == {runs[-1]: 2.0}

    again = Matrix.open(runs, tmp_path)
    assert again.missing == []
    assert again.records == matrix.records
    again.run([run for run in again.failed if run.method == "selu"], jobs=1, work=execute)
    assert again.records[made_up("selu")]["status"] == "completed"
    assert [entry["method"] for entry in again.log()].count("selu") == 2
    lines = (tmp_path / FILE).read_text().splitlines()
    assert sum("record" in json.loads(line) for line in lines) == 7  # of a run, the last
    rows = summarise(again)
    assert len(failures(rows)) == 5
    assert {row["method"]: row["n"] for row in rows}["selu"] == 1


def test_two_runs_give_the_same_record_to_the_bit(spec, tmp_path):
    """And a loss that is no number is a failure with a reason."""
    runs = spec.runs()[:3]
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        matrix = Matrix.open(runs, folder)
        matrix.run(matrix.missing, jobs=2)
        kept = {key: line["record"] for key, line in read_lines(folder).items()}
        contents.append({key: json.dumps(record) for key, record in kept.items()})
    assert contents[0] == contents[1]
    assert len(contents[0]) == 3
    relu, bcd, wild = (matrix.records[run] for run in runs)
    for record in (relu, bcd):
        assert record["status"] == "completed"
        assert record["result"]["noise"]["levels"] == [0, 0.5]
        assert record["result"]["noise"]["errors"][0] == record["result"]["test_error"]
        assert record["result"]["operations"]["macs"] > 0
        assert len(record["history"]) == 3
        assert "seconds" not in json.dumps(record)
    assert wild["status"] == "failed"
    assert "the loss was no longer finite in epoch" in wild["reason"]
    assert wild["history"]


def test_a_damaged_record_is_named_and_made_again(tmp_path):
    run = made_up()
    path = tmp_path / FILE
    keep_made_up(Matrix([run], tmp_path, {}), run)
    path.write_text(path.read_text()[:-50])
    said = []
    matrix = Matrix.open([run], tmp_path, said.append)
    assert matrix.missing == [run]
    assert said == [f"{path}, line 1 is not a readable record. It does not count."]
    for content in ({"schema": 99}, {"schema": 1}, {"schema": 1, "status": "failed"}, None, [1]):
        write_record(tmp_path, run, content)
        assert Matrix.open([run], tmp_path, said.append).missing == [run]


def test_records_of_other_settings_are_not_mixed_in(tmp_path):
    run = made_up()
    matrix = Matrix.open([run], tmp_path)
    matrix.run([run], jobs=1, work=pretend)
    other = replace(run, options={"epochs": 2, "learning_rate": 0.5})
    with pytest.raises(InputError, match=r"was made with epochs=1, not 2: take another folder"):
        Matrix.open([other], tmp_path)
    other = replace(run, options={"epochs": 1, "learning_rate": 0.5})
    with pytest.raises(InputError, match=r"was made with rival\.learning_rate=0\.001, not 0\.5"):
        Matrix.open([other], tmp_path)


@pytest.mark.parametrize("baseline", [True, False])
def test_records_older_than_a_setting_count_where_it_is_off(tmp_path, baseline):
    method = "relu" if baseline else "bcd"
    run = replace(made_up(method), baseline=baseline)
    keep_made_up(Matrix([run], tmp_path, {}), run)
    path = tmp_path / FILE
    path.write_text(path.read_text().replace('"input_noise":0.0,', ""))
    assert "input_noise" not in path.read_text()
    assert Matrix.open([run], tmp_path).missing == []
    noisy = replace(run, options={"epochs": 1, "input_noise": 0.5})
    with pytest.raises(InputError, match=r"input_noise=None, not 0\.5: take another"):
        Matrix.open([noisy], tmp_path)


def test_records_of_other_code_are_named(tmp_path):
    run, said = made_up(), []
    keep_made_up(Matrix([run], tmp_path, {}), run)
    Matrix.open([run], tmp_path, said.append)
    assert said == []
    path = tmp_path / FILE
    path.write_text(path.read_text().replace(torch.__version__, "1.0"))
    assert list(Matrix.open([run], tmp_path, said.append).records) == [run]
    assert "1 of 1 records" in said[0]
    assert "made by other code" in said[0]


def test_a_folder_has_one_run_at_a_time(tmp_path):
    run = made_up()
    with FileLock(tmp_path / ".lock"), pytest.raises(InputError, match="another run is at work"):
        Matrix.open([run], tmp_path).run([run], jobs=1)


@pytest.mark.parametrize(
    "change",
    [
        {"result": None},
        {"result": {}},
        {"result": {"test_error": None}},
        {"result": {"test_error": "0.1"}},
        {"result": {"test_error": 17}},
        {"result": {"test_error": float("nan")}},
        {"status": "interrupted"},
        {"status": "failed", "reason": None},
        {"settings": None},
        {"seed": None},
        {"history": []},
        {"history": None},
        {"history": [{"iteration": 0}]},
        {"data": None},
        {"data": {"samples": {"test": 100}}},
        {"data": {"samples": {"train": 200, "test": 100, "validation": 10}}},
        {"n_iter": 1},
    ],
)
def test_a_record_that_no_run_can_have_written_does_not_count(tmp_path, change):
    run = made_up()
    good = whole(run)
    if change.get("result"):
        change = {"result": good["result"] | change["result"]}
    write_record(tmp_path, run, good)
    assert Matrix.open([run], tmp_path).missing == []
    write_record(tmp_path, run, good | change)
    said = []
    assert Matrix.open([run], tmp_path, said.append).missing == [run]
    assert "is not the whole record of a run" in said[0]


def test_runs_on_a_backbone_that_has_become_another_are_run_again(tmp_path):
    """As after a store was lost, and filled again on another machine."""
    spec = Spec(("digits",), ("tinynet@1:8",), ("relu", "tanh"), train={"epochs": 1, "batch": 100})
    runs = spec.runs()
    backbone, relu, tanh = runs
    matrix = Matrix.open(runs, tmp_path / "records", store=tmp_path / "store")
    matrix.run([backbone, relu], jobs=1)
    before = dict(matrix.records)
    folder = replace(backbone, store=tmp_path / "store").backbone_folder
    network = load(folder / "model.safetensors")
    network.operators[0].weight.mul_(2)
    network.save(folder / "model.safetensors")
    matrix.run([tanh], jobs=1)
    assert matrix.missing == []
    digests = {record["backbone_digest"] for record in matrix.records.values()}
    assert len(digests) == 1
    assert digests != {before[backbone]["backbone_digest"]} == {before[relu]["backbone_digest"]}
    said = []
    assert Matrix.open(runs, tmp_path / "records", said.append).missing == []
    assert said == []


def test_folds_have_no_training_to_look_at(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    accuracy = importlib.import_module("accuracy")
    run = accuracy.Folds("digits", "f3nn:256-256", "bcd", 0)
    matrix = Matrix.open([run], tmp_path)
    record = run.new_record() | {"status": "completed", "result": {"test_error": 0.02}}
    matrix._keep(Ended(run, 1.0, {"record": record, "seconds": []}))
    assert Matrix.open([run], tmp_path).missing == []
    assert not run.can_have_written(record | {"result": {}})
    matrix._keep(Ended(run, 1.0, failure="it rained"))
    assert Matrix.open([run], tmp_path).failed == [run]


def test_images_to_look_at_must_be_there(tmp_path):
    spec = Spec(("digits",), ("f3nn:4",), ("bcd",), noise=(0.1,), images=(0, 360))
    with pytest.raises(InputError, match="no test sample 360 to look at, digits has 360"):
        run_matrix(spec, tmp_path / "out")
