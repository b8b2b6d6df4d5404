"""Train with BCD in an accelerate loop on digits: python examples/accelerate_loop.py."""

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from zeroone.nn import Step
from zeroone.optim import BCD


def main(epochs: int = 15) -> float:
    """Return the test error."""
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    X, y = (torch.from_numpy(A) for A in load_digits(return_X_y=True))
    train, test = random_split(TensorDataset((X.float() - X.mean()) / X.std(), y), [0.8, 0.2])
    hidden = [nn.Linear(64, 128), Step(), nn.Linear(128, 128), Step()]
    model = nn.Sequential(*hidden, nn.Linear(128, 10))
    loader = accelerator.prepare(DataLoader(train, batch_size=128, shuffle=True))
    model = accelerator.prepare(model)
    bcd = accelerator.prepare(BCD(model, total_steps=epochs * len(loader)))
    for _ in range(epochs):
        for x, label in loader:
            bcd.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(x), label, label_smoothing=0.1))
            bcd.step()
    X_test, y_test = test[:]
    with torch.no_grad():
        error = (model.eval()(X_test).argmax(dim=1) != y_test).float().mean().item()
    accelerator.print(f"test error {100 * error:.2f}%")
    return error


if __name__ == "__main__":
    main()
