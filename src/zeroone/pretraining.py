"""Pretraining under its short name; see ``zeroone.training.pretraining``."""

from zeroone.training.pretraining import PretrainingSettings, make_features, train_on_backbone

__all__ = ["PretrainingSettings", "make_features", "train_on_backbone"]
