"""Mini-batches as a learner: an iteration is an epoch, of whatever rule learns from a batch."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from zeroone.analysis.metrics import Model
from zeroone.nn.functional import classify
from zeroone.nn.scaling import Scaling
from zeroone.optim import DivergedError
from zeroone.training.augment import CropFlip
from zeroone.training.learner import Iteration, OnBatch, Status, silent
from zeroone.training.training_data import Subset
from zeroone.utils.checks import InputError
from zeroone.utils.parallel import ALONE, Share, Team

BATCH = 256
HEAVIEST = 2.0  # what a sample counts in one batch, if it can be spread over several
LEAST_EPOCHS, LEAST_BATCHES, SAMPLES_A_BATCH = 10, 60, 4  # see BatchPlan.make
LARGE, LARGE_BATCH = 200_000, 1024  # samples from which batches are larger, and those
FEW = 20  # batches: an epoch of fewer is short
DROPOUT, FEATURES_TO_DROP, SAMPLES_TO_DROP = 0.2, 16, 100


class Trainer(Protocol):
    """Learns from one batch."""

    @property
    def model(self) -> Model:
        """What is scored."""

    @property
    def settled(self) -> bool:
        """Whether no more units will be removed."""

    def update(
        self,
        V0: Tensor,
        y: Tensor,
        rng: torch.Generator,
        weights: Tensor | None = None,
        share: Share | None = None,
    ) -> Tensor:
        """Learn from scaled inputs; gives the scores from before.

        ``weights``: how often each sample counts, 1 on average over the training part. ``share``:
        which samples of a batch that several ranks share these are; None is for all.
        """

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """What the history calls loss, for each sample."""

    def notes(self) -> dict[str, Any]:
        """What the history should say besides."""

    def state(self) -> dict[str, Tensor]:
        """All that the next batch depends on."""

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()``."""


