"""Learning from data that arrive in pieces, without an end: one pass over each piece."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from zeroone.data.splits import encode_known_labels, encode_labels
from zeroone.nn.inputs import check_rows, check_weights, check_width
from zeroone.nn.network import Network
from zeroone.nn.operators import Shape
from zeroone.training.epochs import BATCH, BatchPlan, Epochs
from zeroone.training.runs import make_network
from zeroone.training.settings import DTYPES, TrainSettings
from zeroone.training.trainers import BCDTrainer
from zeroone.training.training_data import Subset, TrainingData, fit_scaling
from zeroone.utils.checks import InputError
from zeroone.utils.malloc import enough_memory


class OnlineLearner:
    """A network that learns one piece of the data after the other."""

    def __init__(self, network: Network, settings: TrainSettings, *, fresh: bool = False) -> None:
        """Prepare to train ``network`` in place; ``fresh`` if it is at its random start."""
        if settings.solver != "stochastic":
            raise InputError("learning in pieces is for solver='stochastic'.")
        if settings.stochastic.flash is not None:
            raise InputError("learning in pieces removes no units: flash is for whole trainings.")
        network.scaling = replace(network.scaling, constant=None)  # later pieces may vary more
        self.network, self.settings, self.pieces = network, settings, 0
        self.samples, self.total_weight = 0, 0.0  # of all weighted pieces so far
        widths = None if fresh else [op.n_out for op in network.operators[:-1]]
        self.trainer = BCDTrainer(network, settings.stochastic, None, widths=widths)

    @classmethod
    @enough_memory()
    def begin(
        cls,
        X: ArrayLike | Tensor,
        classes: ArrayLike,
        settings: TrainSettings,
        image: Shape | None = None,
    ) -> "OnlineLearner":
        """Start with a new network; the first piece, X, decides how to scale the inputs."""
        dtype = DTYPES[settings.dtype]
        inputs = check_rows(X, dtype)
        _, known = encode_labels(classes, len(np.asarray(classes)))
        part = Subset(inputs, torch.zeros(len(inputs), dtype=torch.long))
        scaling = fit_scaling(inputs, settings, image)
        task = TrainingData({"train": part}, scaling, known, image=image)
        return cls(make_network(task, settings), settings, fresh=True)

    @enough_memory()
    def learn(
        self, X: ArrayLike | Tensor, y: ArrayLike | Tensor, sample_weight: ArrayLike | None = None
    ) -> float:
        """Learn from a piece in random order; return the mean loss from before each update."""
        part = self._check(X, y, sample_weight)
        if not len(part.y):
            return 0.0
        s = self.settings.stochastic
        batch = min(s.batch or BATCH, len(part.y))
        # A stream without an end cannot be overfitted: inputs are dropped only on request.
        plan = BatchPlan.make(part, 1, batch, s.input_dropout or 0.0, self.settings.seed)
        self.pieces += 1
        done = Epochs(self.trainer, part, self.network.scaling, plan).iterate(self.pieces)
        if done.stop:
            raise InputError(f"training diverged: {done.stop[1]}; take smaller steps.")
        self.network = self.trainer.model
        return float(done.entry["loss"])

    def _check(
        self, X: ArrayLike | Tensor, y: ArrayLike | Tensor, sample_weight: ArrayLike | None
    ) -> Subset:
        inputs = check_width(check_rows(X, self.network.dtype), self.network.n_features)
        codes = encode_known_labels(y, self.network.classes, len(inputs))
        if bool((codes < 0).any()):
            raise InputError("y holds labels that are not among the classes given first.")
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
