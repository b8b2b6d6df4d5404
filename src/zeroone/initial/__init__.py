"""The initial process: a convolutional body trained by Adam, and 0/1 layers trained on it."""

from zeroone.initial.process import make_features, train_on_body
from zeroone.initial.settings import InitialSettings

__all__ = ["InitialSettings", "make_features", "train_on_body"]
