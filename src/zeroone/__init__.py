"""Neural networks with 0/1 (step) activations, trained by block coordinate descent."""

from typing import TYPE_CHECKING, Any

from zeroone.version import __version__

__all__ = [
    "CSVLogger",
    "Callback",
    "ExactSettings",
    "IntegerModel",
    "Network",
    "Step",
    "StochasticSettings",
    "TensorBoardLogger",
    "TrainSettings",
    "ZeroOneClassifier",
    "__version__",
    "compress",
    "from_torch",
    "load",
    "quantise",
    "to_torch",
    "train",
]

if TYPE_CHECKING:
    from zeroone.compression import compress
    from zeroone.deploy import IntegerModel, load, quantise
    from zeroone.estimator import ZeroOneClassifier
    from zeroone.interop import Step, from_torch, to_torch
    from zeroone.network import Network
    from zeroone.solvers.exact import ExactSettings
    from zeroone.solvers.stochastic_settings import StochasticSettings
    from zeroone.training import (
        Callback,
        CSVLogger,
        TensorBoardLogger,
        TrainSettings,
        train,
    )

_HOME = {
    "CSVLogger": "zeroone.training",
    "Callback": "zeroone.training",
    "ExactSettings": "zeroone.solvers.exact",
    "IntegerModel": "zeroone.deploy",
    "Network": "zeroone.network",
    "StochasticSettings": "zeroone.solvers.stochastic_settings",
    "Step": "zeroone.interop",
    "TensorBoardLogger": "zeroone.training",
    "TrainSettings": "zeroone.training",
    "ZeroOneClassifier": "zeroone.estimator",
    "compress": "zeroone.compression",
    "from_torch": "zeroone.interop",
    "load": "zeroone.deploy",
    "quantise": "zeroone.deploy",
    "to_torch": "zeroone.interop",
    "train": "zeroone.training",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that importing zeroone stays light."""
    if name not in _HOME:
        raise AttributeError(f"module 'zeroone' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
