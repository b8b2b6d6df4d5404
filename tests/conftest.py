import signal
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from zeroone.cli import main

# A shell that runs the tests in the background makes them and their children ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Hypothesis draws the same examples on every machine and in every run.
settings.register_profile("zeroone", derandomize=True, deadline=None, max_examples=200)
settings.load_profile("zeroone")


def pytest_addoption(parser):
    parser.addoption(
        "--thorough",
        action="store_true",
        help="1,000 random networks, 10,000 damaged files, 2,400 changed states.",
    )


def pytest_collection_modifyitems(items):
    """Mark the tests that slow_tests.txt names, file by file or one by one."""
    folder = Path(__file__).parent
    slow = set((folder / "slow_tests.txt").read_text(encoding="utf-8").split())
    for item in items:
        file = item.path.relative_to(folder).as_posix()
        if not slow.isdisjoint({file, f"{file}::{item.originalname}"}):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)  # on small matrices a second thread costs more than it gains


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(20)


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Run zeroone in an empty folder and return (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZEROONE_DATA", str(tmp_path / "no-cache"))

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["zeroone", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run


@pytest.fixture(autouse=True)
def registries():
    """What a test registers ends with it."""
    from zeroone.baselines import ACTIVATIONS
    from zeroone.data.registry import REGISTRY
    from zeroone.nn import U_RULES
    from zeroone.nn.backbones import BACKBONES, BITS
    from zeroone.nn.heads import HEADS
    from zeroone.nn.pooling import POOLS
    from zeroone.optim.layers import LAYERS
    from zeroone.training.augment import AUGMENTATIONS

    known = (U_RULES, LAYERS, ACTIVATIONS, BACKBONES, BITS, HEADS, POOLS, REGISTRY, AUGMENTATIONS)
    kept = [(registry, dict(registry)) for registry in known]
    yield
    for registry, before in kept:
        registry.clear()
        registry.update(before)
