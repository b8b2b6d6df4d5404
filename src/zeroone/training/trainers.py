"""Trainers update a network from one batch: a module, its loss and an optimizer.

``ModuleTrainer`` is the part that BCD and the baselines share. ``BCDTrainer`` trains a 0/1 network
by stochastic BCD.
"""

import gc
import io
import math
from abc import ABC, abstractmethod
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from zeroone.analysis.metrics import Model
from zeroone.nn.chain import Chain
from zeroone.nn.functional import channels_last
from zeroone.nn.heads import Head
from zeroone.nn.layers import MOST_UNITS, thresholds_of
from zeroone.nn.network import Network
from zeroone.nn.operators import Convolution
from zeroone.nn.step import Step
from zeroone.optim import BCD
from zeroone.training.stochastic_settings import StochasticSettings
from zeroone.utils.parallel import ALONE, Share, Team

PROBE = 1000  # samples on which to count flipped bits, at most
PROBED_BITS = 2**26  # of all these samples, at most


class ModuleTrainer(ABC):
    """Run autograd through a module, then take one step of its optimizer.

    The gradient is that of the mean loss over the whole batch, of which a rank holds a share.
    """

    module: nn.Module  # as it is called: wrapped by DDP if there are several ranks
    optimizer: torch.optim.Optimizer
    head: Head  # whose loss it minimises
    team: Team = ALONE
    bf16 = False  # whether the forward pass runs in bfloat16

    @property
    @abstractmethod
    def model(self) -> Model:
        """The model to score."""

    @property
    def settled(self) -> bool:
        """Whether pruning is over."""
        return True

    def update(
        self,
        V0: Tensor,
        y: Tensor,
        rng: torch.Generator,  # noqa: ARG002
        sample_weight: Tensor | None = None,
        share: Share | None = None,
    ) -> Tensor:
        """Learn from a batch.

        Args:
            V0: scaled inputs.
            y: class numbers.
            rng: the source of all random numbers of this batch.
            sample_weight: how often each sample counts, 1 on average over the training part.
            share: which samples of a batch that several ranks share these are; None for all.

        Returns:
            The scores from before the update.

        """
        self.optimizer.zero_grad()
        with torch.autocast(V0.device.type, torch.bfloat16) if self.bf16 else nullcontext():
            scores: Tensor = self.team.listen(partial(self.module, V0))
        scores = scores.to(V0.dtype)
        losses = self.head.training_losses(scores, y, self.head.smoothing)
        weighted = losses if sample_weight is None else losses * sample_weight
        # DDP averages over the ranks what must be a sum.
        total = len(y) if share is None else share.total
        loss = weighted.sum() * (self.team.size / total)
        self.team.listen(loss.backward)
        self.team.listen(self.optimizer.step)
        return scores.detach()

    def notes(self) -> dict[str, Any]:
        """Return further values for the history."""
        return {}

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return everything the next batch depends on."""

    @abstractmethod
    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from the result of ``state()``."""


