"""Stochastic BCD as a ``torch.optim`` optimizer."""

from zeroone.optim.bcd import BCD as BCD
