"""The Python in the documents runs, and their commands exist."""

import re
import shlex
from pathlib import Path

import click
import numpy as np
import pytest

from zeroone.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^    (zeroone [a-z].*)$", re.MULTILINE)


def pages_with(pattern):
    return [page for page in PAGES if pattern.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", pages_with(PYTHON), ids=lambda page: page.name)
def test_python_runs(page, tmp_path, monkeypatch):
    """Run the blocks of a page in order, with fewer batches than usual."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("zeroone.training.epochs.LEAST_BATCHES", 1)
    rng = np.random.default_rng(0)
    given = {"X": rng.integers(0, 255, (40, 784)).astype(np.uint8), "y": np.arange(40) % 4}
    for block in PYTHON.findall(page.read_text(encoding="utf-8")):
        exec(compile(block, str(page), "exec"), given)


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
