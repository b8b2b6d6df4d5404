"""How a body is trained before the layers on it."""

from dataclasses import dataclass, replace

from zeroone.baselines.settings import BaselineSettings
from zeroone.nn.backbones import BACKBONES
from zeroone.training import StochasticSettings, TrainSettings
from zeroone.utils.checks import InputError, count, one_of

BATCH = 64
AUGMENTED = ("resnet18", "resnet18-3x3")  # bodies whose images are usually shifted and flipped


@dataclass(frozen=True)
class InitialSettings:
    """A body with ReLU activations and a linear classifier on it, trained by Adam.

    body: its name, see ``zeroone.nn.backbones``
    epochs, batch: of its training; no epochs leave the body as it begins, a batch of None takes 64,
        or all samples if there are fewer
    learning_rate: of Adam, at the start; falls linearly to 0
    smoothing: label smoothing
    augment: as in ``TrainSettings``; None takes 'crop-flip' for ResNets and 'none' for others
    """

    body: str
    epochs: int
    batch: int | None = None
    learning_rate: float = 1e-3
    smoothing: float = 0.1
    augment: str | None = None

    def __post_init__(self) -> None:
        one_of("body", self.body, BACKBONES)
        count("the initial process's epochs", self.epochs, least=0)
        if self.batch is not None:
            count("the initial process's batch", self.batch, least=8)
        _ = self.rival, self.training(TrainSettings())  # refuse the others, too

    @property
    def rival(self) -> BaselineSettings:
        """What Adam trains."""
        return BaselineSettings(
            body=self.body, learning_rate=self.learning_rate, smoothing=self.smoothing
        )

    def fitted(self, n_samples: int) -> "InitialSettings":
        """The same with a batch that so many training samples can fill."""
        if self.batch is None:
            return replace(self, batch=min(BATCH, n_samples))
        if self.batch > n_samples:
            raise InputError(
                f"the initial process's batch of {self.batch} is larger than the {n_samples} "
                f"training samples."
            )
        return self

    def training(self, settings: TrainSettings) -> TrainSettings:
        """Its training, with the seed and the parts of the data of the layers' own."""
        usual = "crop-flip" if self.body in AUGMENTED else "none"
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
