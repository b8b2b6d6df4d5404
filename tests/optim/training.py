"""What the tests of BCD share: digits, a teacher's labels, a plain training loop."""

import functools
from itertools import pairwise

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from zeroone.data.load import load_data
from zeroone.nn import Step
from zeroone.optim import BCD


@functools.cache
def digits(dtype=torch.float32):
    """Training and test images (n, 1, 8, 8) of one global spread, and their labels."""
    split = load_data("digits")
    X, X_test = (torch.from_numpy(A).to(dtype).view(-1, 1, 8, 8) for A in (split.X, split.X_test))
    mean, spread = X.mean(), X.std()
    y, y_test = torch.from_numpy(split.y), torch.from_numpy(split.y_test)
    return (X - mean) / spread, y, (X_test - mean) / spread, y_test


@functools.cache
def problem(dtype=torch.float32):
    """200 points that a linear teacher labels."""
    rng = torch.Generator().manual_seed(0)
    X, teacher = torch.randn(200, 20, generator=rng), torch.randn(20, 3, generator=rng)
    return X.to(dtype), (X @ teacher).argmax(dim=1)


def seeded(make, *args, seed=0, **kwargs):
    """What ``make`` makes, the same every time."""
    torch.manual_seed(seed)
    return make(*args, **kwargs)


def mlp(*sizes, rule="expected"):
    """Dense layers with steps between them, for ``problem`` if no sizes are given."""
    layers = []
    for a, b in pairwise(sizes or (20, 40, 30, 3)):
        layers += [nn.Linear(a, b), Step(rule)]
    return nn.Sequential(*layers[:-1])


def train_batch(model, bcd, X, y):
    bcd.zero_grad()
    loss = cross_entropy(model(X), y, label_smoothing=0.1)
    loss.backward()
    bcd.step()
    return loss.item()


def train_batches(model, X, y, n, **options):
    """The same batch n times."""
    bcd = BCD(model, n, **options)
    for _ in range(n):
        train_batch(model, bcd, X, y)
    return bcd


def train(model, X, y, *, epochs=10, size=128, **options):
    """A whole training, in an order of its own in every epoch."""
    bcd = BCD(model, epochs * -(-len(X) // size), **options)
    rng = torch.Generator().manual_seed(1)
    for _ in range(epochs):
        for rows in torch.randperm(len(X), generator=rng).split(size):
            train_batch(model, bcd, X[rows], y[rows])
    return bcd


@torch.no_grad()
def error(model, X, y):
    """The share of wrong labels; the model's mode comes back."""
    mode = model.training
    wrong = (model.eval()(X).argmax(dim=1) != y).float().mean()
    model.train(mode)
    return float(wrong)
