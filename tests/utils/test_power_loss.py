"""Power fails at any moment of a run: the state or the results are there, whole."""

import json

import pytest

from power_loss import Recorder, aftermaths, restore
from zeroone import Callback, TrainSettings, load, train
from zeroone.data.load import load_data
from zeroone.utils import storage
from zeroone.utils.storage import write_json

SETTINGS = {"hidden": (3,), "epochs": 2, "batch": 30}


def run(out, seed=0, **more):
    digits = load_data("digits")
    settings = TrainSettings.from_options(**SETTINGS, seed=seed)
    return train(digits.X[:60], digits.y[:60], settings, out=out, **more)


@pytest.fixture(autouse=True)
def _every_state(monkeypatch):
    monkeypatch.setattr("zeroone.training.checkpoint.INTERVAL", 0)


def recorded(root, **more):
    """A run in root/run, and the moment when its first state was kept."""
    with Recorder(root) as recorder:

        class Kept(Callback):
            def on_start(self, done, total):
                recorder.mark("kept")

        run(root / "run", callbacks=[Kept()], **more)
    return recorder


def look_at(disk, folder, models):
    """What is left of a run: 'nothing', or a seed whose model is there, perhaps after a resume."""
    out = restore(disk, folder) / "run"
    if (out / "state.safetensors").exists():
        run(out, resume=True)
        made = (out / "model.safetensors").read_bytes()
        assert made == models[0]
        return 0
    if not (out / "record.json").exists():
        return "nothing"
    record = json.loads((out / "record.json").read_text(encoding="utf-8"))
    load(out / "model.safetensors")
    assert (out / "model.safetensors").read_bytes() == models[record["seed"]]
    return record["seed"]


def ends(recorder, tmp_path, models):
    """By every moment, what the disks that are possible then leave of a run."""
    known, found = {}, {}
    for done, disk in aftermaths(recorder):
        key = frozenset(disk.items())
        if key not in known:
            known[key] = look_at(disk, tmp_path / f"after-{len(known)}", models)
        found.setdefault(done, set()).add(known[key])
    return found


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The models of two runs that nothing interrupts, by their seed."""
    made = {}
    for seed in (0, 1):
        out = tmp_path_factory.mktemp("whole")
        run(out, seed)
        made[seed] = (out / "model.safetensors").read_bytes()
    return made


def test_a_run_is_there_from_its_first_state_on(tmp_path, models):
    (tmp_path / "disk").mkdir()
    recorder = recorded(tmp_path / "disk")
    found = ends(recorder, tmp_path, models)
    kept = recorder.marks["kept"]
    assert max(found) == len(recorder.operations) > kept > 0
    assert {end for done in range(kept) for end in found[done]} == {"nothing", 0}
    assert {end for done in range(kept, max(found) + 1) for end in found[done]} == {0}


def test_a_run_that_replaces_another_leaves_either(tmp_path, models):
    run(tmp_path / "disk" / "run", seed=1)
    recorder = recorded(tmp_path / "disk", overwrite=True)
    found = ends(recorder, tmp_path, models)
    kept = recorder.marks["kept"]
    assert {end for done in range(kept) for end in found[done]} == {1, 0}
    assert {end for done in range(kept, max(found) + 1) for end in found[done]} == {0}


@pytest.mark.parametrize("forgotten", ["folders", "files"])
def test_the_simulation_bites(tmp_path, models, monkeypatch, forgotten):
    """Without one kind of flush there is a moment at which a run is lost or damaged."""
    whole = storage.flush
    skip = {"folders": lambda path: path.is_dir(), "files": lambda path: path.is_file()}[forgotten]
    monkeypatch.setattr(storage, "flush", lambda path: None if skip(path) else whole(path))
    (tmp_path / "disk").mkdir()
    recorder = recorded(tmp_path / "disk")
    kept = recorder.marks["kept"]
    losses = 0
    for done, disk in aftermaths(recorder):
        names = {name.rpartition("/")[2] for name in disk}
        lost = names.isdisjoint({"state.safetensors", "record.json"})
        damaged = any(
            name.endswith(".safetensors") and not content.rstrip(b"\0")
            for name, content in disk.items()
        )
        losses += done >= kept and (lost or damaged)
        if losses:
            break
    assert losses


def test_a_file_that_is_replaced_is_the_old_one_or_the_new_one(tmp_path):
    (tmp_path / "disk").mkdir()
    path = tmp_path / "disk" / "a.json"
    write_json(path, {"n": 0})
    with Recorder(tmp_path / "disk") as recorder:
        for n in (1, 2):
            write_json(path, {"n": n})
            recorder.mark(n)
    for done, disk in aftermaths(recorder):
        n = json.loads(disk["a.json"])["n"]
        assert n >= max([0, *(m for m, at in recorder.marks.items() if done >= at)])
    assert n == 2
