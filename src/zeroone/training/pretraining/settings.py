"""Settings of pretraining."""

from dataclasses import dataclass, replace

from zeroone.baselines.settings import BaselineSettings
from zeroone.nn.backbones import BACKBONES
from zeroone.training import StochasticSettings, TrainSettings
from zeroone.utils.checks import InputError, count, one_of

BATCH = 64


@dataclass(frozen=True)
class PretrainingSettings:
    """Settings of a backbone with ReLU activations and a linear classifier, trained by Adam.

    Attributes:
        backbone: the name of the backbone; see ``zeroone.nn.backbones``.
        epochs: 0 keeps the backbone at its random start.
        batch: None takes 64, or all samples if there are fewer.
        learning_rate: the rate of Adam at the start; it falls linearly to 0.
        smoothing: label smoothing.
        augment: as in ``TrainSettings``; None takes what is usual for the backbone.

    """

    backbone: str
    epochs: int
    batch: int | None = None
    learning_rate: float = 1e-3
    smoothing: float = 0.1
    augment: str | None = None

    def __post_init__(self) -> None:
        one_of("backbone", self.backbone, BACKBONES)
        count("pretraining's epochs", self.epochs, least=0)
        if self.batch is not None:
            count("pretraining's batch", self.batch, least=8)
        _ = self.baseline, self.training(TrainSettings())  # check the others, too

    @property
    def baseline(self) -> BaselineSettings:
        """The network that Adam trains."""
        return BaselineSettings(
            backbone=self.backbone, learning_rate=self.learning_rate, smoothing=self.smoothing
        )

    def fitted(self, n_samples: int) -> "PretrainingSettings":
        """Return the settings with a batch that so many training samples can fill."""
        if self.batch is None:
            return replace(self, batch=min(BATCH, n_samples))
        if self.batch > n_samples:
            raise InputError(
                f"pretraining's batch of {self.batch} is larger than the {n_samples} "
                f"training samples."
            )
        return self

    def training(self, settings: TrainSettings) -> TrainSettings:
        """Return the settings of training; seed and data parts are those of the layers."""
        usual = BACKBONES[self.backbone].augment
        return TrainSettings(
            hidden=(),
            scaling=settings.scaling,
            augment=usual if self.augment is None else self.augment,
            validation=settings.validation,
            dtype=settings.dtype,
            seed=settings.seed,
            device=settings.device,
            stochastic=StochasticSettings(epochs=self.epochs, batch=self.batch),
        )
