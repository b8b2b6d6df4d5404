"""The C program of the guide prints the labels that Python predicts."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from zeroone import ZeroOneClassifier, quantise
from zeroone.data.load import load_data

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "embedded.md"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_the_program_of_the_guide(tmp_path):
    text = GUIDE.read_text(encoding="utf-8")
    (program,) = re.findall(r"^```c\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    compile_, check = re.findall(r"^    ((?:gcc|\./check) .*)$", text, re.MULTILINE)
    digits = load_data("digits")
    X, X_test = digits.X.astype(np.uint8), digits.X_test.astype(np.uint8)
    network = quantise(ZeroOneClassifier((20,), epochs=2).fit(X, digits.y).network_)
    network.export("c", tmp_path / "digits.c")
    (tmp_path / "main.c").write_text(program)
    X_test.tofile(tmp_path / "samples.bin")
    np.savetxt(tmp_path / "labels.txt", network.predict(X_test), fmt="%s")
    subprocess.run(f"{compile_} -Wall -Wextra -Werror", shell=True, check=True, cwd=tmp_path)
    done = subprocess.run(check, shell=True, check=True, cwd=tmp_path, capture_output=True)
    assert done.stdout == b"agree\n"
