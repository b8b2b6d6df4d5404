"""Downloads: resumed, refused, at once, on a full disk; nothing half done stays."""

import errno
import gzip
import multiprocessing
import shutil
import time

import numpy as np
import pytest

from data_files import TINY_MNIST, samples
from data_site import FILES
from zeroone.data import archives, download, published
from zeroone.utils.checks import InputError


def left(root):
    """What is in the data folder besides locks, the data sets in the cache by their names."""
    arrays = root / "arrays"
    inside = [p.name for p in arrays.iterdir()] if arrays.exists() else []
    around = [p.name for p in root.iterdir() if p.suffix != ".lock" and p != arrays]
    return sorted(inside + around)


def test_a_data_set_is_fetched_once(site, root):
    seen = []
    split = site.spec().get("url", root, report=lambda *news: seen.append(news))
    assert np.array_equal(split.X, samples(TINY_MNIST, "train")[0])
    assert np.array_equal(split.y_test, samples(TINY_MNIST, "test")[1])
    assert split.X.dtype == np.uint8
    assert isinstance(split.X, np.memmap)
    assert left(root) == ["mnist"]
    assert seen[-1][1] == seen[-1][2]
    requests = len(site.requests)
    site.spec().get("auto", root)
    assert len(site.requests) == requests


def test_a_cut_connection_resumes(site, root):
    name = FILES[0]
    site.answer[name] = ["cut", "cut", "500", "whole"]
    site.spec().get("url", root)
    starts = [start for file, start in site.requests if file == name]
    half = len(site.files[name]) // 2
    assert starts[0] == 0
    assert starts[1] == half
    assert starts[2] > half
    assert starts[3] == starts[2]


def test_a_download_is_taken_up_again_by_the_next_call(site, root):
    name = FILES[0]
    site.answer[name] = ["cut", *["500"] * 10]
    with pytest.raises(InputError, match="cannot be had"):
        site.spec().get("url", root)
    assert not (root / "arrays/mnist").exists()
    site.answer[name] = []
    site.requests.clear()
    site.spec().get("url", root)
    assert site.requests[0] == (name, len(site.files[name]) // 2)


def test_a_server_without_ranges_starts_again(site, root):
    site.answer[FILES[0]] = ["cut", "no ranges"]
    site.spec().get("url", root)
    assert site.spec().cached(root) is not None


FAULTS = {
    "checksum": ("wrong checksum", r"train-images-idx3-ubyte\.gz .* --from FILE"),
    "page": ("a web page in place of", r"train-images-idx3-ubyte\.gz.* --from FILE"),
    "404": ("answers 404", "--from FILE"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_leaves_nothing_and_names_the_way_out(site, root, fault):
    spec = site.spec()
    if fault == "checksum":
        site.files[FILES[0]] = site.files[FILES[0]][:-1] + b"x"
    else:
        site.answer[FILES[0]] = [fault]
    sentence, way_out = FAULTS[fault]
    with pytest.raises(InputError, match=sentence) as error:
        spec.get("url", root)
    assert len(str(error.value).splitlines()) == 1
    with pytest.raises(InputError, match=way_out):
        raise error.value
    assert left(root) == []


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda data: data[:-10], "truncated or damaged"),
        (lambda data: gzip.compress(b"\x01" + gzip.decompress(data)[1:]), "magic number"),
    ],
)
def test_a_broken_file_with_the_right_checksum_is_not_kept(site, root, damage, sentence):
    site.files[FILES[2]] = damage(site.files[FILES[2]])
    with pytest.raises(InputError, match=sentence) as error:
        site.spec().get("url", root)
    assert FILES[2] in str(error.value)
    assert "mnist" not in left(root)


def test_too_many_bytes_are_refused(site, root):
    spec = site.spec()
    site.files[FILES[0]] = bytes(spec.n_bytes + archives.SLACK + 10)
    with pytest.raises(InputError, match="sends more than"):
        spec.get("url", root)
    assert left(root) == []


def test_offline_is_one_sentence(site, root):
    spec = site.spec()
    site.server.shutdown()
    site.server.server_close()
    with pytest.raises(InputError) as error:
        spec.get("auto", root)
    message = str(error.value)
    assert message.startswith("mnist could not be had: ")
    assert "cannot be had" in message
    assert message.endswith("Give your own copy with --from FILE or --from DIR.")
    assert "\n" not in message
    assert left(root) == []


def full_disk(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_while_downloading(site, root):
    """A real one: the unfinished file is /dev/full, which refuses every byte."""
    folder = root / ".mnist-download"
    folder.mkdir(parents=True)
    (folder / f"{FILES[0]}.part").symlink_to("/dev/full")
    with pytest.raises(InputError, match=r"write mnist to .* No space left .* another --data-dir"):
        site.spec().get("url", root)
    assert left(root) == [".mnist-download"]


def test_a_full_disk_while_storing(site, root, monkeypatch):
    monkeypatch.setattr(published.np, "save", full_disk)
    with pytest.raises(InputError, match=r"cannot write mnist to .* another --data-dir"):
        site.spec().get("url", root)
    assert left(root) == [".mnist-download"]  # what was fetched waits for a larger disk


def _fetch_in_process(spec, root, started, answers):
    started.put(True)
    answers.put(len(spec.get("url", root).y))


def test_two_processes_fetch_at_once(site, root):
    """The site holds its first answer until both are at work: only the lock keeps them apart."""
    context = multiprocessing.get_context("spawn")
    started, answers = context.Queue(), context.Queue()
    spec = site.spec()
    workers = [
        context.Process(target=_fetch_in_process, args=(spec, root, started, answers))
        for _ in range(2)
    ]
    site.gate.clear()
    for worker in workers:
        worker.start()
    for _ in workers:
        started.get(timeout=60)
    time.sleep(0.5)
    site.gate.set()
    assert [answers.get(timeout=60) for _ in workers] == [20, 20]
    for worker in workers:
        worker.join()
    assert sorted(name for name, _ in site.requests) == sorted(FILES)  # each file once
    assert left(root) == ["mnist"]


def test_patience_ends_with_the_fourth_try(site, root, monkeypatch):
    pauses = []
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    site.answer[FILES[0]] = ["500", "500", "cut", "whole"]
    site.spec().get("url", root)
    assert pauses == list(download.PAUSES[:3])
    site.answer[FILES[0]] = ["500"] * 4
    shutil.rmtree(root)
    with pytest.raises(InputError, match=r"cannot be had \(it answers 500"):
        site.spec().get("url", root)


@pytest.mark.parametrize("stale", ["too long", "another file", "wrong piece"])
def test_a_stale_part_costs_a_fresh_start_and_no_more(site, root, stale):
    folder = root / ".mnist-download"
    folder.mkdir(parents=True)
    whole = site.files[FILES[0]]
    junk = bytes(len(whole) + 10) if stale == "too long" else bytes(50)
    (folder / f"{FILES[0]}.part").write_bytes(junk)
    if stale == "wrong piece":
        site.answer[FILES[0]] = ["wrong piece"]
    site.spec().get("url", root)
    assert left(root) == ["mnist"]
