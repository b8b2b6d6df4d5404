"""Learning from data that arrive in pieces, without an end: one pass over each piece."""

import math
from copy import deepcopy

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from zeroone.nn.heads import HEADS
from zeroone.nn.inputs import as_array, check_rows, check_weights, check_width
from zeroone.nn.labels import encode_labels
from zeroone.nn.network import Network
from zeroone.nn.operators import Shape
from zeroone.nn.scaling import Scaling
from zeroone.nn.targets import TargetScaling
from zeroone.training.epochs import BatchPlan, Epochs
from zeroone.training.loop import Status
from zeroone.training.runs import make_network
from zeroone.training.settings import DTYPES, TrainSettings
from zeroone.training.stochastic_settings import BATCH
from zeroone.training.trainers import BCDTrainer
from zeroone.training.training_data import Subset, TrainingData, as_learned, fit_scaling
from zeroone.utils.checks import InputError, enough_memory


class OnlineLearner:
    """A network that learns one piece of the data after the other."""

    def __init__(
        self,
        network: Network,
        settings: TrainSettings,
        y: ArrayLike | Tensor,
        *,
        fresh: bool = False,
    ) -> None:
        """Prepare to train ``network`` in place; ``fresh`` if it is at its random start.

        The targets y of the first piece decide how to scale numbers while the network learns them.
        """
        if settings.solver != "stochastic":
            raise InputError("learning in pieces is for solver='stochastic'.")
        if settings.stochastic.flash is not None:
            raise InputError("learning in pieces removes no units: flash is for whole trainings.")
        self.network, self.settings, self.pieces = network, settings, 0
        self.samples, self.total_weight = 0, 0.0  # of all weighted pieces so far
        codes = network.targets.encode_known(y, network.classes, len(as_array(y)))
        self.target_scaling = None
        if network.targets.are_numbers:
            self.target_scaling = TargetScaling.fit(codes, centred=settings.bias)
            if not fresh:
                self.target_scaling.unfold(network.operators[-1])
        widths = None if fresh else [op.n_out for op in network.operators[:-1]]
        self.trainer = BCDTrainer(network, settings.stochastic, None, widths=widths)

    @classmethod
    @enough_memory()
    def begin(
        cls,
        X: ArrayLike | Tensor,
        y: ArrayLike | Tensor,
        classes: ArrayLike,
        settings: TrainSettings,
        image: Shape | None = None,
    ) -> "OnlineLearner":
        """Start with a new network; the first piece, X and y, decides how to scale both."""
        dtype = DTYPES[settings.dtype]
        inputs = check_rows(X, dtype)
        known = np.asarray(classes).tolist()
        if HEADS[settings.head].targets.one_class:
            known = encode_labels(classes, len(known))[1]
        parts = {"train": Subset(inputs, torch.empty(len(inputs)))}
        scaling = fit_scaling(inputs, settings, image)
        task = TrainingData(settings, parts, scaling, known, image=image)
        return cls(make_network(task), settings, y, fresh=True)

    @enough_memory()
    def learn(
        self, X: ArrayLike | Tensor, y: ArrayLike | Tensor, sample_weight: ArrayLike | None = None
    ) -> float:
        """Learn from a piece in random order; return the mean loss from before each update."""
        part = self._check(X, y, sample_weight)
        if not len(part.y):
            return 0.0
        s = self.settings.stochastic
        batches = math.ceil(len(part.y) / (s.batch or BATCH))
        # A stream without an end cannot be overfitted: inputs are dropped only on request.
        dropout = s.input_dropout or 0.0
        plan = BatchPlan(1, batches, dropout, self.settings.seed, s.input_noise)
        self.pieces += 1
        entry, stop = Epochs(self.trainer, part, self.network.scaling, plan).iterate(self.pieces)
        if stop and stop[0] is Status.DIVERGED:
            raise InputError(f"training diverged: {stop[1]}; take smaller steps.")
        self.network = self.trainer.model
        self.network.scaling = self.network.scaling.widened(
            Scaling.fit(part.X, self.network.dtype, "common", bits=self.network.scaling.bits)
        )
        return float(entry["loss"])

    def trained(self) -> Network:
        """Return a copy of the network as it is now, in the user's units."""
        network = deepcopy(self.network)
        if self.target_scaling is not None:
            self.target_scaling.fold(network.operators[-1])
        return network

    def _check(
        self, X: ArrayLike | Tensor, y: ArrayLike | Tensor, sample_weight: ArrayLike | None
    ) -> Subset:
        inputs = check_width(check_rows(X, self.network.dtype), self.network.n_features)
        targets = self.network.targets
        codes = targets.encode_known(y, self.network.classes, len(inputs))
        if targets.one_class and bool((codes < 0).any()):
            raise InputError("y holds labels that are not among the classes given first.")
        codes = as_learned(codes, self.target_scaling, self.network.dtype)
        if sample_weight is None:
            return Subset(inputs, codes)
        checked = check_weights(sample_weight, len(inputs), some=False)
        self.samples += len(inputs)
        self.total_weight += float(checked.sum())
        if not self.total_weight:
            return Subset(inputs[:0], codes[:0])
        # 1 on average over all pieces so far: a heavy piece counts for more than a light one.
        relative = (checked * (self.samples / self.total_weight)).to(self.network.dtype)
        return Subset(inputs, codes, relative).rows(torch.nonzero(relative)[:, 0])
