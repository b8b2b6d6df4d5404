"""Runs of a matrix whose layers are trained on a backbone."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bar_images import IMAGE, Interrupt, bars
from paper.matrix.architectures import Architecture
from paper.matrix.matrix import Matrix
from paper.matrix.run import Run, execute
from paper.matrix.spec import Spec, with_backbones
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
        pretraining={"batch": 20},
    )


def test_a_matrix_trains_a_backbone_once_and_gives_it_a_line(spec, tmp_path):
    runs = spec.runs()
    assert [(run.method, run.plan.pretraining_epochs) for run in runs] == [
        ("initial", 2),
        ("bcd", 2),
        ("ste", 2),
        ("bcd", None),
        ("ste", None),
    ]
    assert len({run.seed for run in runs[:3]}) == 1
    assert len({run.backbone_folder for run in runs[:3]}) == 1
    two = replace(spec, architectures=("convnet@2:12", "convnet@2:9")).runs()
    assert [run.method for run in two] == ["initial", "bcd", "ste", "bcd", "ste"]
    assert with_backbones(runs[1:]) == runs
    matrix = Matrix.open(runs[:3], tmp_path / "out")
    matrix.run(matrix.runs, jobs=1)
    rows = summarise(matrix)
    assert not matrix.failed
    assert [row["label"] for row in rows][:2] == ["pretraining (Adam)", "0/1 BCD"]
    assert all("noise" in row and "test_error" in row for row in rows)
    assert rows[1]["parameters"] == rows[2]["parameters"]
    (backbone,) = (tmp_path / "out/.store/backbones").iterdir()
    assert (backbone / "record.json").is_file()
    assert not list((tmp_path / "out/.store").rglob(STATE))
    record = matrix.records[runs[1]]
    assert record["settings"]["initial"]["batch"] == 20
    shutil.rmtree(tmp_path / "out/.store")
    other = [replace(run, architecture="convnet@2:9") for run in runs[1:2]]
    later = Matrix.open(with_backbones(other), tmp_path / "out")
    assert [run.method for run in later.missing] == ["bcd"]
    later.run(later.missing, jobs=1)
    assert [(row["label"], row["n"]) for row in summarise(later)] == [
        ("pretraining (Adam)", 1),
        ("0/1 BCD", 1),
    ]


def test_methods_on_one_backbone_share_what_it_was_trained_on(spec):
    own = {"mine": {"method": "bcd", "validation": 0.5}}
    other = replace(spec, architectures=("convnet@2:12",), methods=("bcd", "mine"), variants=own)
    with pytest.raises(InputError, match="share its scaling, validation, dtype"):
        other.runs()


def test_runs_on_a_backbone_that_failed_say_so(spec, tmp_path):
    wild = replace(spec, pretraining={"learning_rate": 1e30})
    matrix = Matrix.open(wild.runs(), tmp_path / "out")
    matrix.run(matrix.runs[:2], jobs=1)
    reasons = [matrix.records[run]["reason"] for run in matrix.runs[:2]]
    assert "pretraining diverged: the loss was no longer finite in epoch 1" in reasons[0]
    assert "the pretraining of its backbone has no result" in reasons[1]


@pytest.mark.parametrize("method", ["bcd", "ste"])
def test_a_run_that_was_interrupted_goes_on(spec, tmp_path, monkeypatch, method):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)
    options = {"epochs": 3, "batch": 40}
    baseline = method == "ste"
    options |= {"activation": "ste"} if baseline else {}
    run = Run(spec.data[0], "convnet:12", method, 0, baseline, options)
    whole = execute(run)["record"]
    kept = replace(run, store=tmp_path / "store")
    with pytest.raises(KeyboardInterrupt):
        execute(kept, [Interrupt(2)])
    assert list((tmp_path / "store").rglob(STATE))
    epochs = []

    class Watch(Callback):
        def on_iteration(self, entry, model):
            epochs.append(entry["iteration"])

    assert execute(kept, [Watch()])["record"] == whole
    assert epochs in ([2, 3], [3])  # the interrupted epoch counts if its state was kept
    assert not list((tmp_path / "store").rglob(STATE))


def test_a_run_begins_anew_where_its_state_is_of_no_use(spec, tmp_path, monkeypatch):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)
    run = Run(spec.data[0], "f3nn:12", "bcd", 0, options={"epochs": 3, "batch": 40})
    whole = execute(run)["record"]
    kept = replace(run, store=tmp_path / "store")

    def interrupt(options):
        with pytest.raises(KeyboardInterrupt):
            execute(replace(kept, options=run.options | options), [Interrupt(2)])
        (state,) = (tmp_path / "store").rglob(STATE)
        return state

    interrupt({"move": 0.02})  # of other settings
    assert execute(kept)["record"] == whole
    state = interrupt({})
    state.write_bytes(state.read_bytes()[:100])
    assert execute(kept)["record"] == whole


def test_the_noise_of_a_backbone_is_on_the_samples_of_the_others(spec, tmp_path):
    with np.load(spec.data[0]) as held:
        np.savez("one.npz", X=held["X"], y=held["y"])
    runs = replace(spec, data=("one.npz",)).runs()[:2]
    results = [execute(replace(run, store=tmp_path))["record"]["result"] for run in runs]
    assert [result["noise"]["part"] for result in results] == ["validation", "validation"]


def test_baselines_on_convolutions_are_counted_like_0_1_networks(spec, monkeypatch):
    hidden = ("conv5x5:4:max2", "conv3x3:5:max2", 12)
    table = {"tiny": (None, hidden)}
    monkeypatch.setattr("paper.matrix.architectures.ARCHITECTURES", table)
    assert Architecture.parse("tiny").hidden == hidden
    results = [
        execute(Run(spec.data[0], "tiny", "any", 0, baseline, {"epochs": 1, **own}))["record"]
        for baseline, own in (
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


@pytest.mark.parametrize("baseline", [True, False])
def test_features_are_dropped_and_images_are_not(spec, monkeypatch, baseline):
    from zeroone.training.epochs import BatchPlan

    seen = []
    make = BatchPlan.make
    monkeypatch.setattr(
        BatchPlan, "make", lambda *args, **more: seen.append(make(*args, **more)) or seen[-1]
    )
    run = replace(spec.runs()[2 if baseline else 1], store=Path("store"))
    execute(replace(run.backbone_run, store=Path("store")))
    backbone = next(plan for plan in seen if plan.epochs == 2 and not plan.input_dropout)
    assert backbone.input_dropout == 0
    execute(run)
    assert seen[-1].input_dropout == 0.2
