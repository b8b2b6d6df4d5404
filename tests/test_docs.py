"""The Python and the commands in the documents run."""

import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import pytest

from tiny_world import FewImages
from zeroone import TrainSettings, train
from zeroone.cli import app
from zeroone.data.embedded import Embedded
from zeroone.data.load import load_data
from zeroone.data.registry import REGISTRY

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PART = re.compile(
    r"^```(python|c)\n(.*?)^```|^    ((?:zeroone [a-z]|gcc |\./)[^\n]*)$", re.DOTALL | re.MULTILINE
)
COMMAND = re.compile(r"^    (zeroone [a-z].*)$", re.MULTILINE)


class FewDigits(Embedded):
    def load(self, data_dir=None):
        all_ = super().load(data_dir)
        return replace(all_, X=all_.X[:100], y=all_.y[:100])


def pages_with(pattern):
    return [page for page in PAGES if pattern.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", pages_with(PART), ids=lambda page: page.name)
def test_pages_run(page, command, tmp_path, monkeypatch):
    """Run the blocks and the commands of a page from top to bottom, on small data.

    Commands that measure or reproduce take minutes to hours: ``test_long_commands.py`` runs them.
    A program in C is the page's ``main.c``.
    """
    monkeypatch.setattr("zeroone.training.epochs.LEAST_BATCHES", 1)
    for name in ("digits", "mnist"):
        monkeypatch.setitem(REGISTRY, name, FewDigits(name, "load_digits", (1, 8, 8)))
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"zoo/(\S+) .*--data \1", text):  # trained on images of their size
        monkeypatch.setitem(REGISTRY, name, FewImages(name, 40))
    prepare(tmp_path, text)
    rng = np.random.default_rng(0)
    given = {"X": rng.integers(0, 255, (40, 784)).astype(np.uint8), "y": np.arange(40) % 4}
    for language, block, line in PART.findall(text):
        if language == "python":
            exec(compile(block, str(page), "exec"), given)
        elif language == "c":
            Path("main.c").write_text(block)
        if line.startswith(("gcc", "./")):
            assert shutil.which("gcc") is None or subprocess.call(line, shell=True) == 0, line
            continue
        for one in filter(None, line.split("&&")):
            words = shlex.split(one, comments=True)[1:]
            if words[0] not in ("bench", "matrix", "reproduce") and "..." not in words:
                assert command(*words)[0] == 0, one


def prepare(folder, text):
    """Write the user's files that pages name, and the runs that they use but do not make."""
    rng = np.random.default_rng(1)
    rows = [f"{a:.3f},{b:.3f},{'yes' if a > b else 'no'}" for a, b in rng.random((60, 2))]
    (folder / "mine.csv").write_text("\n".join(["width,height,kind", *rows]))
    rooms = [f"{a:.3f},{b:.3f},{a + 2 * b:.3f}" for a, b in rng.random((60, 2))]
    (folder / "homes.csv").write_text("\n".join(["size,age,price", *rooms]))
    digits = load_data("digits")
    settings = TrainSettings.from_options(hidden=(8,), epochs=1)
    for run in set(re.findall(r"runs/\w+", text)) - set(re.findall(r"--out (runs/\w+)", text)):
        train(digits.X, digits.y, settings).save(folder / run)


@pytest.mark.parametrize("page", pages_with(COMMAND), ids=lambda page: page.name)
def test_commands_exist(page):
    """Parse each command with its options, without running it."""
    for line in COMMAND.findall(page.read_text(encoding="utf-8")):
        for command in line.split("&&"):
            parse(shlex.split(command.replace("...", ""), comments=True)[1:])


def parse(words, group=app):
    context = click.Context(group, info_name="zeroone")
    name, command, rest = group.resolve_command(context, words)
    if isinstance(command, click.Group):
        parse(rest, command)
    else:
        command.make_context(name, rest, parent=context)


def test_parsing_finds_mistakes():
    for wrong in (["trian"], ["data", "fetch"], ["train", "--hiden", "3"], ["evaluate", "run"]):
        with pytest.raises((ValueError, click.UsageError)):
            parse(wrong)


def test_every_command_is_documented():
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    for name in app.commands:
        assert f"zeroone {name}" in text or f"`{name}" in text, name
