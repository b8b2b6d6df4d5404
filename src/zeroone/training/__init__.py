"""Training: settings, the one loop over a learner, its state on disk, and ``train``."""

from zeroone.training.callbacks import Callback
from zeroone.training.learner import Status
from zeroone.training.loggers import CSVLogger, TensorBoardLogger
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
    "train",
]
