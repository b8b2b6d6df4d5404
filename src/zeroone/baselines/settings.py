"""Settings of a baseline."""

from dataclasses import dataclass

from zeroone.baselines.activations import ACTIVATIONS
from zeroone.nn.backbones import BACKBONES
from zeroone.utils.checks import InputError, one_of, positive, share

BACKBONE_ACTIVATIONS = ("relu", "own")


@dataclass(frozen=True)
class BaselineSettings:
    """Settings of a network trained by Adam; ``TrainSettings.hidden`` gives its layers.

    Attributes:
        activation: the name of the hidden activation.
        batch_norm: whether to normalise batches before each of them.
        backbone: the name of a convolutional backbone below the layers, or None.
        backbone_activation: 'relu', so that all methods share their backbone, or 'own'.
        learning_rate: the rate of Adam at the start; it falls linearly to 0.
        smoothing: label smoothing.

    """

    activation: str = "relu"
    batch_norm: bool = False
    backbone: str | None = None
    backbone_activation: str = "relu"
    learning_rate: float = 1e-3
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        one_of("activation", self.activation, ACTIVATIONS)
        one_of("backbone_activation", self.backbone_activation, BACKBONE_ACTIVATIONS)
        if type(self.batch_norm) is not bool:
            raise InputError(f"batch_norm must be true or false, got {self.batch_norm!r}.")
        if self.backbone is not None:
            one_of("backbone", self.backbone, BACKBONES)
        positive("learning_rate", self.learning_rate)
        if share("smoothing", self.smoothing) == 1:
            raise InputError("smoothing must be below 1, got 1.")
