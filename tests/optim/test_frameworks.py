"""The examples of BCD in other people's loops run, and learn."""

import re
import runpy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from zeroone import ZeroOneClassifier, to_torch
from zeroone.data.load import load_data
from zeroone.optim import BCD

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
pytestmark = pytest.mark.filterwarnings("ignore")  # other people's


def test_a_module_of_ones_own(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["own_module.py", "1", "digits"])
    runpy.run_path(str(EXAMPLES / "own_module.py"), run_name="__main__")
    errors = [float(found) for found in re.findall(r"test error (.*)%", capsys.readouterr().out)]
    assert len(errors) == 10
    assert errors[-1] < 4


def test_its_code_is_short():
    lines = (EXAMPLES / "own_module.py").read_text().splitlines()
    assert sum(map(bool, lines)) <= 30


def test_lightning(tmp_path, monkeypatch):
    pytest.importorskip("lightning", reason="examples/lightning_module.py needs lightning.")
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path(str(EXAMPLES / "lightning_module.py"))["main"]() < 0.06


def test_a_network_of_ours_in_a_lightning_module(tmp_path):
    lightning = pytest.importorskip("lightning", reason="this needs lightning.")
    split = load_data("digits")
    X, y = (torch.from_numpy(A) for A in (split.X, split.y))
    network = ZeroOneClassifier((30,), epochs=2).fit(split.X, split.y).network_

    class Digits(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = to_torch(network, trainable=True)

        def training_step(self, batch):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            steps = int(self.trainer.estimated_stepping_batches)
            return BCD(self.net, total_steps=steps, balance=False)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    folder = {"default_root_dir": tmp_path, "accelerator": "cpu"}
    trainer = lightning.Trainer(max_epochs=2, **quiet, **folder)
    model = Digits()
    trainer.fit(model, DataLoader(TensorDataset(X, y), batch_size=100))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    state = torch.load(tmp_path / "last.ckpt", weights_only=False)
    assert {"net.layers.0.linear.weight", "net.centre"} <= state["state_dict"].keys()
    assert state["optimizer_states"][0]["bcd"]["k"] == 2 * -(-len(X) // 100)
    other = Digits()
    assert not torch.equal(other.net(X), model.net(X))
    other.load_state_dict(state["state_dict"])
    assert torch.equal(other.net(X), model.net(X))


def test_accelerate(tmp_path, monkeypatch):
    pytest.importorskip("accelerate", reason="examples/accelerate_loop.py needs accelerate.")
    monkeypatch.chdir(tmp_path)
    assert runpy.run_path(str(EXAMPLES / "accelerate_loop.py"))["main"]() < 0.06
