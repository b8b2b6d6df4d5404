"""The run matrix: failures that stay alone, records to be trusted."""

import importlib
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cells_made_up import keep_made_up, made_up, whole
from filelock import FileLock

from paper.matrix.command import run_matrix
from paper.matrix.matrix import Matrix
from paper.matrix.run import run_cell
from paper.matrix.spec import Spec
from paper.matrix.tables import failures, summarise
from paper.matrix.workers import (
    Ended,
)
from zeroone.nn.network import load
from zeroone.utils.checks import InputError


def pretend(cell, callbacks):
    """Work that ends as the cell's method says."""
    if cell.method == "ccnn":
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 4 bytes")
    if cell.method == "pcnn":
        os.kill(os.getpid(), signal.SIGKILL)
    if cell.method == "tanh":
        os._exit(3)
    if cell.method == "selu":
        raise InputError("the data are not to its taste.")
    if cell.method == "swish":
        raise ZeroDivisionError("one\ntwo")
    if cell.method == "bi-real":  # dies in the middle of a sentence
        os.write(callbacks[0].pipe.fileno(), b"\0\0\1\0half")
        os.kill(os.getpid(), 35)
    threads = [torch.get_num_threads(), int(os.environ["OMP_NUM_THREADS"])]
    return {"record": whole(cell) | {"threads": threads}, "seconds": [1.0, 3.0, 2.0]}


def test_failures_stay_alone_and_run_again(tmp_path):
    """Out of memory, killed, gone without a word: recorded with the reason, the others go on."""
    bad = ["ccnn", "pcnn", "tanh", "selu", "swish", "bi-real"]
    cells = [made_up(method) for method in [*bad, "relu"]]
    matrix = Matrix.open(cells, tmp_path)
    events = []
    matrix.run(matrix.missing, jobs=2, work=pretend, watch=events.append)
    assert [type(event) for event in events] == [Ended] * 7
    assert [cell.method for cell in matrix.failed] == bad
    reasons = {cell.method: record.get("reason", "") for cell, record in matrix.records.items()}
    assert "out of memory" in reasons["ccnn"]
    assert reasons["pcnn"] == "its process was ended by SIGKILL, perhaps for want of memory"
    assert "exit code 3" in reasons["tanh"]
    assert reasons["selu"] == "the data are not to its taste."
    assert reasons["swish"] == "ZeroDivisionError: one"
    assert reasons["bi-real"] == "its process was ended by signal 35"
    good = matrix.records[cells[-1]]
    assert good["result"] == whole(cells[-1])["result"]
    assert good["threads"] == [1, 1]
    assert matrix.times() == {cells[-1]: 2.0}

    again = Matrix.open(cells, tmp_path)
    assert again.missing == []
    assert again.records == matrix.records
    again.run([cell for cell in again.failed if cell.method == "selu"], jobs=1, work=run_cell)
    assert again.records[made_up("selu")]["status"] == "completed"
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [entry["method"] for entry in log].count("selu") == 2
    rows = summarise(again)
    assert len(failures(rows)) == 5
    assert {row["method"]: row["n"] for row in rows}["selu"] == 1


def test_two_runs_give_the_same_record_to_the_bit(spec, tmp_path):
    """And a loss that is no number is a failure with a reason."""
    cells = spec.cells()[:3]
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        matrix = Matrix.open(cells, folder)
        matrix.run(matrix.missing, jobs=2)
        contents.append({cell: (folder / cell.path).read_bytes() for cell in cells})
    assert contents[0] == contents[1]
    relu, bcd, wild = (matrix.records[cell] for cell in cells)
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
    cell = made_up()
    path = tmp_path / cell.path
    path.parent.mkdir(parents=True)
    path.write_text('{"schema": 1, "status"')
    said = []
    matrix = Matrix.open([cell], tmp_path, said.append)
    assert matrix.missing == [cell]
    assert said == [f"{path} is not a readable record. It does not count: its cell is missing."]
    for content in ('{"schema": 99}', '{"schema": 1}', '{"schema": 1, "status": "failed"}'):
        path.write_text(content)
        assert Matrix.open([cell], tmp_path, said.append).missing == [cell]


