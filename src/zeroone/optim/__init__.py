"""Stochastic BCD as a ``torch.optim`` optimizer."""

from zeroone.optim.bcd import BCD, DivergedError
from zeroone.optim.layers import LayerKind, register_layer

__all__ = ["BCD", "DivergedError", "LayerKind", "register_layer"]
