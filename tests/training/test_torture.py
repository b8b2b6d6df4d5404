"""The benchmark of interrupted runs, in its quick form."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_interrupted_runs_end_as_uninterrupted_ones_do(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks/torture.py"), "--json", "torture.json"]
    for runs, lines in (("3", ["1/3", "2/3", "3/3"]), ("4", ["4/4"])):  # the second goes on
        done = subprocess.run(
            [*command, "--runs", runs],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        printed = [line.split()[0] for line in done.stdout.splitlines() if "/" in line.split()[0]]
        assert printed == lines
    result = json.loads((tmp_path / "torture.json").read_text(encoding="utf-8"))["result"]
    assert result["identical"] == result["runs"] == 4
