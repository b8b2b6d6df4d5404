"""The examples run, and their errors are low."""

import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks.engines import by_c

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


def tone(word, _voice, rng):
    """Half a second: a word has its own frequency, a take its own pitch."""
    hertz = 200 * 1.4 ** (ord(word[0]) % 9) * rng.uniform(0.97, 1.03)
    return np.sin(2 * np.pi * hertz * np.arange(8000) / 16000)


def make_tones(monkeypatch):
    """Fill the folder ``speech`` with tones in place of words, and return the words."""
    make = main_of("make_speech.py")
    words, voices = ["yes", "no", "up"], {"training": "a b c", "validation": "d", "testing": "e"}
    patches = {"speak": tone, "WORDS": " ".join(words), "VOICES": voices}
    for name, value in patches.items():
        monkeypatch.setitem(make.__globals__, name, value)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", lambda name: name)
        make(Path("speech"), takes=6)
    return words


def test_speech(tmp_path, monkeypatch, capsys):
    """Tones in place of words: folder, spectra, training, and the labels of the C program."""
    monkeypatch.chdir(tmp_path)
    words = make_tones(monkeypatch)
    recognise = main_of("speech.py")
    found = recognise.__globals__["read_words"](Path("speech"))
    assert [len(y) for _, y in found.values()] == [54, 18, 18]
    images, spoken = found["test"]
    assert images.shape == (18, 32, 32)
    assert images.dtype == np.uint8
    loudest = {w: int(images[spoken == w].mean(axis=(0, 2)).argmax()) for w in words}
    order = sorted(words, key=lambda word: ord(word[0]) % 9)
    assert sorted(words, key=loudest.get) == order  # low tones in the first rows
    error, network = recognise(Path("speech"), epochs=10)
    assert error < 0.2
    assert "72 recordings to train on, 18 of other voices" in capsys.readouterr().out
    assert Path("speech.c").is_file()
    flat = images.reshape(18, -1)
    if shutil.which("gcc"):
        assert np.array_equal(by_c(network, flat, tmp_path), network.scores(flat))


def test_speech_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="apt-get install espeak-ng"):
        main_of("make_speech.py")(tmp_path)
    with pytest.raises(SystemExit, match="has no recordings"):
        main_of("speech.py")(tmp_path)


def test_no_voice_is_in_two_parts_of_the_speech():
    voices = runpy.run_path(str(EXAMPLES / "make_speech.py"))["VOICES"]
    names = " ".join(voices.values()).split()
    assert len(set(names)) == len(names) == 64
    assert [len(part.split()) for part in voices.values()] == [39, 10, 15]


@pytest.mark.filterwarnings("ignore")  # warnings of those packages
@pytest.mark.parametrize("package", ["accelerate", "lightning"])
def test_loops_of_other_packages(package):
    pytest.importorskip(package)
    name = {"accelerate": "accelerate_loop.py", "lightning": "lightning_module.py"}[package]
    assert main_of(name)() < 0.06


def test_every_example_has_a_test():
    tested = {"digits.py", "breast_cancer.py", "images.py", "own_module.py"}
    tested |= {"accelerate_loop.py", "lightning_module.py", "make_speech.py", "speech.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested
