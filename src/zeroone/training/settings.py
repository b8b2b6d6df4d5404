"""Settings of a run, from flat options or from a preset."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from zeroone.exact.solver import PAPER, ExactSettings
from zeroone.nn.heads import HEADS
from zeroone.nn.layers import LayerPlan
from zeroone.nn.scaling import SCALINGS
from zeroone.training.augment import AUGMENTATIONS, Augmentation, name_of
from zeroone.training.stochastic_settings import BATCH, StochasticSettings
from zeroone.utils.checks import InputError, count, not_negative, one_of, positive

DTYPES = {"float32": torch.float32, "float64": torch.float64}
SOLVER_SETTINGS: dict[str, type] = {"stochastic": StochasticSettings, "exact": ExactSettings}
SOLVERS = tuple(SOLVER_SETTINGS)
HIDDEN = (256, 256)
SMALL = 2**24  # multiply-adds of a product that one thread computes at once


@dataclass(frozen=True)
class TrainSettings:
    """What to train and how.

    Attributes:
        hidden: the hidden layers: widths, or convolutions such as 'conv5x5:32:max2';
            '64:bits2' has two bits a unit, 'conv3x3:32:pad1:stream' adds the pre-activations of
            the layer below; None takes two dense layers of 256 units, or the layers of the network
            to start from.
        solver: 'stochastic' (mini-batches, trains every layer) or 'exact' (Algorithm 3 of the
            paper).
        head: 'softmax', or 'hardmax' (the paper's); 'logistic' for several labels per sample,
            'linear' for real numbers.
        margin: hardmax: the lead that a class must have to count as right.
        bias: whether each layer gets a constant-1 input.
        scaling: scale the inputs by one 'common' standard deviation, by that of each 'feature', or
            choose by the data ('auto'); below a convolution, pixels of a channel share their
            centre unless it is 'feature'.
        input_bits: how many upper bits of inputs of bytes to use, 1 to 7; None uses all 8. Few
            bits make the integer form faster for many samples at a time.
        augment: 'none', or a change of the images anew in every epoch: 'flip' mirrors half of them,
            'crop-flip' also shifts all of them; or one of your own (``register_augmentation``); in
            Python also a function, from a batch of images (samples, channels, height, width) to
            changed ones, that draws its random numbers from torch's default generator.
        init_std: the standard deviation of the Gaussian start; None takes the solver's own start.
        validation: the share of the training samples to hold out, class by class, by the seed.
        patience: stop after so many iterations without a better validation error, and restore the
            best weights (of those after the last pruning); None trains to the end. On small data
            an iteration is a small part of the schedule: give it room.
        dtype: 'float32' or 'float64'.
        seed: the seed of the start, the held-out part and the batches.
        device: where batches are computed, 'cpu' or a GPU such as 'cuda'.
        stochastic: the settings of stochastic BCD.
        exact: the settings of the exact solver.

    """

    hidden: tuple[int | str, ...] | None = None
    solver: str = "stochastic"
    head: str = "softmax"
    margin: float = 1.0
    bias: bool = True
    scaling: str = "auto"
    input_bits: int | None = None
    augment: str | Augmentation = "none"
    init_std: float | None = None
    validation: float = 0.0
    patience: int | None = None
    dtype: str = "float32"
    seed: int = 0
    device: str = "cpu"
    stochastic: StochasticSettings = field(default_factory=StochasticSettings)
    exact: ExactSettings = field(default_factory=ExactSettings)

    def __post_init__(self) -> None:
        one_of("solver", self.solver, SOLVERS)
        one_of("head", self.head, HEADS)
        one_of("scaling", self.scaling, SCALINGS)
        one_of("dtype", self.dtype, DTYPES)
        if not callable(self.augment):
            one_of("augment", self.augment, AUGMENTATIONS)
        if self.augment != "none" and self.solver == "exact":
            raise InputError("augment is for batches: the exact solver keeps blocks of its own.")
        object.__setattr__(self, "device", str(self.device))
        if self.hidden is not None:
            object.__setattr__(self, "hidden", _checked_layers(self.hidden))
        object.__setattr__(self, "seed", count("seed", self.seed, least=0, most=2**63 - 1))
        not_negative("margin", self.margin)
        if self.input_bits is not None:
            count("input_bits", self.input_bits, most=7)
        if self.init_std is not None:
            positive("init_std", self.init_std)
        if not_negative("validation", self.validation) >= 1:
            raise InputError(f"validation must be below 1, got {self.validation!r}.")
        if self.patience is not None:
            count("patience", self.patience)
            if not self.validation:
                raise InputError("patience needs a validation part, such as validation=0.1.")
        if self.solver == "exact" and any(plan.stream for plan in self.plans):
            raise InputError("streams (stream) are for solver='stochastic'.")
        if self.solver == "exact" and any(plan.bits for plan in self.plans):
            raise InputError("several bits a unit (bits) are for solver='stochastic'.")
        if self.head != "hardmax" and self.solver == "exact" and self.exact.printed:
            raise InputError("the printed U_h formula is Lemma 1, which needs head='hardmax'.")

    @property
    def layers(self) -> tuple[int | str, ...]:
        """The hidden layers, or the default ones."""
        return HIDDEN if self.hidden is None else self.hidden

    @property
    def plans(self) -> list[LayerPlan]:
        """The hidden layers, parsed."""
        return [LayerPlan.parse(layer) for layer in self.layers]

    @classmethod
    def from_options(cls, preset: str | None = None, **options: Any) -> "TrainSettings":
        """Make settings from one flat set of options, on top of a preset if one is named.

        Args:
            preset: 'paper' for the printed settings.
            options: settings of the run and of its solver, by name.

        Raises:
            InputError: an option is unknown, invalid, or belongs to another solver.

        """
        base = cls()
        if preset is not None:
            base = PRESETS[one_of("preset", preset, PRESETS)]
        solver = one_of("solver", options.get("solver", base.solver), SOLVERS)
        if preset is not None and solver != base.solver:
            raise InputError(f"preset={preset!r} is for solver={base.solver!r}, not {solver!r}.")
        head = one_of("head", options.get("head", base.head), HEADS)
        if "margin" in options and head != "hardmax":
            raise InputError("margin is a setting of head='hardmax'.")
        if "smoothing" in options and not HEADS[head].has_smoothing:
            raise InputError(f"smoothing is for labels, and head={head!r} has none.")
        common = {f.name for f in fields(cls)} - set(SOLVERS)
        own = {name: {f.name for f in fields(kind)} for name, kind in SOLVER_SETTINGS.items()}
        known = common | own[solver]
        for name in options:
            others = [other for other in SOLVERS if name in own[other] - known]
            if others:
                raise InputError(f"{name} is a setting of solver={others[0]!r}, not of {solver!r}.")
            one_of("option", name, sorted(known))
        chosen = {k: v for k, v in options.items() if k in own[solver]}
        shared = {k: v for k, v in options.items() if k in common}
        return replace(base, **shared, **{solver: replace(getattr(base, solver), **chosen)})

    def threads_for(self, n_features: int) -> int | None:
        """Return 1 if layers are so small that more threads would only wait, else None."""
        widths = [n_features, *(plan.units for plan in self.plans)]
        dense = self.solver == "stochastic" and not any(plan.kernel for plan in self.plans)
        small = all(BATCH * a * b <= SMALL for a, b in pairwise(widths))
        return 1 if dense and small else None

    def describe(self) -> dict[str, Any]:
        """Return all settings that affect the result, without those of the other solver."""
        left_out = {"device", *SOLVERS} - {self.solver}
        settings: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        settings |= {"hidden": self.layers, "augment": name_of(self.augment)}
        settings[self.solver] = asdict(getattr(self, self.solver))
        return {k: v for k, v in settings.items() if k not in left_out}

    def flat(self) -> dict[str, Any]:
        """Return the same with the solver's settings among the others."""
        settings = self.describe()
        own: dict[str, Any] = settings.pop(self.solver)
        return settings | own


def _checked_layers(hidden: Any) -> tuple[int | str, ...]:
    if not isinstance(hidden, Sequence | np.ndarray) or isinstance(hidden, str):
        raise InputError(f"hidden must be a sequence of widths, got {hidden!r}.")
    plans = [LayerPlan.parse(layer) for layer in hidden]
    if plans and plans[0].stream:
        raise InputError(f"layer 1 ({plans[0]}): a stream begins at the second layer.")
    return tuple(plan.written for plan in plans)


# Printed: small Gaussian weights (of unknown size), no biases, no margin.
PRESETS = {
    "paper": TrainSettings(
        hidden=(2000, 2000),
        solver="exact",
        head="hardmax",
        margin=0.0,
        bias=False,
        init_std=0.01,
        exact=PAPER,
    )
}