class BCDTrainer(ModuleTrainer):
    """Stochastic BCD on the layers of a network; counts flipped bits."""

    optimizer: BCD

    def __init__(
        self,
        network: Network,
        settings: StochasticSettings,
        total_steps: int | None,
        probe: Tensor | None = None,
        *,
        widths: list[int] | None = None,
        team: Team = ALONE,
    ) -> None:
        """Prepare to train a network in place.

        Args:
            network: the network to train.
            settings: the settings of stochastic BCD.
            total_steps: the length of the training in batches; None if it has no end.
            probe: scaled inputs on which to count the bits that flip from epoch to epoch.
            widths: how many hidden units a network that was trained before began with; None for
                one at its random start.
            team: the ranks that train together.

        """
        self.network, self.settings, self.total_steps = network, settings, total_steps
        self.probe = None if probe is None else probe[: probe_size(network)]
        self.widths, self.team = widths, team
        self.head = network.head
        self.head.smoothing, self.bf16 = settings.smoothing, settings.bf16
        self._stale = False  # whether the network is behind the module
        self._build()
        self.bits = self._bits()

    def _build(self) -> None:
        """Build a module with the network's weights, and its optimizer."""
        s = self.settings
        self.layers = Chain(
            self.network.layers,
            lambda layer: Step(s.u_rule, thresholds=thresholds_of(layer.bits)),
            Convolution,
        )
        channels_last(self.layers.to(self.network.device))
        self.optimizer = BCD(
            self.layers,
            self.total_steps,
            move=s.move,
            momentum=s.momentum,
            head_step=s.head_step,
            window=s.window,
            damping=s.damping,
            weights=s.weights,
            density=s.density,
            keep=s.keep,
            lam=s.lam,
            balance=self.widths is None,
        )
        if self.widths is not None:
            self.optimizer.began_with(
                {f"layers.{i}.linear": width for i, width in enumerate(self.widths)}
            )
        self.module = self.team.wrap(self.layers)

    @property
    def model(self) -> Network:
        """The network, with the module's current weights."""
        if self._stale:
            self.network.layers = self.layers.as_layers()
            self._stale = False
        return self.network

    @property
    def settled(self) -> bool:
        """Whether pruning is over."""
        removal = self.optimizer.removal
        return removal is None or removal.settled

    def update(
        self,
        V0: Tensor,
        y: Tensor,
        rng: torch.Generator,
        sample_weight: Tensor | None = None,
        share: Share | None = None,
    ) -> Tensor:
        """Update every block once; see ``ModuleTrainer.update``."""
        several = self.team.size > 1
        sizes = [p.shape for p in self.layers.parameters()] if several else []
        self._stale = True
        observer = self.optimizer.observer
        observer.sample_weight = sample_weight
        observer.places = None if share is None else share.places
        if self.settings.u_rule in ("expected", "half"):
            scores = super().update(V0, y, rng, sample_weight, share)
        else:  # the rule may draw random numbers, which must depend on the batch alone
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(torch.randint(2**62, (), generator=rng)))
                scores = super().update(V0, y, rng, sample_weight, share)
        if several:  # each rank normalised by its own samples; the network is one
            norms = [b for b in self.layers.buffers() if b.is_floating_point()]
            self.team.sum_(*norms)
            for values in norms:
                values.div_(self.team.size)
        if several and sizes != [p.shape for p in self.layers.parameters()]:
            # DDP's buckets have the old sizes, as have the autograd nodes that it keeps alive.
            self.module = self.layers
            gc.collect()
            self.module = self.team.wrap(self.layers)
        return scores

    def _bits(self) -> list[tuple[Tensor, Tensor]]:
        """Return a number for each bit, and the bits of each hidden layer."""
        if self.probe is None:
            return []
        split = torch.split(self.probe, PROBE // 4)
        parts = [[V.bool() for V in self.model.hidden_bits(rows)] for rows in split]
        hidden = [torch.cat(bits) for bits in zip(*parts, strict=True)]
        return [(self._units(i, bits.shape[1]), bits) for i, bits in enumerate(hidden)]

    def _units(self, i: int, n: int) -> Tensor:
        removal = self.optimizer.removal
        if removal is None:
            return torch.arange(n)
        units = removal.units[f"layers.{i}.linear"]
        thresholds = torch.arange(n // len(units))[:, None]
        return (units + thresholds * MOST_UNITS).flatten()

    def notes(self) -> dict[str, Any]:
        """Return the share of bits of each layer that flipped; removed units do not count."""
        before, self.bits = self.bits, self._bits()
        flipped = [
            float((old[:, torch.searchsorted(old_units, units)] != new).float().mean())
            for (old_units, old), (units, new) in zip(before, self.bits, strict=True)
        ]
        move = self.optimizer.param_groups[0]["move"]  # which a callback may have changed
        return {"flipped": flipped, "move": move * self.optimizer.left}

    def __getstate__(self) -> dict[str, Any]:
        """Return how to build it again: hooks on modules do not survive copies and pickles."""
        made_of = (self.model, self.settings, self.total_steps, self.probe)
        return {"made_of": made_of, "widths": self.widths, "state": self.state()}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__init__(*kept["made_of"], widths=kept["widths"])  # type: ignore[misc]
        self.restore(kept["state"])

    def state(self) -> dict[str, Tensor]:
        """Return everything the next batch depends on."""
        layers, optimizer = self.layers.state_dict(), self.optimizer.state_dict()
        return {"layers": as_bytes(layers), "optimizer": as_bytes(optimizer)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from the result of ``state()``, with the units that were left then."""
        layers = from_bytes(state["layers"])
        self.network.layers = self.layers.layers_of(layers)
        self.network.to(self.network.scaling.centre.device)
        self._build()
        for name, statistics in self.layers.named_buffers():
            statistics.copy_(layers[name])
        self._stale = True
        self.optimizer.load_state_dict(from_bytes(state["optimizer"]))
        self.bits = self._bits()


def probe_size(network: Network) -> int:
    """Return on how many samples to count the bits of a network: few, if each has very many."""
    bits = sum(math.prod(layer.shape_out) for layer in network.layers[:-1])
    return min(PROBE, max(1, PROBED_BITS // max(1, bits)))


def as_bytes(state: dict[str, Any]) -> Tensor:
    """Serialise a nested state, on any device, to one tensor of bytes."""
    buffer = io.BytesIO()
    torch.save(tree_map_only(Tensor, Tensor.cpu, state), buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def from_bytes(content: Tensor) -> dict[str, Any]:
    """Invert ``as_bytes``; only tensors and plain values are read."""
    buffer = io.BytesIO(content.cpu().numpy().tobytes())
    state: dict[str, Any] = torch.load(buffer, weights_only=True, map_location="cpu")
    return state
