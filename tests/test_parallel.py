"""Several ranks do what one does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

CUTS = {1: [], 2: [0.3], 4: [0.1, 0.45, 0.5]}
JOBS = {
    "dense": {"hidden": [30, 20], "settings": {}},
    "residual": {"hidden": [30, 20, "25:skip2"], "settings": {"u_step": "drawn"}},
    "images": {"hidden": ["conv3x3:6:pad1:max2", "conv2x2:5", 12], "settings": {}},
    "pruned": {"hidden": [30, 20], "settings": {"keep": 0.5, "weights": "ternary"}},
}


def run_ranks(size, job, folder):
    """The weights that each rank ends with."""
    meeting = folder / f"meeting-{size}"
    words = [str(meeting), str(folder), json.dumps(job | {"cuts": CUTS[size]})]
    script = Path(__file__).with_name("rank.py")
    ranks = [
        subprocess.Popen([sys.executable, str(script), str(rank), str(size), *words])
        for rank in range(size)
    ]
    assert [rank.wait(timeout=240) for rank in ranks] == [0] * size
    return [torch.load(folder / f"{size}-{rank}.pt") for rank in range(size)]


def difference(one, other):
    """Relative, of all weights together."""
    gap = sum(float((one[k] - other[k]).double().square().sum()) for k in one)
    return (gap / sum(float(one[k].double().square().sum()) for k in one)) ** 0.5


@pytest.mark.parametrize("name", JOBS)
def test_stochastic_batches(name, tmp_path):
    job = JOBS[name] | {"batches": 100, "batch": 64}
    (alone,) = run_ranks(1, job, tmp_path)
    for size in (2, 4):
        first, *others = run_ranks(size, job, tmp_path)
        for other in others:
            assert difference(first, other) == 0
        assert difference(alone, first) < 1e-4, size
