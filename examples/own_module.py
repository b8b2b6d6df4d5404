"""A module of one's own in a plain loop: python examples/own_module.py [seed] [data]."""

import sys

import torch
from torch import Tensor, nn

from zeroone.data.load import load_data
from zeroone.nn import Step
from zeroone.optim import BCD


class Model(nn.Module):  # noqa: D101
    def __init__(self, n_inputs: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(n_inputs, 1000), nn.Linear(1000, 1000)
        self.head, self.drop, self.a, self.b = nn.Linear(1000, 10), nn.Dropout(0.2), Step(), Step()

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.head(self.b(self.second(self.a(self.first(self.drop(x))))))


seed, data = (*sys.argv[1:3], *("0", "mnist")[len(sys.argv) - 1 :])
split, _ = load_data(data), torch.manual_seed(int(seed))
X, X_test = (torch.from_numpy(A).float() for A in (split.X, split.X_test))
X, X_test = ((A - X.mean()) / X.std() for A in (X, X_test))
y, y_test = (torch.from_numpy(A).long() for A in (split.y, split.y_test))
model = Model(X.shape[1])
bcd = BCD(model, total_steps=10 * -(-len(X) // 256))
for epoch in range(10):
    for rows in torch.randperm(len(X)).split(256):
        bcd.zero_grad()
        nn.functional.cross_entropy(model(X[rows]), y[rows], label_smoothing=0.1).backward()
        bcd.step()
    with torch.no_grad():
        error = (model.eval()(X_test).argmax(dim=1) != y_test).float().mean()
    model.train()
    print(f"epoch {epoch + 1}: test error {100 * error:.2f}%", flush=True)
