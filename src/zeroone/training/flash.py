"""Choose ``keep`` so that the C export of the trained network fits into the flash of a device."""

from bisect import bisect_right
from dataclasses import replace
from functools import partial

import torch

from zeroone.deploy.exporters.c import size_of
from zeroone.deploy.quantise import check_has_integers, convert
from zeroone.nn.network import Network
from zeroone.nn.scaling import Scaling
from zeroone.training.settings import DTYPES, TrainSettings
from zeroone.training.training_data import TrainingData
from zeroone.utils.checks import InputError


def within_flash(task: TrainingData, scaling: Scaling) -> TrainSettings:
    """Return the settings with the largest ``keep`` whose network fits into ``flash``.

    Raises:
        InputError: no network of these layers fits, or it has no C export.

    """
    settings = task.settings
    budget, asked = settings.stochastic.flash, settings.stochastic.keep or 1.0
    if settings.solver == "exact" or budget is None:
        return settings
    if task.features is not None:
        raise InputError("flash is for networks without a backbone: others have no C export.")
    if scaling.inputs is None:
        raise InputError("flash needs a network to begin with that knows the range of its inputs.")
    widest = max((plan.units for plan in settings.plans), default=1)
    flash = partial(flash_of, task, scaling)
    numbers = range(1, widest + 1)  # of units in the widest layer
    fits = bisect_right(numbers, int(budget), key=lambda units: flash(asked * units / widest))
    if not fits:
        raise InputError(
            f"a network of these layers takes at least {flash(asked / widest):,} bytes of flash, "
            f"more than {int(budget):,}."
        )
    if fits == widest:
        return settings
    return replace(settings, stochastic=replace(settings.stochastic, keep=asked * fits / widest))


def flash_of(task: TrainingData, scaling: Scaling, keep: float) -> int:
    """Return the flash that a network takes at most after a training with this ``keep``."""
    settings = task.settings
    # Rounded as ``Removal`` does.
    plans = [replace(plan, units=max(1, round(keep * plan.units))) for plan in settings.plans]
    shape = task.shape
    if len(shape) == 1:
        scaling = scaling.without_constants()
        shape = (scaling.n_taken,)
        scaling = scaling.take(torch.arange(*shape))  # which inputs are in use takes flash
    else:  # far from the padding's bytes of 0, so that no thresholds around an image coincide
        scaling = replace(scaling, centre=scaling.centre + scaling.scale)
    network = Network.build(
        shape,
        plans,
        len(task.classes),
        settings.head,
        std=1.0,
        dtype=DTYPES[settings.dtype],
        scaling=scaling,
        classes=task.classes,
    )
    check_has_integers(network)
    if settings.stochastic.weights != "real":
        for operator in network.operators[:-1]:
            operator.linear.sign_()
            if settings.stochastic.weights == "ternary":
                operator.linear[0, 0] = 0  # so that weights take two bits
    assert scaling.inputs is not None
    return size_of(convert(network, scaling.inputs)).flash
