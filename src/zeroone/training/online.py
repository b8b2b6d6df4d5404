"""Learning from data that come in pieces, without an end: one pass over each piece."""

import math

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from zeroone.data.splits import encode_known_labels
from zeroone.nn.inputs import check_rows, check_weights, check_width
from zeroone.nn.network import Network
from zeroone.nn.operators import Shape
from zeroone.training.epochs import BATCH, BatchPlan
from zeroone.training.runs import make_network
from zeroone.training.settings import TrainSettings
from zeroone.training.trainers import BCDTrainer
from zeroone.training.training_data import Subset, TrainingData
from zeroone.utils.checks import InputError
from zeroone.utils.parallel import Share


class OnlineLearner:
    """A network that learns on."""

    def __init__(self, network: Network, settings: TrainSettings, *, fresh: bool = False) -> None:
        """``fresh``: whether the network is at its random start. It is changed in place."""
        if settings.solver != "stochastic":
            raise InputError("learning in pieces is for solver='stochastic'.")
        self.network, self.settings, self.pieces = network, settings, 0
        self.samples, self.heaviness = 0, 0.0  # so far, and what they weigh
        widths = None if fresh else [op.n_out for op in network.operators[:-1]]
        self.trainer = BCDTrainer(network, settings.stochastic, None, widths=widths)

    @classmethod
    def begin(
        cls,
        X: ArrayLike | Tensor,
        classes: ArrayLike,
        settings: TrainSettings,
        image: Shape | None = None,
    ) -> "OnlineLearner":
        """With a new network; the first piece X decides how inputs are scaled."""
        task = TrainingData.for_inputs(X, classes, settings, image)
        return cls(make_network(task, settings), settings, fresh=True)

    def learn(
        self, X: ArrayLike | Tensor, y: ArrayLike | Tensor, weights: ArrayLike | None = None
    ) -> float:
        """One pass over a piece in random order; gives the mean loss from before each batch."""
        part = self._check(X, y, weights)
        if not len(part.y):
            return 0.0
        s, n = self.settings.stochastic, len(part.y)
        batch = min(s.batch or BATCH, n)
        # Without an end there is nothing to be overfitted to: inputs are dropped if asked to be.
        plan = BatchPlan.make(part, 1, batch, s.input_dropout or 0.0, self.settings.seed)
        self.pieces += 1
        rng, loss = plan.generator(self.pieces), 0.0
        for rows, heavy in plan.rows(part, rng):
            V0 = plan.drop_inputs(self.network.scaling.apply(part.X[rows]), rng, Share(len(rows)))
            scores = self.trainer.update(V0, part.y[rows], rng, heavy)
            losses = self.network.head.losses(scores, part.y[rows])
            loss += float((losses if heavy is None else losses * heavy).sum())
        if not math.isfinite(loss):
            raise InputError("training diverged: the loss is no longer finite; take smaller steps.")
        self.network = self.trainer.model
        return loss / n

    def _check(
        self, X: ArrayLike | Tensor, y: ArrayLike | Tensor, weights: ArrayLike | None
    ) -> Subset:
        inputs = check_width(check_rows(X, self.network.dtype), self.network.n_features)
        codes = encode_known_labels(y, self.network.classes, len(inputs))
        if bool((codes < 0).any()):
            raise InputError("y holds labels that are not among the classes given first.")
        if weights is None:
            return Subset(inputs, codes)
        checked = check_weights(weights, len(inputs), some=False)
        self.samples += len(inputs)
        self.heaviness += float(checked.sum())
        if not self.heaviness:
            return Subset(inputs[:0], codes[:0])
        # 1 on average over all pieces so far: a heavy piece counts for more than a light one.
        relative = (checked * (self.samples / self.heaviness)).to(self.network.dtype)
        return Subset(inputs, codes, relative).rows(torch.nonzero(relative)[:, 0])
