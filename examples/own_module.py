"""Train a torch module in a plain loop: python examples/own_module.py [seed] [data set]."""

import sys

import torch
from torch import nn

from zeroone.data.load import load_data
from zeroone.nn import Step
from zeroone.optim import BCD

seed, data = (sys.argv[1:] + ["0", "mnist"][len(sys.argv) - 1 :])[:2]
torch.manual_seed(int(seed))
split = load_data(data)
X, X_test = torch.from_numpy(split.X).float(), torch.from_numpy(split.X_test).float()
y, y_test = torch.from_numpy(split.y).long(), torch.from_numpy(split.y_test).long()
mean, deviation = X.mean(), X.std()
X, X_test = (X - mean) / deviation, (X_test - mean) / deviation

first = [nn.Dropout(0.2), nn.Linear(X.shape[1], 1000), Step()]
second = [nn.Linear(1000, 1000), Step()]
model = nn.Sequential(*first, *second, nn.Linear(1000, 10))
epochs, batch = 10, 256
bcd = BCD(model, total_steps=epochs * -(-len(X) // batch))  # batches per epoch, rounded up
for epoch in range(epochs):
    model.train()
    for rows in torch.randperm(len(X)).split(batch):
        bcd.zero_grad()
        nn.functional.cross_entropy(model(X[rows]), y[rows], label_smoothing=0.1).backward()
        bcd.step()
    model.eval()
    with torch.no_grad():
        error = (model(X_test).argmax(dim=1) != y_test).float().mean()
    print(f"epoch {epoch + 1}: test error {100 * error:.2f}%", flush=True)
