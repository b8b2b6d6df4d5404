"""The examples of BCD in other people's loops run, and learn."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
pytestmark = pytest.mark.filterwarnings("ignore")  # other people's


def test_a_module_of_ones_own(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["own_module.py", "1", "digits"])
    runpy.run_path(str(EXAMPLES / "own_module.py"), run_name="__main__")
    errors = [float(found) for found in re.findall(r"test error (.*)%", capsys.readouterr().out)]
    assert len(errors) == 10
    assert errors[-1] < 4


def test_its_code_is_short():
    lines = (EXAMPLES / "own_module.py").read_text().splitlines()
    assert sum(map(bool, lines)) <= 30


def test_lightning(tmp_path, monkeypatch):
    pytest.importorskip("lightning", reason="examples/lightning_module.py needs lightning.")
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path(str(EXAMPLES / "lightning_module.py"))["main"]() < 0.06


def test_accelerate(tmp_path, monkeypatch):
    pytest.importorskip("accelerate", reason="examples/accelerate_loop.py needs accelerate.")
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path(str(EXAMPLES / "accelerate_loop.py"))["main"]() < 0.06
