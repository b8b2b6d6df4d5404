"""Files that are replaced at once, what a killed process leaves of them, and locked folders."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from zeroone.utils import storage
from zeroone.utils.checks import InputError
from zeroone.utils.storage import STATE, locked, remove_leftovers, replacing, write_tensors

KILLED = """
import os, signal, sys
from pathlib import Path
from zeroone.utils.storage import locked, replacing

path = Path(sys.argv[1])
with locked(path.parent), replacing(path) as temporary:
    temporary.write_bytes(bytes(1000))
    temporary.with_name(".tmpOfALibrary").write_bytes(bytes(1000))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_process_left_can_be_removed_and_its_lock_is_free(tmp_path):
    path = tmp_path / "a.txt"
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert len(names(tmp_path)) == 2
    assert names(tmp_path)[0].startswith(".a.txt.")
    with locked(tmp_path), replacing(path) as temporary:
        remove_leftovers(tmp_path / "b.txt")
        temporary.write_text("new")
    with locked(tmp_path):
        remove_leftovers(path)
    assert names(tmp_path) == [".lock", "a.txt"]


def test_files_of_libraries_stay_within_the_temporary_folder(tmp_path, monkeypatch):
    """Safetensors writes a file of its own beside the one it is given."""
    seen = []

    def killed(tensors, path, metadata):
        path.with_name(".tmpOfItsOwn").touch()
        seen.append(names(tmp_path))
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "save_file", killed)
    with pytest.raises(KeyboardInterrupt):
        write_tensors(tmp_path / "s.safetensors", STATE, {}, {"a": torch.zeros(2)})
    assert [name.startswith(".s.safetensors.") for name in seen[0]] == [True]
    assert names(tmp_path) == []


def test_what_others_write_is_left_alone(tmp_path):
    path = tmp_path / "a[1].txt"
    with replacing(path) as first:
        with replacing(path) as second:
            second.write_text("second")
        first.write_text("first")
    assert path.read_text() == "first"
    (tmp_path / ".a[1].txt.bak").touch()  # the user's
    (tmp_path / ".b.txt.x.tmp").mkdir()
    (tmp_path / ".a[1].txt.x.tmp").mkdir()
    remove_leftovers(path)
    assert names(tmp_path) == [".a[1].txt.bak", ".b.txt.x.tmp", "a[1].txt"]


def test_a_folder_is_locked_for_others_and_not_for_oneself(tmp_path):
    refused = []

    def other():
        try:
            with locked(tmp_path / "run"):
                pass
        except InputError as error:
            refused.append(str(error))

    with locked(tmp_path / "run"), locked(tmp_path / "run"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert refused == [
        f"another run is at work in {tmp_path / 'run'}: wait for it, or take another folder."
    ]
    other()
    assert len(refused) == 1


def test_files_have_the_permissions_that_the_user_wants(tmp_path):
    before = os.umask(0o027)
    try:
        path = write_tensors(tmp_path / "s.safetensors", STATE, {}, {"a": torch.zeros(2)})
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("length", [200, 230, 250])
def test_long_names_can_be_written(length, tmp_path):
    path = tmp_path / ("m" * (length - 5) + ".json")
    storage.check_writable(path)
    storage.write_json(path, {})
    assert names(tmp_path) == [path.name]