def test_records_of_other_settings_are_not_mixed_in(tmp_path):
    cell = made_up()
    matrix = Matrix.open([cell], tmp_path)
    matrix.run([cell], jobs=1, work=pretend)
    other = replace(cell, options={"epochs": 2, "learning_rate": 0.5})
    with pytest.raises(InputError, match=r"was made with epochs=1, not 2: take another folder"):
        Matrix.open([other], tmp_path)
    other = replace(cell, options={"epochs": 1, "learning_rate": 0.5})
    with pytest.raises(InputError, match=r"was made with rival\.learning_rate=0\.001, not 0\.5"):
        Matrix.open([other], tmp_path)


def test_records_of_other_code_are_named(tmp_path):
    cell, said = made_up(), []
    keep_made_up(Matrix([cell], tmp_path, {}), cell)
    Matrix.open([cell], tmp_path, said.append)
    assert said == []
    path = tmp_path / cell.path
    path.write_text(path.read_text().replace(torch.__version__, "1.0"))
    assert list(Matrix.open([cell], tmp_path, said.append).records) == [cell]
    assert "1 of 1 records" in said[0]
    assert "made by other code" in said[0]


def test_a_folder_has_one_run_at_a_time(tmp_path):
    cell = made_up()
    with FileLock(tmp_path / ".lock"), pytest.raises(InputError, match="another run is at work"):
        Matrix.open([cell], tmp_path).run([cell], jobs=1)


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
def test_a_record_that_no_cell_can_have_written_does_not_count(tmp_path, change):
    cell = made_up()
    path = tmp_path / cell.path
    path.parent.mkdir(parents=True)
    good = whole(cell)
    if change.get("result"):
        change = {"result": good["result"] | change["result"]}
    path.write_text(json.dumps(good))
    assert Matrix.open([cell], tmp_path).missing == []
    path.write_text(json.dumps(good | change))
    said = []
    assert Matrix.open([cell], tmp_path, said.append).missing == [cell]
    assert "is not the whole record of a cell" in said[0]


def test_cells_on_a_body_that_has_become_another_are_run_again(tmp_path):
    """As after a store was lost, and filled again on another machine."""
    spec = Spec(("digits",), ("tinynet@1:8",), ("relu", "tanh"), train={"epochs": 1, "batch": 100})
    cells = spec.cells()
    body, relu, tanh = cells
    matrix = Matrix.open(cells, tmp_path / "records", store=tmp_path / "store")
    matrix.run([body, relu], jobs=1)
    before = dict(matrix.records)
    folder = replace(body, store=tmp_path / "store").body_folder
    network = load(folder / "model.safetensors")
    network.operators[0].weight.mul_(2)
    network.save(folder / "model.safetensors")
    matrix.run([tanh], jobs=1)
    assert matrix.missing == []
    digests = {record["body_digest"] for record in matrix.records.values()}
    assert len(digests) == 1
    assert digests != {before[body]["body_digest"]} == {before[relu]["body_digest"]}
    said = []
    assert Matrix.open(cells, tmp_path / "records", said.append).missing == []
    assert said == []


def test_folds_have_no_training_to_look_at(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    accuracy = importlib.import_module("accuracy")
    cell = accuracy.Folds("digits", "f3nn:256-256", "bcd", 0)
    matrix = Matrix.open([cell], tmp_path)
    record = cell.new_record() | {"status": "completed", "result": {"test_error": 0.02}}
    matrix._keep(Ended(cell, 1.0, {"record": record, "seconds": []}))
    assert Matrix.open([cell], tmp_path).missing == []
    assert not cell.can_have_written(record | {"result": {}})
    matrix._keep(Ended(cell, 1.0, failure="it rained"))
    assert Matrix.open([cell], tmp_path).failed == [cell]


def test_images_to_look_at_must_be_there(tmp_path):
    spec = Spec(("digits",), ("f3nn:4",), ("bcd",), noise=(0.1,), images=(0, 360))
    with pytest.raises(InputError, match="no test sample 360 to look at, digits has 360"):
        run_matrix(spec, tmp_path / "out")
