"""The examples run, and their errors are low."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def main_of(name):
    return runpy.run_path(str(EXAMPLES / name))["main"]


def test_digits(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main_of("digits.py")() < 0.05
    assert "units left in each layer: [64, 64]" in capsys.readouterr().out
    assert (tmp_path / "digits.safetensors").is_file()


def test_breast_cancer(capsys):
    sensitivity, specificity, left = main_of("breast_cancer.py")()
    assert sensitivity > 0.95
    assert specificity > 0.95
    assert 3 <= len(left) < 30
    assert "inputs and" in capsys.readouterr().out


def test_images(capsys):
    assert main_of("images.py")() < 0.06
    assert "Conv2d(1, 16" in capsys.readouterr().out


def test_a_module_of_ones_own(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["own_module.py", "0", "digits"])
    runpy.run_path(str(EXAMPLES / "own_module.py"))
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("epoch 10: test error ")
    assert float(last.split()[-1].rstrip("%")) < 6


@pytest.mark.filterwarnings("ignore")  # warnings of those packages
@pytest.mark.parametrize("package", ["accelerate", "lightning"])
def test_loops_of_other_packages(package):
    pytest.importorskip(package)
    name = {"accelerate": "accelerate_loop.py", "lightning": "lightning_module.py"}[package]
    assert main_of(name)() < 0.06


def test_every_example_has_a_test():
    tested = {"digits.py", "breast_cancer.py", "images.py", "own_module.py"}
    tested |= {"accelerate_loop.py", "lightning_module.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested
