"""The folder of a run: one run at a time, and nothing is replaced unasked."""

import threading

import pytest

from bar_images import IMAGE, Interrupt, bars, train_both
from zeroone import Callback, TrainSettings, train
from zeroone.data.load import load_data
from zeroone.utils.checks import InputError
from zeroone.utils.storage import locked

SETTINGS = TrainSettings.from_options(hidden=(6,), epochs=2, batch=600)


def run(out, **more):
    digits = load_data("digits")
    return train(digits.X, digits.y, SETTINGS, out=out, **more)


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_finished_run_is_replaced_on_request_only(tmp_path):
    run(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"holds a finished run: .* --overwrite \(overwrite=True"):
        run(tmp_path)
    assert contents(tmp_path) == before
    (tmp_path / "record.json").unlink()
    with pytest.raises(InputError, match="holds a finished run"):
        run(tmp_path)
    run(tmp_path, overwrite=True)
    assert contents(tmp_path).keys() == before.keys()
    with pytest.raises(InputError, match="give one of them"):
        run(tmp_path, overwrite=True, resume=True)


def test_an_unfinished_run_is_replaced_on_request_only(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, callbacks=[Interrupt(1)])
    with pytest.raises(InputError, match=r"unfinished run: .* --resume .* --overwrite"):
        run(tmp_path)
    assert run(tmp_path, overwrite=True).record["resumed"] == []


def refusals(out, said, **more):
    """Start another run in the same folder, and note the sentence that refuses it."""

    def work():
        try:
            run(out, **more)
        except InputError as error:
            said.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.parametrize("how", [{}, {"resume": True}, {"overwrite": True}], ids=str)
def test_a_second_run_in_the_same_folder_is_refused(tmp_path, how):
    said, alone = [], run(tmp_path / "alone")

    class Start(Callback):
        def on_iteration(self, entry, model):
            refusals(tmp_path / "both", said, **how)

    first = run(tmp_path / "both", callbacks=[Start()])
    assert len(said) == 2
    assert all("another run is at work in" in sentence for sentence in said)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("both", "alone")]
    assert models[0] == models[1]
    assert first.record["resumed"] == alone.record["resumed"] == []


@pytest.fixture(scope="module")
def images():
    return {"X": bars(60, 0)[0], "y": bars(60, 0)[1], "image": IMAGE}


def test_layers_are_replaced_on_request_and_keep_their_backbone(images, tmp_path):
    train_both(images, tmp_path)
    backbone = contents(tmp_path / "initial")
    with pytest.raises(InputError, match="holds a finished run"):
        train_both(images, tmp_path)
    train_both(images, tmp_path, overwrite=True)
    assert contents(tmp_path / "initial") == backbone
    with pytest.raises(InputError, match="give one of them"):
        train_both(images, tmp_path, overwrite=True, resume=True)
    with locked(tmp_path / "initial"):  # by this thread: it may go on
        train_both(images, tmp_path, overwrite=True)


def test_a_run_that_replaces_another_resumes_in_either_stage(images, tmp_path, monkeypatch):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)
    train_both(images, tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "initial" / "record.json").unlink()  # so that both stages begin again
    for stage in (([Interrupt(1)], [], []), ([], [], [Interrupt(1)])):
        again = {"resume": True} if (tmp_path / "initial/state.safetensors").exists() else {}
        with pytest.raises(KeyboardInterrupt):
            train_both(images, tmp_path, callbacks=stage, **again or {"overwrite": True})
    assert train_both(images, tmp_path, resume=True).record["resumed"] == [0]
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_results_are_saved_under_the_lock(tmp_path):
    finished, said = run(None), []

    def save():
        try:
            finished.save(tmp_path)
        except InputError as error:
            said.append(str(error))

    with locked(tmp_path):
        other = threading.Thread(target=save)
        other.start()
        other.join()
    assert "another run is at work" in said[0]
    assert not (tmp_path / "record.json").exists()
