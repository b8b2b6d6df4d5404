"""Runs that are never trained, and the records they would have."""

import json

from paper.matrix.matrix import Matrix
from paper.matrix.record_file import FILE
from paper.matrix.run import Run
from paper.matrix.workers import Ended

SPEC = """
data = ["digits"]
architectures = ["f3nn:8-6"]
methods = ["relu", "bcd", "wild"]
seeds = 2
noise = [0, 0.5]
[train]
epochs = 2
[baselines]
smoothing = 0.0
[variants.wild]
method = "relu"
learning_rate = 1e30
label = "ReLU, far too fast"
"""


def made_up(method="relu", repetition=0):
    return Run("digits", "f3nn:8-6", method, repetition, baseline=True, options={"epochs": 1})


def whole(run, error=0.25, **result):
    """The record of a run that was never trained."""
    result |= {"train_error": error, "test_error": error, "active_units": [8, 6], "parameters": 700}
    result["operations"] = {"macs": 5, "additions": 4, "word_operations": 3}
    return run.new_record() | {
        "status": "completed",
        "data": {"samples": {"train": 200, "test": 100}},
        "n_iter": 0,
        "result": result,
        "history": [{"iteration": 0, "train_error": error, "test_error": error}],
    }


def keep_made_up(matrix, run):
    noise = {"part": "test", "levels": [0, 0.5], "errors": [0.01, 0.1]}
    record = whole(run, 0.01 + 0.02 * run.repetition, noise=noise)
    matrix._keep(Ended(run, 1.0, {"record": record, "seconds": [0.5]}))


def filled(spec, tmp_path):
    """A matrix whose second relu run failed and whose others are made up."""
    matrix = Matrix.open(spec.runs(), tmp_path)
    for run in spec.runs():
        if run.method == "relu" and run.repetition == 1:
            matrix._keep(Ended(run, 1.0, failure="it rained", details="line 1"))
        elif run.method != "wild":
            keep_made_up(matrix, run)
    return matrix


def read_lines(folder):
    """The lines of a matrix's records, by architecture, method and repetition."""
    entries = map(json.loads, (folder / FILE).read_text(encoding="utf-8").splitlines())
    return {(e["architecture"], e["method"], e["repetition"]): e for e in entries}


def write_lines(folder, lines):
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line) + "\n" for line in lines.values())
    (folder / FILE).write_text(text, encoding="utf-8")


def write_record(folder, run, record):
    """Give a run this record, whatever it is."""
    write_lines(folder, {run: run.key | {"status": "completed", "record": record}})
