"""Mini-batches as a learner: an iteration is an epoch, and a trainer learns from each batch."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from zeroone.analysis.metrics import Noise
from zeroone.nn.scaling import Scaling
from zeroone.optim import DivergedError
from zeroone.training.augment import Augment
from zeroone.training.callbacks import Callback
from zeroone.training.loop import Status, Stop
from zeroone.training.settings import TrainSettings
from zeroone.training.stochastic_settings import BATCH
from zeroone.training.trainers import ModuleTrainer
from zeroone.training.training_data import Subset
from zeroone.utils.checks import InputError
from zeroone.utils.parallel import Share

HEAVIEST = 2.0  # the most a sample may weigh in one batch, if other batches can share it
LEAST_EPOCHS, LEAST_BATCHES, SAMPLES_A_BATCH = 10, 60, 4  # see BatchPlan.make
LARGE, LARGE_BATCH = 200_000, 1024  # from so many samples on, batches are so large
FAILED = 1.5  # times the loss of a constant answer: from there on, a training has failed
DROPOUT, FEATURES_TO_DROP, SAMPLES_TO_DROP = 0.2, 16, 100
ENOUGH = 1000  # samples per feature from which layers need no regularisation by dropout


@dataclass(frozen=True)
class BatchPlan:
    """The number of epochs and batches, and everything random about them.

    No random state passes from one epoch to the next, so that a resumed run repeats it.
    """

    epochs: int
    batches: int  # per epoch
    input_dropout: float
    seed: int
    input_noise: float = 0.0

    @classmethod
    def make(cls, part: Subset, settings: TrainSettings, *, of_images: bool = False) -> "BatchPlan":
        """Plan the batches of a training part; its size decides what the settings leave open.

        There are 10 epochs, or as many as make 60 batches and one more for every 4 samples beyond
        256, up to 1,000. Filters share their weights between positions and need no dropout of
        single pixels, which cost accuracy on MNIST. Layers on a backbone's features need it:
        without it, those on a ResNet overfitted CIFAR-10.
        """
        s, (n, n_features) = settings.stochastic, (len(part.y), part.X.shape[1])
        if s.batch is not None and s.batch > n:
            raise InputError(f"batch={s.batch} is larger than the {n} training samples.")
        batches = math.ceil(n / (s.batch or (LARGE_BATCH if n >= LARGE else BATCH)))
        epochs, dropout = s.epochs, s.input_dropout
        if epochs is None:
            # The same for all data that fit one batch: weight 2 equals a sample that comes twice.
            enough = LEAST_BATCHES + max(0, n - BATCH) / SAMPLES_A_BATCH
            epochs = max(LEAST_EPOCHS, math.ceil(min(enough, 1000) / batches))
        if dropout is None:
            few = n_features < FEATURES_TO_DROP or n < SAMPLES_TO_DROP
            dropout = 0.0 if of_images or few or n >= ENOUGH * n_features else DROPOUT
        return cls(epochs, batches, dropout, settings.seed, s.input_noise)

    @property
    def total(self) -> int:
        """The number of batches of all epochs."""
        return self.epochs * self.batches

    def generator(self, epoch: int) -> torch.Generator:
        """Return an epoch's random number generator, which depends on (seed, epoch) only."""
        seed = np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)[0]
        return torch.Generator().manual_seed(int(seed) >> 1)

    def rows(self, part: Subset, rng: torch.Generator) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield the row numbers of each batch in random order, and their weights in it.

        The sizes of batches differ by at most one. A heavy sample would drown the others of its
        batch, so several batches share it, each with a part of its weight.
        """
        turns, weight = torch.arange(len(part.y)), part.sample_weight
        if weight is not None:
            times = (weight / HEAVIEST).ceil().clamp(1, self.batches).long()
            turns, weight = turns.repeat_interleave(times), weight / times
        order = torch.randperm(len(turns), generator=rng)
        for rows in turns[order].tensor_split(self.batches):
            yield rows, None if weight is None else weight[rows]

    def add_noise(self, X: Tensor, scaling: Scaling, rng: torch.Generator, share: Share) -> Tensor:
        """Add Gaussian noise to raw inputs, see ``Noise``; all ranks draw for the whole batch."""
        if not self.input_noise:
            return X
        noise = Noise(self.input_noise, scaling, X.dtype == torch.uint8)
        drawn = torch.empty(share.total, *X.shape[1:]).normal_(generator=rng)
        return X.to(noise.dtype) + share.of(drawn).to(noise.dtype) * noise.std

    def drop_inputs(self, V0: Tensor, rng: torch.Generator, share: Share) -> Tensor:
        """Set random inputs to their mean, 0, and enlarge the others to keep the expected sum.

        All ranks draw for the whole batch and use their share. One random number of 64 bits
        decides on four inputs: that takes a fifth of the time of one number each.
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
    """Iterate a trainer: an iteration is one pass over the training part in random order.

    An epoch leaves nothing behind but the state of the trainer.
    """

    trainer: ModuleTrainer
    part: Subset
    scaling: Scaling
    batch_plan: BatchPlan
    augment: Augment | None = None

    def __post_init__(self) -> None:
        self.limit = self.batch_plan.epochs
        self.at_limit: Stop = (Status.COMPLETED, f"all {self.limit} epochs are done")
        self.plan = {"epochs": self.limit, "batches": self.batch_plan.batches}

    def start(self) -> dict[str, Any]:
        """Return the entry of the untrained network."""
        return {"loss": None, "running_error": None, "seconds": 0.0, **self.trainer.notes()}

    def iterate(
        self, k: int, callbacks: Sequence[Callback] = ()
    ) -> tuple[dict[str, Any], Stop | None]:
        """Run epoch ``k``. Its loss and error are those of each batch before its update."""
        started, head = time.perf_counter(), self.trainer.head
        wrong, seen, loss = 0.0, 0.0, 0.0
        for done, (V0, y, weight, rng, share) in enumerate(self._batches(k), start=1):
            try:
                scores = self.trainer.update(V0, y, rng, weight, share)
            except DivergedError as error:
                entry = {"loss": math.nan, "running_error": None} | self.trainer.notes()
                entry["seconds"] = time.perf_counter() - started
                return entry, (Status.DIVERGED, f"in epoch {k} {error}".rstrip("."))
            losses = head.losses(scores, y)
            wrong, seen = wrong + float(head.targets.mistakes(scores, y).sum()), seen + len(y)
            loss += float((losses if weight is None else losses * weight).sum())
            for callback in callbacks:
                callback.on_batch(k, done, self.batch_plan.batches)
        wrong, seen, loss = self.trainer.team.total(wrong, seen, loss)
        entry = {
            "loss": loss / len(self.part.y),
            "running_error": wrong / seen,
            "seconds": time.perf_counter() - started,
            **self.trainer.notes(),
        }
        stop: Stop | None = None
        if not math.isfinite(loss):
            stop = (Status.DIVERGED, f"the loss was no longer finite in epoch {k}")
        elif k >= self.limit:  # pieces of a stream end with every epoch
            stop = self._failure(k, entry["loss"], V0, y)
        return entry, stop

    def _failure(self, k: int, loss: float, V0: Tensor, y: Tensor) -> Stop | None:
        """Say so if the last update spoiled the network, or if a constant answer beats it.

        Hidden units may have left their windows for good: then nothing below them learns.
        """
        with torch.no_grad():  # some rows are enough: a full batch took a fifth of its time
            scores = self.trainer.model.forward(V0[:BATCH])
        constant = self.trainer.head.losses(scores.new_zeros(len(y), scores.shape[1]), y)
        broken, equal = self.trainer.team.largest(
            not scores.isfinite().all(), float(constant.sum()) / max(1, len(y))
        )
        if broken:
            return Status.DIVERGED, f"the scores were no longer finite after epoch {k}"
        if loss <= FAILED * equal:
            return None
        return Status.FAILED, (
            f"the loss ended at {loss:.3g}, where a constant answer has {equal:.3g}; take a "
            f"smaller move"
        )

    def _batches(
        self, epoch: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor | None, torch.Generator, Share]]:
        """Yield this rank's share of each batch; all random draws are for the whole batch."""
        rng = self.batch_plan.generator(epoch)
        for rows, weight in self.batch_plan.rows(self.part, rng):
            share = self.part.share(rows, self.trainer.team)
            mine = share.of(rows)
            X = self.part.inputs(mine, epoch)
            X = self.augment.apply(X, rng, share) if self.augment else X
            V0 = self.scaling.apply(self.batch_plan.add_noise(X, self.scaling, rng, share))
            V0 = self.batch_plan.drop_inputs(V0, rng, share)
            own = None if weight is None else share.of(weight).to(V0.device)
            yield V0, self.part.y[mine].to(V0.device), own, rng, share
