"""Train a LightningModule with BCD on digits: python examples/lightning_module.py."""

import lightning
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from zeroone.nn import Step
from zeroone.optim import BCD


class Digits(lightning.LightningModule):
    """Two hidden layers of 128 units with 0/1 activations."""

    def __init__(self) -> None:
        super().__init__()
        hidden = [nn.Linear(64, 128), Step(), nn.Linear(128, 128), Step()]
        self.net = nn.Sequential(*hidden, nn.Linear(128, 10))

    def training_step(self, batch: list[Tensor]) -> Tensor:  # noqa: D102
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1], label_smoothing=0.1)

    def test_step(self, batch: list[Tensor]) -> None:  # noqa: D102
        self.log("error", (self.net(batch[0]).argmax(dim=1) != batch[1]).float().mean())

    def configure_optimizers(self) -> BCD:  # noqa: D102
        return BCD(self.net, total_steps=int(self.trainer.estimated_stepping_batches))


def main(epochs: int = 15) -> float:
    """Return the test error."""
    lightning.seed_everything(0)
    X, y = (torch.from_numpy(A) for A in load_digits(return_X_y=True))
    train, test = random_split(TensorDataset((X.float() - X.mean()) / X.std(), y), [0.8, 0.2])
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="cpu", **quiet)
    model = Digits()
    trainer.fit(model, DataLoader(train, batch_size=128, shuffle=True))
    return trainer.test(model, DataLoader(test, batch_size=360))[0]["error"]


if __name__ == "__main__":
    main()
