"""Cells that are never trained, and the records they would have."""

from paper.matrix.matrix import Matrix
from paper.matrix.run import Cell
from paper.matrix.workers import (
    Ended,
)

SPEC = """
data = ["digits"]
architectures = ["f3nn:8-6"]
methods = ["relu", "bcd", "wild"]
seeds = 2
noise = [0, 0.5]
[train]
epochs = 2
[rivals]
smoothing = 0.0
[variants.wild]
method = "relu"
learning_rate = 1e30
label = "ReLU, far too fast"
"""


def made_up(method="relu", repetition=0):
    return Cell("digits", "f3nn:8-6", method, repetition, rival=True, options={"epochs": 1})


def whole(cell, error=0.25, **result):
    """The record of a cell that was never trained."""
    result |= {"train_error": error, "test_error": error, "active_units": [8, 6], "parameters": 700}
    result["operations"] = {"macs": 5, "additions": 4, "word_operations": 3}
    return cell.new_record() | {
        "status": "completed",
        "data": {"samples": {"train": 200, "test": 100}},
        "n_iter": 0,
        "result": result,
        "history": [{"iteration": 0, "train_error": error, "test_error": error}],
    }


def keep_made_up(matrix, cell):
    noise = {"part": "test", "levels": [0, 0.5], "errors": [0.01, 0.1]}
    record = whole(cell, 0.01 + 0.02 * cell.repetition, noise=noise)
    matrix._keep(Ended(cell, 1.0, {"record": record, "seconds": [0.5]}))


def filled(spec, tmp_path):
    """A matrix whose second relu cell failed and whose others are made up."""
    matrix = Matrix.open(spec.cells(), tmp_path)
    for cell in spec.cells():
        if cell.method == "relu" and cell.repetition == 1:
            matrix._keep(Ended(cell, 1.0, failure="it rained", details="line 1"))
        elif cell.method != "wild":
            keep_made_up(matrix, cell)
    return matrix
