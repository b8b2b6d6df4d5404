"""Pretraining under its short name; see ``zeroone.training.pretraining``."""

from zeroone.training.pretraining import InitialSettings, make_features, train_on_body

__all__ = ["InitialSettings", "make_features", "train_on_body"]
