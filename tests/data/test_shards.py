"""Data in shards: shared out, read, damaged, refused."""

import io
import json

import numpy as np
import pytest
import torch

from zeroone import Callback, TrainSettings, train
from zeroone.data.load import load_data
from zeroone.data.shards import Shards, shard, share_out, write_shards
from zeroone.utils.checks import InputError
from zeroone.utils.memmap import MappedRows
from zeroone.utils.parallel import Team


def test_shards_are_shared_out():
    assert share_out([5, 5, 5, 5], 2) == [0, 2, 4]
    assert share_out([1, 1, 1, 97], 2) == [0, 3, 4]
    assert share_out([97, 1, 1, 1], 3) == [0, 1, 2, 4]
    assert share_out([3, 3], 2) == [0, 1, 2]


def test_one_process_reads_shards(tmp_path):
    shard(load_data("digits"), tmp_path / "s", 3)
    sharded, digits = load_data(str(tmp_path / "s")), load_data("digits")
    assert isinstance(sharded.X, Shards)
    assert np.array_equal(np.asarray(sharded.X), digits.X.astype(np.float32))
    settings = TrainSettings.from_options(hidden=(12,), epochs=2, validation=0.1)
    one = train(digits.X, digits.y, settings, test=digits.test)
    other = train(sharded.X, sharded.y, settings, test=sharded.test)
    assert torch.equal(one.network.operators[0].weight, other.network.operators[0].weight)
    assert one.record["result"]["test_error"] == other.record["result"]["test_error"]


def with_other_numbers(path):
    content = path.read_bytes()
    path.write_bytes(content[:-4] + bytes(byte ^ 1 for byte in content[-4:]))


def zipped():
    file = io.BytesIO()
    np.savez(file, X=np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize("name", ["X-1.npy", "y-1.npy", "X-test.npy", "y-test.npy"])
@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(b"no array"), "has changed"),
        (lambda path: path.write_bytes(b""), "has changed"),
        (lambda path: np.save(path, np.zeros((3, 64), np.float32)), "has changed"),
        (lambda path: path.write_bytes(zipped()), "has changed"),
        (with_other_numbers, "has changed since it was written: bring it back, or cut the data"),
    ],
)
def test_changed_shards_are_named(damage, match, name, tmp_path):
    shard(load_data("digits"), tmp_path / "s", 3)
    damage(tmp_path / "s" / name)
    with pytest.raises(InputError, match=f"{match}.*{name}|{name}.*{match}"):
        train_on(tmp_path / "s")


@pytest.mark.parametrize(
    "change",
    [
        lambda about: about.clear(),
        lambda about: about.pop("checksum"),
        lambda about: about.update(sizes=[]),
        lambda about: about.update(image="8"),
        lambda about: about["sizes"].reverse(),
        lambda about: about.update(features=63),
        lambda about: about["files"].pop("X-0.npy"),
    ],
)
def test_a_changed_index_is_refused(change, tmp_path):
    digits = load_data("digits")
    pieces = [(digits.X[:500], digits.y[:500]), (digits.X[500:], digits.y[500:])]
    path = write_shards(pieces, tmp_path / "s") / "shards.json"
    about = json.loads(path.read_text())
    change(about)
    path.write_text(json.dumps(about))
    with pytest.raises(InputError, match=r"shards\.json is damaged or of another version"):
        train_on(tmp_path / "s")


def test_a_shard_that_changes_after_the_interruption_is_noticed(tmp_path):
    class Interrupt(Callback):
        def on_iteration(self, entry, model):
            raise KeyboardInterrupt

    shard(load_data("digits"), tmp_path / "s", 3)
    with pytest.raises(KeyboardInterrupt):
        train_on(tmp_path / "s", out=tmp_path / "run", callbacks=[Interrupt()])
    with_other_numbers(tmp_path / "s" / "X-2.npy")
    with pytest.raises(InputError, match=r"X-2.npy has changed since it was written"):
        train_on(tmp_path / "s", out=tmp_path / "run", resume=True)
    with_other_numbers(tmp_path / "s" / "X-2.npy")
    train_on(tmp_path / "s", out=tmp_path / "run", resume=True)


def test_a_rank_reads_the_checksums_of_its_own_shards_only(tmp_path):
    shard(load_data("digits"), tmp_path / "s", 4)
    with_other_numbers(tmp_path / "s" / "X-3.npy")
    shards, team = load_data(str(tmp_path / "s")).X, Team()
    team.size = 2
    assert len(shards.of(team)[0]) == len(shards) // 2
    team.rank = 1
    with pytest.raises(InputError, match=r"X-3.npy has changed"):
        shards.of(team)


def train_on(folder, **more):
    split = load_data(str(folder))
    settings = TrainSettings.from_options(hidden=(5,), epochs=1)
    train(split.X, split.y, settings, test=split.test, **more)


def test_shards_that_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match="no shards"):
        write_shards([], tmp_path / "a")
    with pytest.raises(InputError, match="features, those before"):
        write_shards([(np.ones((2, 3)), [0, 1]), (np.ones((2, 4)), [0, 1])], tmp_path / "b")
    mixed = [(np.ones((2, 3)), [0, 1]), (np.ones((2, 3), np.uint8), [0, 1])]
    with pytest.raises(
        InputError, match="shard 1 has 3 uint8 features, those before 3 float32 features"
    ):
        write_shards(mixed, tmp_path / "m")
    with pytest.raises(InputError, match="some of the files hold bytes"):
        MappedRows([np.asarray(X, dtype) for (X, _), dtype in zip(mixed, "fB", strict=True)])
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "mine.txt").touch()
    with pytest.raises(InputError, match="not empty"):
        write_shards([(np.ones((2, 3)), [0, 1])], tmp_path / "c")
    with pytest.raises(InputError, match="do not make"):
        shard(load_data("digits"), tmp_path / "d", 10_000)
    few = Shards(tmp_path, [3, 3], 4, "", {})
    team = Team()
    team.rank, team.size = 0, 3
    with pytest.raises(InputError, match="2 shards for 3 ranks"):
        few.of(team)
