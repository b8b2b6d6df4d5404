"""A few hundred damaged and hostile files for every reader; ``make fuzz`` has a million."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.targets import TARGETS

EACH = 150
DRIVER = Path(__file__).with_name("driver.py")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    options = ["--inputs", str(EACH * len(TARGETS)), "--jobs", "1"]
    command = [sys.executable, str(DRIVER), *options, "--json", "fuzz.json", "--failures", "kept"]
    subprocess.run(command, cwd=folder, check=False, capture_output=True, timeout=300)
    return json.loads((folder / "fuzz.json").read_text())["result"]


@pytest.mark.parametrize("reader", TARGETS)
def test_every_input_is_read_or_refused_in_one_sentence(reader, results):
    found = results[reader]
    assert found["examples"] == []
    assert found["accepted"] + found["refused"] == found["inputs"] == EACH
    assert found["accepted"] > 0
    assert found["refused"] > EACH / 4


PLANTED = f"""
import os, sys, time
sys.path.insert(0, {str(DRIVER.parents[1])!r})
from fuzz import driver, targets
driver.LONGEST = 0.2
def planted(folder):
    path = folder / "a"
    def read():
        kind = path.read_bytes()
        if kind == b"1":
            raise KeyError("a")
        if kind == b"2":
            time.sleep(30)
        if kind == b"3":
            os.abort()
        if kind == b"4":
            bytearray(10**8)
        if kind == b"5":
            raise driver.InputError("no")
    return targets.Target(path, [b"0"], read)
driver.TARGETS["planted"] = planted
driver.input_of = lambda target, reader, seed, index: str(index).encode()
sys.argv = "driver --readers planted --inputs 6 --json fuzz.json --failures kept".split()
sys.exit(driver.main())
"""


def test_the_driver_notices_every_kind_of_failure(tmp_path):
    command = [sys.executable, "-c", PLANTED]
    assert subprocess.run(command, cwd=tmp_path, check=False, timeout=100).returncode == 1
    found = json.loads((tmp_path / "fuzz.json").read_text())["result"]["planted"]
    assert found["failures"] == {"traceback": 1, "hang": 1, "crash": 1, "allocation": 1}
    assert (found["accepted"], found["refused"]) == (2, 1)  # the allocation ends well
    kept = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    kinds = enumerate(("traceback", "hang", "crash", "allocation"), start=1)
    assert kept == {f"planted-{k}-{kind}": str(k).encode() for k, kind in kinds}
