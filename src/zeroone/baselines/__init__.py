"""Baselines: networks with other activations, for training by Adam; see ``register_baseline``."""

from zeroone.baselines.activations import ACTIVATIONS, Activation, register_baseline

__all__ = ["ACTIVATIONS", "Activation", "register_baseline"]
