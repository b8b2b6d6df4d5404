"""A batch takes the documented way from the command line to its first product, a short one."""

import re
import sys
from itertools import groupby
from pathlib import Path

import torch

import zeroone

ROOT = Path(zeroone.__file__).parent


def files_on_the_stack():
    """The files of the package on the call stack, the outermost first."""
    frame, files = sys._getframe(1), []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if ROOT in path.parents:
            files.insert(0, path.relative_to(ROOT))
        frame = frame.f_back
    return files


def test_a_batch_passes_few_files_and_returns_to_no_folder(command, monkeypatch, tmp_path):
    linear, stacks = torch.nn.functional.linear, []

    def product(inputs, weight, bias=None):
        if weight.requires_grad:  # scoring takes no gradients
            stacks.append(files_on_the_stack())
        return linear(inputs, weight, bias)

    monkeypatch.setattr("torch.nn.functional.linear", product)
    words = ("--data", "digits", "--hidden", "8", "--epochs", "1", "--quiet", "--out", tmp_path)
    code, _, err = command("train", *words)
    assert (code, err) == (0, "")
    way = list(dict.fromkeys(map(str, stacks[0])))
    text = (ROOT.parents[1] / "docs/architecture.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^```text\n(cli/.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert [line.split()[0] for line in listed.splitlines()] == way
    assert len(way) <= 15
    folders = [folder for folder, _ in groupby(path.parent for path in stacks[0])]
    assert len(folders) == len(set(folders))
