"""A baseline: what it looks like and how it is trained."""

from dataclasses import dataclass

from zeroone.baselines.activations import ACTIVATIONS
from zeroone.nn.backbones import BACKBONES
from zeroone.utils.checks import InputError, one_of, positive, share

BACKBONE_ACTIVATIONS = ("relu", "own")


@dataclass(frozen=True)
class BaselineSettings:
    """A network trained by Adam; the widths of its dense layers are the training's ``hidden``.

    activation: of the hidden dense layers
    batch_norm: batch normalisation before each of them
    body: a convolutional body below them, or None
    body_activation: 'relu', so that all methods share their body, or 'own', the baseline's
    learning_rate: of Adam, at the start; falls linearly to 0
    smoothing: label smoothing
    """

    activation: str = "relu"
    batch_norm: bool = False
    body: str | None = None
    body_activation: str = "relu"
    learning_rate: float = 1e-3
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        one_of("activation", self.activation, ACTIVATIONS)
        one_of("body_activation", self.body_activation, BACKBONE_ACTIVATIONS)
        if type(self.batch_norm) is not bool:
            raise InputError(f"batch_norm must be true or false, got {self.batch_norm!r}.")
        if self.body is not None:
            one_of("body", self.body, BACKBONES)
        positive("learning_rate", self.learning_rate)
        share("smoothing", self.smoothing)
