"""The compiled kernels in their cache: whose they are, whether they are whole."""

import ctypes
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from zeroone.deploy import build
from zeroone.deploy.build import kernels

NEEDS_KERNELS = pytest.mark.skipif(kernels().library is None, reason=kernels().why_not)


@pytest.fixture(autouse=True)
def _quick_compilation(monkeypatch):
    flags = ("-O1" if flag == "-O3" else flag for flag in build.FLAGS)
    monkeypatch.setattr(build, "FLAGS", tuple(flags))


def no_home(_name):
    raise RuntimeError("there is no home")


@pytest.mark.parametrize("cache", ["a file is in the way", "no home", "open to all", "fine"])
def test_where_they_are_built(cache, monkeypatch, tmp_path):
    """Kernels go to the cache folder if it can be made for the user alone, or a temporary one."""
    folder = tmp_path / "cache"
    if cache == "a file is in the way":
        folder.touch()
    if cache == "open to all":
        (folder / "kernels").mkdir(parents=True)
        (folder / "kernels").chmod(0o777)
    monkeypatch.setattr(
        build, "user_cache_path", no_home if cache == "no home" else lambda _: folder
    )
    found = kernels.__wrapped__()
    assert (found.library is None) == (kernels().library is None)
    if found.library is not None:
        kept = list(folder.rglob("*.so")) if folder.is_dir() else []
        assert len(kept) == (cache in ("fine", "open to all"))
        assert not list(folder.rglob(".*kernels*")) if folder.is_dir() else True


def test_why_there_are_none(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "user_cache_path", lambda _name: tmp_path)
    with monkeypatch.context() as patch:
        patch.setenv(build.SWITCH, "0")
        assert kernels.__wrapped__().why_not == "ZEROONE_KERNELS=0"
    with monkeypatch.context() as patch:
        patch.setattr(build.platform, "machine", lambda: "aarch64")
        assert "x86-64" in kernels.__wrapped__().why_not
    with monkeypatch.context() as patch:
        patch.setattr(build.shutil, "which", lambda _name: None)
        assert "no C compiler" in kernels.__wrapped__().why_not
        patch.setattr(build.resources, "files", lambda _package: tmp_path / "nowhere")
        assert "No such file" in kernels.__wrapped__().why_not


def without_its_end(content):
    return content[: len(content) // 2]


def with_a_bit_flipped(content):
    changed = bytearray(content)
    changed[len(changed) // 3] ^= 4
    return bytes(changed)


def text(_content):
    return b"no library"


@NEEDS_KERNELS
@pytest.mark.parametrize("damage", [without_its_end, with_a_bit_flipped, text])
def test_a_damaged_library_is_built_again_and_never_loaded(damage, monkeypatch, tmp_path):
    monkeypatch.setattr(build, "user_cache_path", lambda _name: tmp_path)
    assert kernels.__wrapped__().library is not None
    (built,) = tmp_path.rglob("*.so")
    whole = built.read_bytes()
    built.unlink()  # writing over it would change what this process has loaded
    built.write_bytes(damage(whole))
    built.chmod(0o600)

    def load(path):
        assert Path(path).read_bytes() == whole
        return ctypes.CDLL(path)

    monkeypatch.setattr(build, "ctypes", SimpleNamespace(**vars(ctypes) | {"CDLL": load}))
    assert kernels.__wrapped__().library is not None
    assert [path.read_bytes() for path in tmp_path.rglob("*.so")] == [whole]


@NEEDS_KERNELS
@pytest.mark.parametrize("umask", [0o002, 0o000, 0o077], ids=oct)
def test_one_process_compiles_for_all_whatever_the_umask(umask, monkeypatch, tmp_path):
    monkeypatch.setattr(build, "user_cache_path", lambda _name: tmp_path / "cache" / "zeroone")
    before = os.umask(umask)
    try:
        assert kernels.__wrapped__().library is not None
        (built,) = tmp_path.rglob("*.so")
        assert stat.S_IMODE(built.parent.stat().st_mode) == 0o700
        monkeypatch.setattr(build.shutil, "which", lambda _name: None)
        assert kernels.__wrapped__().library is not None
    finally:
        os.umask(before)


@NEEDS_KERNELS
def test_a_folder_that_others_can_write_is_made_anew(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "user_cache_path", lambda _name: tmp_path)
    folder = tmp_path / "kernels"
    folder.mkdir()
    folder.chmod(0o777)
    assert kernels.__wrapped__().library is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(list(folder.glob("*.so"))) == 1
