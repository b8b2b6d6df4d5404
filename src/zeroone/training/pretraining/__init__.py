"""Pretraining: Adam trains a convolutional backbone, then BCD trains 0/1 layers on its features.

The paper calls it the "initial process".
"""

from zeroone.training.pretraining.process import make_features, train_on_backbone
from zeroone.training.pretraining.settings import PretrainingSettings

__all__ = ["PretrainingSettings", "make_features", "train_on_backbone"]
