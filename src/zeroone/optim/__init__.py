"""Stochastic BCD as a ``torch.optim`` optimizer."""

from zeroone.optim.bcd import BCD
from zeroone.optim.layers import LayerKind, register_layer
from zeroone.optim.w_block import DivergedError

__all__ = ["BCD", "DivergedError", "LayerKind", "register_layer"]