@dataclass(frozen=True)
class BatchPlan:
    """How many epochs of how many batches; nothing random is kept from one epoch to the next."""

    epochs: int
    batches: int  # an epoch
    input_dropout: float
    seed: int

    @classmethod
    def make(
        cls,
        part: Subset,
        epochs: int | None,
        batch: int | None,
        dropout: float | None,
        seed: int,
        *,
        of_images: bool = False,
    ) -> "BatchPlan":
        """For a training part; None takes what works for its size.

        Without ``epochs``: 10, or as many as make 60 batches, and one more for every 4 samples
        beyond 256, up to 1,000.

        ``of_images``: whether the inputs are images for a convolution. Filters, shared between
        positions, need no dropout of single pixels; on MNIST it cost them accuracy. Layers on a
        body's features do need it: without, those on a ResNet learned CIFAR-10 by heart.
        """
        n, n_features = len(part.y), part.X.shape[1]
        if dropout is None:
            few = n_features < FEATURES_TO_DROP or n < SAMPLES_TO_DROP
            dropout = 0.0 if of_images or few else DROPOUT
        if batch is not None and batch > n:
            raise InputError(f"batch={batch} is larger than the {n} training samples.")
        batches = math.ceil(n / (batch or min(LARGE_BATCH if n >= LARGE else BATCH, n)))
        # The same for all data of one batch: there, weight 2 is a sample that comes twice.
        enough = LEAST_BATCHES + max(0, n - BATCH) / SAMPLES_A_BATCH
        least = max(LEAST_EPOCHS, math.ceil(min(enough, 1000) / batches))
        return cls(least if epochs is None else epochs, batches, dropout, seed)

    @property
    def total(self) -> int:
        """Batches in all."""
        return self.epochs * self.batches

    def generator(self, epoch: int) -> torch.Generator:
        """The epoch's own source of random numbers, the same whether or not it was resumed."""
        seed = np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)[0]
        return torch.Generator().manual_seed(int(seed) >> 1)

    def rows(self, part: Subset, rng: torch.Generator) -> Iterator[tuple[Tensor, Tensor | None]]:
        """The row numbers of each batch in random order, and what they weigh there.

        The sizes of batches differ by one at most. A sample that weighs much would drown the others
        of its batch: it takes several turns, at most as many as there are batches, which share it.
        """
        if part.weights is None:
            for rows in self._shuffled(len(part.y), rng):
                yield rows, None
            return
        times = (part.weights / HEAVIEST).ceil().clamp(1, self.batches).long()
        turns = torch.arange(len(times)).repeat_interleave(times)
        for some in self._shuffled(len(turns), rng):
            rows = turns[some]
            yield rows, part.weights[rows] / times[rows]

    def _shuffled(self, n: int, rng: torch.Generator) -> tuple[Tensor, ...]:
        return torch.randperm(n, generator=rng).tensor_split(self.batches)

    def drop_inputs(self, V0: Tensor, rng: torch.Generator, share: Share) -> Tensor:
        """Set some of the inputs, at random, to their mean, 0, and enlarge the others.

        Drawn for the whole batch, of which a rank has its share: four inputs by one random number
        of 64 bits, which takes a fifth of the time of drawing one by one.
        """
        dropped = min(round(self.input_dropout * 2**16), 2**16 - 1)
        if not dropped:
            return V0
        shape = (share.total, *V0.shape[1:])
        drawn = torch.empty(-(-math.prod(shape) // 4), dtype=torch.int64, device=rng.device)
        drawn.random_(-(2**63), None, generator=rng)
        numbers = drawn.view(torch.int16)[: math.prod(shape)].view(shape)
        kept = (share.of(numbers) >= dropped - 2**15).to(V0.device)
        return V0.mul_(kept).mul_(1 / (1 - dropped / 2**16))


@dataclass
class Epochs:
    """Mini-batches: an iteration is one pass over the samples in random order."""

    rule: Trainer
    part: Subset
    scaling: Scaling
    batch_plan: BatchPlan
    augment: CropFlip | None = None
    team: Team = ALONE
    limit: int = field(init=False)
    at_limit: tuple[Status, str] = field(init=False)

    def __post_init__(self) -> None:
        self.limit = self.batch_plan.epochs
        self.at_limit = (Status.COMPLETED, f"all {self.limit} epochs are done")

    @property
    def plan(self) -> dict[str, int]:
        """How many epochs of how many batches."""
        return {"epochs": self.batch_plan.epochs, "batches": self.batch_plan.batches}

    @property
    def model(self) -> Model:
        """The rule's."""
        return self.rule.model

    @property
    def settled(self) -> bool:
        """The rule's word."""
        return self.rule.settled

    def start(self) -> dict[str, Any]:
        """Nothing has been seen yet."""
        return {"loss": None, "running_error": None, "seconds": 0.0, **self.rule.notes()}

    def iterate(self, k: int, on_batch: OnBatch = silent) -> Iteration:
        """One epoch. ``loss`` and ``running_error`` are those of each batch before its update."""
        started = time.perf_counter()
        wrong, seen, loss = 0.0, 0.0, 0.0
        for done, (V0, y, weights, rng, share) in enumerate(self._batches(k), start=1):
            try:
                scores = self.rule.update(V0, y, rng, weights, share)
            except DivergedError as error:
                entry = {"loss": math.nan, "running_error": None} | self.rule.notes()
                entry["seconds"] = time.perf_counter() - started
                return Iteration(entry, (Status.DIVERGED, f"in epoch {k} {error}".rstrip(".")))
            losses = self.rule.losses(scores, y)
            wrong, seen = wrong + int((classify(scores) != y).sum()), seen + len(y)
            loss += float((losses if weights is None else losses * weights).sum())
            on_batch(done, self.batch_plan.batches)
        wrong, seen, loss = self.team.total(wrong, seen, loss)
        entry = {
            "loss": loss / len(self.part.y),
            "running_error": wrong / seen,
            "seconds": time.perf_counter() - started,
            **self.rule.notes(),
        }
        if not math.isfinite(loss):
            reason = f"the loss was no longer finite in epoch {k}"
            return Iteration(entry, (Status.DIVERGED, reason))
        if k < self.limit and self.batch_plan.batches < FEW:
            return Iteration(entry)  # the next loss will tell
        with torch.no_grad():  # the last update may be the one that went wrong
            # Some rows tell: all of a full batch took a fifth of its time.
            went_wrong = not bool(self.rule.model.forward(V0[:BATCH]).isfinite().all())
        if self.team.largest(went_wrong)[0]:
            reason = f"the scores were no longer finite after epoch {k}"
            return Iteration(entry, (Status.DIVERGED, reason))
        return Iteration(entry)

    def _batches(
        self, epoch: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor | None, torch.Generator, Share]]:
        """Of each batch what is this rank's; all that is random is drawn for the whole batch."""
        rng = self.batch_plan.generator(epoch)
        for rows, weights in self.batch_plan.rows(self.part, rng):
            share = self.part.share(rows, self.team)
            mine, heavy = share.of(rows), None if weights is None else share.of(weights)
            X = self.part.inputs(mine)
            V0 = self.scaling.apply(self.augment.apply(X, rng, share) if self.augment else X)
            V0 = self.batch_plan.drop_inputs(V0, rng, share)
            heavy = None if heavy is None else heavy.to(V0.device)
            yield V0, self.part.y[mine].to(V0.device), heavy, rng, share

    def state(self) -> dict[str, Tensor]:
        """The rule's: the epochs themselves keep nothing."""
        return self.rule.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()``."""
        self.rule.restore(state)
