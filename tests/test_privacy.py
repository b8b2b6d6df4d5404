"""Nothing is written but where the documents say: no device id, no queue of events, no lock."""

import os
import shutil
import subprocess
import sys

import pytest

from zeroone.utils import records

SCRIPT = """
import sys
from pathlib import Path

import zeroone

import numpy as np
from zeroone.deploy.build import kernels
from zeroone.deploy.exporters import exporters
from zeroone.deploy.runtime import open_session

out = Path(sys.argv[1])
X = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
settings = zeroone.TrainSettings.from_options(hidden=(9,), epochs=2)
run = zeroone.train(X, X[:, 0] > 0, settings, out=out)
model = zeroone.IntegerModel(zeroone.quantise(zeroone.compress(run.network)))
model.save(out / "small.safetensors")
exporters()["onnx"].write(model.network, out / "model.onnx")
session = open_session(str(out / "model.onnx"), 1)
scores = session.run(["scores"], {"inputs": X})[0]
assert np.array_equal(scores, model.scores(X)) and model.has_session
kernels()
"""


def test_only_the_documented_places_are_written(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    home, here, spare, out = (tmp_path / name for name in ("home", "here", "spare", "out"))
    for folder in (home, here, spare):
        folder.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "ORT_", "ZEROONE_"))}
    env = kept | {"HOME": str(home), "TMPDIR": str(spare), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-c", SCRIPT, str(out)]
    subprocess.run(words, cwd=here, env=env, check=True)
    cache = home / ".cache" / "zeroone" / "kernels"
    known = {home, here, spare, home / ".cache", cache.parent, cache, out}
    known |= {out / name for name in ("model.safetensors", "record.json", ".lock")}
    known |= {out / name for name in ("small.safetensors", "model.onnx")}
    assert set(tmp_path.rglob("*")) - set(cache.glob("kernels-*.so")) <= known


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
def test_a_record_does_not_touch_the_checkout(tmp_path):
    """``git status`` would write the index anew, and lock it, to remember what it looked up."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    file = tmp_path / "a.py"
    file.write_text("1")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    os.utime(file, (1, 1))  # the index knows another time
    before = (tmp_path / ".git" / "index").read_bytes()
    assert records._git(tmp_path, "status", "--porcelain") == ""
    assert (tmp_path / ".git" / "index").read_bytes() == before
