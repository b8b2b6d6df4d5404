"""Hand-written modules with steps, as users would write them."""

import torch
from torch import nn
from torch.nn.functional import max_pool2d

from zeroone.nn import Step


class Branches(nn.Module):
    """Two convolutions side by side, concatenated; global pooling."""

    def __init__(self):
        super().__init__()
        self.narrow, self.wide = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(1, 16, 5, padding=2)
        self.mix, self.head = nn.Conv2d(32, 64, 3, padding=1), nn.Linear(64, 10)
        self.a, self.b, self.c = Step(), Step(), Step()

    def forward(self, x):
        both = torch.cat([self.a(self.narrow(x)), self.b(self.wide(x))], dim=1)
        return self.head(self.c(self.mix(max_pool2d(both, 2))).mean(dim=(2, 3)))


class Separable(nn.Module):
    """Depthwise and pointwise convolutions in turn."""

    def __init__(self, multiplier=1):
        super().__init__()
        self.first, self.head = nn.Conv2d(1, 32, 3, padding=1), nn.Linear(256, 10)
        wide = 32 * multiplier
        self.one = self.block(32, wide, 64)
        self.two = self.block(64, 64, 64)
        self.step, self.shrink, self.pool = Step(), nn.MaxPool2d(2), nn.AvgPool2d(2)

    @staticmethod
    def block(n_in, n_middle, n_out):
        spatial = nn.Conv2d(n_in, n_middle, 3, padding=1, groups=n_in)
        return nn.Sequential(spatial, nn.Conv2d(n_middle, n_out, 1), Step())

    def forward(self, x):
        x = self.shrink(self.one(self.step(self.first(x))))
        return self.head(self.pool(self.two(x)).flatten(1))


class Stream(nn.Module):
    """A residual stream of dense layers: what steps see is the sum of all layers below."""

    def __init__(self, depth=20, width=64, scale=None):
        super().__init__()
        self.first, self.head = nn.Linear(64, width), nn.Linear(width, 10)
        self.branches = nn.ModuleList(nn.Linear(width, width) for _ in range(depth - 2))
        self.steps = nn.ModuleList(Step() for _ in range(depth - 1))
        self.scale = scale

    def forward(self, x):
        stream = self.first(x.flatten(1))
        for branch, step in zip(self.branches, self.steps, strict=False):
            change = branch(step(stream))
            stream = stream + (change if self.scale is None else self.scale * change)
        return self.head(self.steps[-1](stream))


class Words(nn.Module):
    """Tokens, embedded; pairs of them; whether any is found."""

    def __init__(self, tokens=20, width=16, units=48, classes=6):
        super().__init__()
        self.embed, self.pairs = nn.Embedding(tokens, width), nn.Conv1d(width, units, 2)
        self.bits, self.found, self.head = Step(), Step(), nn.Linear(units, classes)

    def forward(self, tokens):
        x = self.bits(self.embed(tokens).transpose(1, 2))
        return self.head(self.found(self.pairs(x)).amax(dim=2))


def sentences(n, seed):
    """Each holds one ordered pair of tokens, 0 to 5, that says its class; all else is noise."""
    rng = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, 20, (n, 8), generator=rng)
    y = torch.randint(6, (n,), generator=rng)
    pairs = torch.tensor([(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)])
    at = torch.randint(7, (n, 1), generator=rng)
    tokens.scatter_(1, torch.cat([at, at + 1], dim=1), pairs[y])
    return tokens, y


class Recurrent(nn.Module):
    """Reads an image row by row with the same weights; their number of units is that of a layer."""

    def __init__(self, width=64):
        super().__init__()
        self.read, self.again = nn.Linear(8, width), nn.Linear(width, width)
        self.step, self.head = Step(), nn.Linear(width, 10)

    def forward(self, x):
        bits = x.new_zeros(len(x), self.again.in_features)
        for row in x[:, 0].unbind(dim=1):
            bits = self.step(self.read(row) + self.again(bits))
        return self.head(bits)


class Normed(nn.Module):
    """BatchNorm between convolutions and steps."""

    def __init__(self):
        super().__init__()
        self.a, self.a_norm = nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.b, self.b_norm = nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32)
        self.a_step, self.b_step, self.head = Step(), Step(), nn.Linear(128, 10)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x):
        x = self.pool(self.a_step(self.a_norm(self.a(x))))
        return self.head(self.pool(self.b_step(self.b_norm(self.b(x)))).flatten(1))
