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
    "nn",
    "optim",
    "quantise",
    "to_torch",
    "train",
]

if TYPE_CHECKING:
    from zeroone import nn, optim
    from zeroone.deploy import IntegerModel, load, quantise
    from zeroone.deploy.compress import compress
    from zeroone.estimator import ZeroOneClassifier
    from zeroone.exact.solver import ExactSettings
    from zeroone.nn import Step
    from zeroone.nn.interop import from_torch, to_torch
    from zeroone.nn.network import Network
    from zeroone.training import (
        Callback,
        CSVLogger,
        StochasticSettings,
        TensorBoardLogger,
        TrainSettings,
        train,
    )

_PACKAGES = ("nn", "optim")
_HOME = {
    "CSVLogger": "zeroone.training",
    "Callback": "zeroone.training",
    "ExactSettings": "zeroone.exact.solver",
    "IntegerModel": "zeroone.deploy",
    "Network": "zeroone.nn.network",
    "StochasticSettings": "zeroone.training",
    "Step": "zeroone.nn",
    "TensorBoardLogger": "zeroone.training",
    "TrainSettings": "zeroone.training",
    "ZeroOneClassifier": "zeroone.estimator",
    "compress": "zeroone.deploy.compress",
    "from_torch": "zeroone.nn.interop",
    "load": "zeroone.deploy",
    "quantise": "zeroone.deploy",
    "to_torch": "zeroone.nn.interop",
    "train": "zeroone.training",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that importing zeroone stays light."""
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"zeroone.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'zeroone' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
