"""Data in shards: shared out, read, damaged, refused."""

import numpy as np
import pytest
import torch

from zeroone import TrainSettings, train
from zeroone.data.embedded import load_embedded
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
    shard(load_embedded("digits"), tmp_path / "s", 3)
    sharded, digits = load_data(str(tmp_path / "s")), load_embedded("digits")
    assert isinstance(sharded.X, Shards)
    assert np.array_equal(np.asarray(sharded.X), digits.X.astype(np.float32))
    settings = TrainSettings.from_options(hidden=(12,), epochs=2, validation=0.1)
    one = train(digits.X, digits.y, settings, test=digits.test)
    other = train(sharded.X, sharded.y, settings, test=sharded.test)
    assert torch.equal(one.network.operators[0].weight, other.network.operators[0].weight)
    assert one.record["result"]["test_error"] == other.record["result"]["test_error"]


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda f: (f / "X-1.npy").unlink(), "X-1.npy is missing"),
        (lambda f: (f / "X-1.npy").write_bytes(b"no array"), "missing or damaged"),
        (lambda f: (f / "y-0.npy").unlink(), "y-0.npy is missing"),
        (lambda f: np.save(f / "y-0.npy", np.zeros(3)), "another length"),
        (lambda f: np.save(f / "X-0.npy", np.zeros((3, 64), np.float32)), "another shape"),
        (lambda f: (f / "shards.json").write_text("{}"), "not a readable index"),
    ],
)
def test_damaged_shards_are_named(damage, match, tmp_path):
    shard(load_embedded("digits"), tmp_path / "s", 3)
    damage(tmp_path / "s")
    with pytest.raises(InputError, match=match):
        train_on(tmp_path / "s")


def train_on(folder):
    split = load_data(str(folder))
    train(split.X, split.y, TrainSettings.from_options(hidden=(5,), epochs=1))


def test_shards_that_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match="no shards"):
        write_shards([], tmp_path / "a")
    with pytest.raises(InputError, match="features, those before"):
        write_shards([(np.ones((2, 3)), [0, 1]), (np.ones((2, 4)), [0, 1])], tmp_path / "b")
    mixed = [(np.ones((2, 3)), [0, 1]), (np.ones((2, 3), np.uint8), [0, 1])]
    with pytest.raises(InputError, match="shard 1 holds uint8 numbers, those before float32"):
        write_shards(mixed, tmp_path / "m")
    with pytest.raises(InputError, match="some of the files hold bytes"):
        MappedRows([np.asarray(X, dtype) for (X, _), dtype in zip(mixed, "fB", strict=True)])
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "mine.txt").touch()
    with pytest.raises(InputError, match="not empty"):
        write_shards([(np.ones((2, 3)), [0, 1])], tmp_path / "c")
    with pytest.raises(InputError, match="do not make"):
        shard(load_embedded("digits"), tmp_path / "d", 10_000)
    few = Shards(tmp_path, [3, 3], 4, "")
    team = Team()
    team.rank, team.size = 0, 3
    with pytest.raises(InputError, match="2 shards for 3 ranks"):
        few.of(team)
