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
    "ZeroOneRegressor",
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
    from zeroone.estimator import ZeroOneClassifier, ZeroOneRegressor
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

_HOMES = {
    "zeroone.deploy": ("IntegerModel", "load", "quantise"),
    "zeroone.deploy.compress": ("compress",),
    "zeroone.estimator": ("ZeroOneClassifier", "ZeroOneRegressor"),
    "zeroone.exact.solver": ("ExactSettings",),
    "zeroone.nn": ("Step",),
    "zeroone.nn.interop": ("from_torch", "to_torch"),
    "zeroone.nn.network": ("Network",),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import zeroone`` stays light."""
    from importlib import import_module

    if name in ("nn", "optim"):
        return import_module(f"zeroone.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'zeroone' has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "zeroone.training")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
