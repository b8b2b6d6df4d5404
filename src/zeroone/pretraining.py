"""Pretraining under its short name; see ``zeroone.training.pretraining``."""

from typing import Any

from zeroone.training.pretraining import PretrainingSettings, make_features, train_on_backbone

__all__ = ["PretrainingSettings", "make_features", "train_on_backbone"]

RENAMED = {"InitialSettings": "PretrainingSettings", "train_on_body": "train_on_backbone"}


def __getattr__(name: str) -> Any:
    """Say what a name of version 0.1 is called now."""
    if name in RENAMED:
        raise AttributeError(f"{name} is called {RENAMED[name]} now.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
