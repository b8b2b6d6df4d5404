"""Settings of a baseline."""

from dataclasses import dataclass

from zeroone.baselines.activations import ACTIVATIONS
from zeroone.nn.backbones import BACKBONES
from zeroone.utils.checks import InputError, not_negative, one_of, positive, share

BACKBONE_ACTIVATIONS = ("relu", "own")


@dataclass(frozen=True)
class BaselineSettings:
    """Settings of a network trained by Adam; ``TrainSettings.hidden`` gives its layers.

    Attributes:
        activation: the name of the hidden activation.
        batch_norm: whether to normalise batches before each of them.
        backbone: the name of a convolutional backbone below the layers, or None.
        backbone_activation: 'relu', so that all methods share their backbone, or 'own'.
        learning_rate: the highest rate of Adam; it falls linearly to 0.
        smoothing: label smoothing.
        warmup: the share of the batches over which the rate rises from 0 first.
        weight_decay: decoupled weight decay, as of ``torch.optim.AdamW``.
        bf16: whether to train in bfloat16, by autocast; some processors are twice as fast in it.

    """

    activation: str = "relu"
    batch_norm: bool = False
    backbone: str | None = None
    backbone_activation: str = "relu"
    learning_rate: float = 1e-3
    smoothing: float = 0.1
    warmup: float = 0.0
    weight_decay: float = 0.0
    bf16: bool = False

    def __post_init__(self) -> None:
        one_of("activation", self.activation, ACTIVATIONS)
        one_of("backbone_activation", self.backbone_activation, BACKBONE_ACTIVATIONS)
        for name in ("batch_norm", "bf16"):
            if type(value := getattr(self, name)) is not bool:
                raise InputError(f"{name} must be true or false, got {value!r}.")
        if self.backbone is not None:
            one_of("backbone", self.backbone, BACKBONES)
        positive("learning_rate", self.learning_rate)
        if share("smoothing", self.smoothing) == 1:
            raise InputError("smoothing must be below 1, got 1.")
        share("warmup", self.warmup)
        not_negative("weight_decay", self.weight_decay)
