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
        learning_rate: the highest rate of Adam; it falls linearly to 0.
        smoothing: label smoothing.
        warmup: the share of the batches over which the rate rises from 0 first.
        weight_decay: decoupled weight decay.
        bf16: whether to train in bfloat16, by autocast.
        augment: as in ``TrainSettings``; None takes what is usual for the backbone.
        views: of each training image, so many augmented versions get features as well. The layers
            take another version in every epoch, which keeps them from overfitting the features.

    """

    backbone: str
    epochs: int
    batch: int | None = None
    learning_rate: float = 1e-3
    smoothing: float = 0.1
    warmup: float = 0.0
    weight_decay: float = 0.0
    bf16: bool = False
    augment: str | None = None
    views: int = 0

    def __post_init__(self) -> None:
        one_of("backbone", self.backbone, BACKBONES)
        count("pretraining's epochs", self.epochs, least=0)
        if self.batch is not None:
            count("pretraining's batch", self.batch, least=8)
        if count("views", self.views, least=0) and self.usual_augment == "none":
            raise InputError("views are augmented images: they need augment, such as 'crop-flip'.")
        _ = self.baseline, self.training(TrainSettings())  # check the others, too

    @property
    def baseline(self) -> BaselineSettings:
        """The network that Adam trains."""
        return BaselineSettings(
            backbone=self.backbone,
            learning_rate=self.learning_rate,
            smoothing=self.smoothing,
            warmup=self.warmup,
            weight_decay=self.weight_decay,
            bf16=self.bf16,
        )

    @property
    def usual_augment(self) -> str:
        """The augmentation of its images: the one given, or what is usual for the backbone."""
        return BACKBONES[self.backbone].augment if self.augment is None else self.augment

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
        return TrainSettings(
            hidden=(),
            scaling=settings.scaling,
            augment=self.usual_augment,
            validation=settings.validation,
            dtype=settings.dtype,
            seed=settings.seed,
            device=settings.device,
            stochastic=StochasticSettings(epochs=self.epochs, batch=self.batch),
        )
