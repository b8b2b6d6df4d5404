"""Cells of a run matrix whose layers are trained on a body."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bar_images import IMAGE, Interrupt, bars
from paper.matrix.architectures import Architecture
from paper.matrix.matrix import Matrix
from paper.matrix.run import Cell, run_cell
from paper.matrix.spec import Spec, with_bodies
from paper.matrix.tables import summarise
from zeroone import Callback
from zeroone.training.checkpoint import FILE as STATE
from zeroone.utils.checks import InputError


@pytest.fixture(scope="module")
def data():
    return {"X": bars(240, 0)[0], "y": bars(240, 0)[1], "test": bars(90, 1), "image": IMAGE}


@pytest.fixture
def spec(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (X, y), (X_test, y_test) = (data["X"], data["y"]), data["test"]
    square = {"X": X.reshape(-1, 18, 18), "X_test": X_test.reshape(-1, 18, 18)}
    np.savez("bars.npz", y=y, y_test=y_test, **square)
    return Spec(
        ("bars.npz",),
        ("convnet@2:12", "convnet:12"),
        ("bcd", "ste"),
        noise=(0.1,),
        train={"epochs": 2, "batch": 40, "validation": 0.2},
        initial={"batch": 20},
    )


def test_a_matrix_trains_a_body_once_and_gives_it_a_line(spec, tmp_path):
    cells = spec.cells()
    assert [(cell.method, cell.plan.initial_epochs) for cell in cells] == [
        ("initial", 2),
        ("bcd", 2),
        ("ste", 2),
        ("bcd", None),
        ("ste", None),
    ]
    assert len({cell.seed for cell in cells[:3]}) == 1
    assert len({cell.body_folder for cell in cells[:3]}) == 1
    two = replace(spec, architectures=("convnet@2:12", "convnet@2:9")).cells()
    assert [cell.method for cell in two] == ["initial", "bcd", "ste", "bcd", "ste"]
    assert with_bodies(cells[1:]) == cells
    matrix = Matrix.open(cells[:3], tmp_path / "out")
    matrix.run(matrix.cells, jobs=1)
    rows = summarise(matrix)
    assert not matrix.failed
    assert [row["label"] for row in rows][:2] == ["initial process (Adam)", "0/1 BCD"]
    assert all("noise" in row and "test_error" in row for row in rows)
    assert rows[1]["parameters"] == rows[2]["parameters"]
    (body,) = (tmp_path / "out/.store/bodies").iterdir()
    assert (body / "record.json").is_file()
    assert not list((tmp_path / "out/.store").rglob(STATE))
    record = matrix.records[cells[1]]
    assert record["settings"]["initial"]["batch"] == 20
    shutil.rmtree(tmp_path / "out/.store")
    other = [replace(cell, architecture="convnet@2:9") for cell in cells[1:2]]
    later = Matrix.open(with_bodies(other), tmp_path / "out")
    assert [cell.method for cell in later.missing] == ["bcd"]
    later.run(later.missing, jobs=1)
    assert [(row["label"], row["n"]) for row in summarise(later)] == [
        ("initial process (Adam)", 1),
        ("0/1 BCD", 1),
    ]


def test_methods_on_one_body_share_what_it_was_trained_on(spec):
    own = {"mine": {"method": "bcd", "validation": 0.5}}
    other = replace(spec, architectures=("convnet@2:12",), methods=("bcd", "mine"), variants=own)
    with pytest.raises(InputError, match="share its scaling, validation, dtype"):
        other.cells()


def test_cells_on_a_body_that_failed_say_so(spec, tmp_path):
    wild = replace(spec, initial={"learning_rate": 1e30})
    matrix = Matrix.open(wild.cells(), tmp_path / "out")
    matrix.run(matrix.cells[:2], jobs=1)
    reasons = [matrix.records[cell]["reason"] for cell in matrix.cells[:2]]
    assert "the initial process diverged: the loss was no longer finite in epoch 1" in reasons[0]
    assert "the initial process that trains its body has no result" in reasons[1]


@pytest.mark.parametrize("method", ["bcd", "ste"])
def test_a_cell_that_was_interrupted_goes_on(spec, tmp_path, monkeypatch, method):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)
    options = {"epochs": 3, "batch": 40}
    rival = method == "ste"
    options |= {"activation": "ste"} if rival else {}
    cell = Cell(spec.data[0], "convnet:12", method, 0, rival, options)
    whole = run_cell(cell)["record"]
    kept = replace(cell, store=tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        run_cell(kept, [Interrupt(2)])
    assert list((tmp_path / "store").rglob(STATE))
    epochs = []

    class Watch(Callback):
        def on_iteration(self, entry, model):
            epochs.append(entry["iteration"])

    assert run_cell(kept, [Watch()])["record"] == whole
    assert epochs in ([2, 3], [3])  # the interrupted epoch counts if its state was kept
    assert not list((tmp_path / "store").rglob(STATE))


def test_a_cell_begins_anew_where_its_state_is_of_no_use(spec, tmp_path, monkeypatch):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)
    cell = Cell(spec.data[0], "f3nn:12", "bcd", 0, options={"epochs": 3, "batch": 40})
    whole = run_cell(cell)["record"]
    kept = replace(cell, store=tmp_path / "store")

    def interrupt(options):
        with pytest.raises(KeyboardInterrupt):
            run_cell(replace(kept, options=cell.options | options), [Interrupt(2)])
        (state,) = (tmp_path / "store").rglob(STATE)
        return state

    interrupt({"move": 0.02})  # of other settings
    assert run_cell(kept)["record"] == whole
    state = interrupt({})
    state.write_bytes(state.read_bytes()[:100])
    assert run_cell(kept)["record"] == whole


def test_the_noise_of_a_body_is_on_the_samples_of_the_others(spec, tmp_path):
    with np.load(spec.data[0]) as held:
        np.savez("one.npz", X=held["X"], y=held["y"])
    cells = replace(spec, data=("one.npz",)).cells()[:2]
    results = [run_cell(replace(cell, store=tmp_path))["record"]["result"] for cell in cells]
    assert [result["noise"]["part"] for result in results] == ["validation", "validation"]


def test_rivals_on_convolutions_are_counted_like_0_1_networks(spec, monkeypatch):
    hidden = ("conv5x5:4:max2", "conv3x3:5:max2", 12)
    table = {"tiny": (None, hidden)}
    monkeypatch.setattr("paper.matrix.architectures.ARCHITECTURES", table)
    assert Architecture.parse("tiny").hidden == hidden
    results = [
        run_cell(Cell(spec.data[0], "tiny", "any", 0, rival, {"epochs": 1, **own}))["record"]
        for rival, own in (
            (False, {}),
            (True, {"activation": "ste"}),
            (True, {"activation": "relu"}),
        )
    ]
    parameters = {record["result"]["parameters"] for record in results}
    assert parameters == {4 * 26 + 5 * 37 + 12 * 21 + 3 * 13}
    units = [record["result"]["active_units"] for record in results]
    assert units == [[4, 5, 12]] * 3
    assert results[0]["result"]["operations"] == results[1]["result"]["operations"]


@pytest.mark.parametrize("rival", [True, False])
def test_features_are_dropped_and_images_are_not(spec, monkeypatch, rival):
    from zeroone.training.epochs import BatchPlan

    seen = []
    make = BatchPlan.make
    monkeypatch.setattr(
        BatchPlan, "make", lambda *args, **more: seen.append(make(*args, **more)) or seen[-1]
    )
    cell = replace(spec.cells()[2 if rival else 1], store=Path("store"))
    run_cell(replace(cell.below, store=Path("store")))
    body = next(plan for plan in seen if plan.epochs == 2 and not plan.input_dropout)
    assert body.input_dropout == 0
    run_cell(cell)
    assert seen[-1].input_dropout == 0.2
