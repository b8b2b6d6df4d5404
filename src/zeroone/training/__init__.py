"""Training: ``train``, its settings, its callbacks, and the loop that everything trains in."""

from zeroone.training.augment import register_augmentation
from zeroone.training.callbacks import Callback, CSVLogger, TensorBoardLogger
from zeroone.training.loop import Status
from zeroone.training.runs import Run, train
from zeroone.training.settings import PRESETS, SOLVERS, TrainSettings
from zeroone.training.stochastic_settings import StochasticSettings

__all__ = [
    "PRESETS",
    "SOLVERS",
    "CSVLogger",
    "Callback",
    "Run",
    "Status",
    "StochasticSettings",
    "TensorBoardLogger",
    "TrainSettings",
    "register_augmentation",
    "train",
]
