"""Threads and processes that predict from one model at once."""

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_many_threads_and_processes_predict_exactly_and_keep_no_memory(tmp_path):
    """Two seconds of benchmarks/predict_many.py, whose usual form takes a minute."""
    program = REPOSITORY / "benchmarks" / "predict_many.py"
    command = [sys.executable, str(program), "--seconds", "2", "--json", "many.json"]
    subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, timeout=200)
    result = json.loads((tmp_path / "many.json").read_text())["result"]
    assert result["wrong"] == 0
    assert result["died"] == 0
    assert not result["grew"]
    for part in (result["threads"], *result["processes"]):
        assert {"float", "numpy", "chosen"} <= part["calls"].keys()
        assert min(part["calls"].values()) >= 10
