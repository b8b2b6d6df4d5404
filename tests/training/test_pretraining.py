"""Pretraining: a backbone trained by Adam, its features on disk, 0/1 layers on them."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from bar_images import IMAGE, LAYERS, SMALL, Interrupt, bars, features_of, train_both
from zeroone import TrainSettings, load
from zeroone.analysis.counts import counts
from zeroone.pretraining import PretrainingSettings
from zeroone.training.checkpoint import FILE as STATE
from zeroone.training.training_data import TrainingData
from zeroone.utils.checks import InputError


@pytest.fixture(scope="module")
def data():
    return {"X": bars(240, 0)[0], "y": bars(240, 0)[1], "test": bars(90, 1), "image": IMAGE}


def test_features_are_what_the_body_makes_and_are_made_once(data, tmp_path):
    made = features_of(data, tmp_path)
    backbone = made.network.backbone
    scaled = made.network.scaling.apply(torch.from_numpy(data["test"][0]))
    assert torch.allclose(torch.from_numpy(made.test), backbone.layers(scaled), atol=1e-5)
    assert made.train.shape == (240, 64)
    assert isinstance(made.train, np.memmap)
    kept = ("model.safetensors", "record.json", "train.npy", "test.npy")
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in kept}
    again = features_of(data, tmp_path)
    assert np.array_equal(again.train, made.train)
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in kept} == before


def test_the_shape_of_images_may_be_any_sequence(data, tmp_path):
    made = features_of(data, tmp_path, image=list(IMAGE))
    assert made.network.backbone.image == IMAGE


def test_a_body_has_its_own_record_and_is_a_network_of_its_own(data, tmp_path):
    made = features_of(data, tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["settings"]["rival"]["body"] == "small"
    assert (record["settings"]["epochs"], record["settings"]["batch"]) == (2, 20)
    assert len(record["history"]) == 3
    network = load(tmp_path / "model.safetensors")
    wrong = (network.predict(data["test"][0]) != data["test"][1]).mean()
    assert wrong == pytest.approx(record["result"]["test_error"])
    assert made.summary["result"] == record["result"]


def test_features_cut_short_are_computed_again(data, tmp_path):
    made = features_of(data, tmp_path)
    expected = np.array(made.test)
    content = (tmp_path / "test.npy").read_bytes()
    (tmp_path / "test.npy").write_bytes(content[: len(content) // 2])
    for content in (b"", b"nonsense", zipped()):
        (tmp_path / "train.npy").write_bytes(content)
        again = features_of(data, tmp_path)
        assert np.array_equal(again.test, expected)
        assert again.train.shape == (240, 64)


def zipped():
    file = io.BytesIO()
    np.savez(file, X=np.zeros(3))
    return file.getvalue()


def test_features_of_an_earlier_body_are_not_taken_for_those_of_a_new_one(data, tmp_path):
    first = np.array(features_of(data, tmp_path).train)
    (tmp_path / "record.json").unlink()
    other = features_of(data, tmp_path, settings=replace(LAYERS, seed=6), overwrite=True)
    assert not np.array_equal(other.train, first)


@pytest.mark.parametrize("moment", ["before", "half-way"])
def test_a_body_is_not_lost_between_training_and_writing(data, tmp_path, monkeypatch, moment):
    expected = features_of(data, tmp_path / "whole").train

    def fail(*_arguments):
        raise InputError("the disk is full.")

    where = (
        "zeroone.pretraining._keep" if moment == "before" else "zeroone.training.runs.write_record"
    )
    with monkeypatch.context() as broken:
        broken.setattr(where, fail)
        with pytest.raises(InputError, match="disk is full"):
            features_of(data, tmp_path / "cut")
    resumed = features_of(data, tmp_path / "cut", resume=True)
    assert resumed.record["resumed"] == [2]
    assert np.array_equal(resumed.train, expected)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hidden": ("conv3x3:8",)}, "the layers on a backbone are dense, not conv3x3:8"),
        ({"hidden": (8,), "batch": 5000}, "batch=5000 is larger than the 240 training samples"),
    ],
)
def test_layers_that_do_not_fit_are_refused_before_the_body_is_trained(
    data, tmp_path, options, sentence
):
    with pytest.raises(InputError, match=sentence):
        train_both(data, tmp_path, TrainSettings.from_options(**options))
    assert not (tmp_path / "initial").exists()


def test_an_unfinished_run_is_refused_before_the_body_is_trained(data, tmp_path):
    (tmp_path / STATE).touch()
    with pytest.raises(InputError, match="holds an unfinished run"):
        train_both(data, str(tmp_path))
    assert not (tmp_path / "initial").exists()


def test_batches_of_pretraining():
    settings = PretrainingSettings("small", 1)
    assert settings.fitted(1000).batch == 64
    assert settings.fitted(40).batch == 40
    with pytest.raises(InputError, match="pretraining's batch of 50 is larger than the 40"):
        PretrainingSettings("small", 1, batch=50).fitted(40)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"settings": replace(LAYERS, seed=6)}, "trained with seed=5, not 6"),
        ({"settings": replace(LAYERS, validation=0.1)}, "trained with validation=0.2, not 0.1"),
        ({"pretraining": replace(SMALL, batch=30)}, "trained with batch=20, not 30"),
        ({"test": bars(90, 2)}, "trained on other data"),
        ({"image": (2, 18, 9)}, "images of 18 x 18 pixels or more, these have 18 x 9"),
        ({"image": (1, 12, 27)}, "images of 18 x 18 pixels or more, these have 12 x 27"),
        ({"image": None}, "the backbone 'small' needs images"),
    ],
)
def test_a_backbone_of_something_else_is_refused(data, tmp_path, change, sentence):
    features_of(data, tmp_path)
    with pytest.raises(InputError, match=sentence):
        features_of(data, tmp_path, **change)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_layers_learn_on_features_and_the_network_takes_images(data, tmp_path, dtype):
    longer = replace(LAYERS, dtype=dtype, stochastic=replace(LAYERS.stochastic, epochs=10))
    run = train_both(data, tmp_path / "run", longer)
    record, (X, y) = run.record, data["test"]
    assert (
        str(run.network.dtype)
        == str(next(run.network.backbone.parameters()).dtype)
        == f"torch.{dtype}"
    )
    assert record["result"]["test_error"] < 0.1
    wrong = (run.network.predict(X) != y).mean()
    assert wrong == pytest.approx(record["result"]["test_error"])
    assert record["initial"]["n_iter"] == 2
    assert record["data"]["features"] == 18 * 18
    again = load(tmp_path / "run/model.safetensors")
    assert torch.equal(again.scores(X), run.network.scores(X))
    assert (again.n_features, again.backbone.image) == (18 * 18, IMAGE)
    body_parameters = sum(p.numel() for p in run.network.backbone.parameters())
    dense = 30 * 65 + 20 * 31 + 3 * 21
    assert counts(again)["parameters"] == body_parameters + dense == record["result"]["parameters"]
    assert [tuple(bits.shape) for bits in again.bits(X)] == [(90, 30), (90, 20)]


def test_the_same_rows_are_held_out_of_both_stages(data, tmp_path):
    made = features_of(data, tmp_path)
    given = (data["X"], data["y"])
    backbone = TrainingData.prepare(*given, SMALL.training(LAYERS), data["test"], None, IMAGE)
    layers = TrainingData.prepare(*given, LAYERS, data["test"], None, IMAGE, made)
    for part in ("train", "validation", "test"):
        assert torch.equal(layers.raw[part].X, backbone.parts[part].X)
        rows = backbone.scaling.apply(backbone.parts[part].X)
        expected = made.network.backbone.layers(rows)
        assert torch.allclose(layers.parts[part].X, expected, atol=1e-5)
    assert layers.raw_digests == backbone.digests
    assert layers.digests != backbone.digests


def test_features_stay_on_disk(data, tmp_path):
    made = features_of(data, tmp_path)
    settings = replace(LAYERS, validation=0.0)
    task = TrainingData.prepare(data["X"], data["y"], settings, data["test"], None, IMAGE, made)
    pointers = {task.parts["train"].X.data_ptr(), task.parts["test"].X.data_ptr()}
    assert pointers == {made.train.ctypes.data, made.test.ctypes.data}


@pytest.mark.parametrize("stage", ["pretraining", "layers"])
def test_both_stages_go_on_to_the_same_bits(data, tmp_path, monkeypatch, stage):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)
    whole = train_both(data, tmp_path / "whole")
    callbacks = [[], [], []]
    callbacks[0 if stage == "pretraining" else 2] = [Interrupt(2)]
    out = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        train_both(data, out, callbacks=callbacks)
    resumed = train_both(data, out, resume=True)
    for ours, theirs in zip(whole.network.operators, resumed.network.operators, strict=True):
        assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(whole.network.scores(data["X"]), resumed.network.scores(data["X"]))
    assert not list(out.rglob(STATE))


def test_an_interruption_between_the_stages(data, tmp_path):
    out = tmp_path / "run"
    features_of(data, out / "initial")
    (out / "initial/test.npy").unlink()
    whole = train_both(data, tmp_path / "whole")
    resumed = train_both(data, out, resume=True)
    assert torch.equal(whole.network.scores(data["X"]), resumed.network.scores(data["X"]))
    with pytest.raises(InputError, match="holds a finished run: there is nothing to resume"):
        train_both(data, out, resume=True)
    with pytest.raises(InputError, match="no unfinished run"):
        train_both(data, tmp_path / "nothing", resume=True)
