"""Trainers learn from one batch: a module, its loss, and an optimizer.

``ModuleTrainer`` is what BCD and the baselines share: autograd through a module and one step of an
optimizer. ``BCDTrainer`` trains a 0/1 network by stochastic BCD.
"""

import gc
import io
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from zeroone.analysis.metrics import Model
from zeroone.nn.chain import Chain
from zeroone.nn.convolution import Convolution
from zeroone.nn.functional import channels_last
from zeroone.nn.network import Network
from zeroone.nn.step import Step
from zeroone.optim import BCD
from zeroone.training.stochastic_settings import StochasticSettings
from zeroone.utils.parallel import ALONE, Share, Team

PROBE = 1000  # samples on which flipped bits are counted


class ModuleTrainer(ABC):
    """Autograd through a module, then one step of its optimizer.

    The gradient is that of the mean loss over the whole batch, of which a rank has a share.
    """

    module: nn.Module  # as it is called: DDP's, if there are several ranks
    optimizer: torch.optim.Optimizer
    team: Team = ALONE

    @property
    @abstractmethod
    def model(self) -> Model:
        """What is scored."""

    @property
    def settled(self) -> bool:
        """Whether no more units will be removed."""
        return True

    @abstractmethod
    def training_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """What is minimised, for each sample."""

    def update(
        self,
        V0: Tensor,
        y: Tensor,
        rng: torch.Generator,  # noqa: ARG002
        weights: Tensor | None = None,
        share: Share | None = None,
    ) -> Tensor:
        """Learn from a batch; gives the scores from before."""
        self.optimizer.zero_grad()
        scores = self.backward(V0, y, weights, len(y) if share is None else share.total)
        self.team.listen(self.optimizer.step)
        return scores

    def backward(self, V0: Tensor, y: Tensor, weights: Tensor | None, total: int) -> Tensor:
        """The gradients of the sum of losses over ``total``, on all ranks; gives the scores."""
        scores: Tensor = self.team.listen(lambda: self.module(V0))
        losses = self.training_losses(scores, y)
        # DDP takes the mean over the ranks of what should be a sum.
        loss = (losses if weights is None else losses * weights).sum() * (self.team.size / total)
        self.team.listen(loss.backward)
        return scores.detach()

    def notes(self) -> dict[str, Any]:
        """What the history should say besides."""
        return {}


class BCDTrainer(ModuleTrainer):
    """Stochastic BCD on the layers of a network, which follows them; counts flipped bits."""

    module: nn.Module
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
        """Take charge of a network, which is changed in place.

        Args:
            network: what is trained.
            settings: of stochastic BCD.
            total_steps: the length of the training in batches; None is for one without end.
            probe: scaled inputs on which flipped bits are counted from epoch to epoch.
            widths: of a network that was trained before, how many hidden units it began with;
                None is for one at its random start.
            team: the ranks that train together.

        """
        self.network, self.settings, self.total_steps = network, settings, total_steps
        self.probe, self.widths, self.team = probe, widths, team
        self._stale = False  # whether the network is behind the module
        self._build()
        self.bits = self._bits()

    def _build(self) -> None:
        """A module with the network's weights, and its optimizer."""
        s = self.settings
        self.layers = Chain(self.network.layers, lambda _units: Step(s.u_rule), Convolution)
        channels_last(self.layers.to(self.network.device))
        self.optimizer = BCD(
            self.layers,
            self.total_steps,
            move=s.move,
            head_step=s.head_step,
            window=s.window,
            damping=s.damping,
            weights=s.weights,
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
        """The network, up to date."""
        if self._stale:
            self.network.layers = self.layers.as_layers()
            self._stale = False
        return self.network

    @property
    def settled(self) -> bool:
        """Whether no more units will be removed."""
        removal = self.optimizer.removal
        return removal is None or removal.settled

    def training_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """The head's."""
        return self.network.head.training_losses(scores, y, self.settings.smoothing)

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """What the history calls loss: the head's own, without smoothing."""
        return self.network.head.losses(scores, y)

    def update(
        self,
        V0: Tensor,
        y: Tensor,
        rng: torch.Generator,
        weights: Tensor | None = None,
        share: Share | None = None,
    ) -> Tensor:
        """Every block once."""
        several = self.team.size > 1
        sizes = [p.shape for p in self.layers.parameters()] if several else []
        self._stale = True
        observer = self.optimizer.observer
        observer.sample_weight, observer.places = weights, None if share is None else share.places
        if self.settings.u_rule not in ("expected", "half"):  # it may draw: what is the batch's own
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(torch.randint(2**62, (), generator=rng)))
                scores = super().update(V0, y, rng, weights, share)
        else:
            scores = super().update(V0, y, rng, weights, share)
        if several and sizes != [p.shape for p in self.layers.parameters()]:
            # DDP's buckets are for the old sizes, and so are nodes of autograd that it keeps alive.
            self.module = self.layers
            gc.collect()
            self.module = self.team.wrap(self.layers)
        return scores

    def _bits(self) -> list[tuple[Tensor, Tensor]]:
        """For each hidden layer the names of its units and their bits."""
        if self.probe is None:
            return []
        parts = [self.model.hidden_bits(rows) for rows in torch.split(self.probe, PROBE // 4)]
        hidden = [torch.cat(bits).bool() for bits in zip(*parts, strict=True)]
        return [(self._units(i, bits.shape[1]), bits) for i, bits in enumerate(hidden)]

    def _units(self, i: int, n: int) -> Tensor:
        removal = self.optimizer.removal
        return torch.arange(n) if removal is None else removal.units[f"layers.{i}.linear"]

    def notes(self) -> dict[str, Any]:
        """The share of hidden bits that differ from the last time, a layer; removed units aside."""
        before, self.bits = self.bits, self._bits()
        flipped = [
            float((old[:, torch.searchsorted(old_units, units)] != new).float().mean())
            for (old_units, old), (units, new) in zip(before, self.bits, strict=True)
        ]
        return {"flipped": flipped, "move": self.settings.move * self.optimizer.left}

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles, which hooks on modules do not survive: how to make it again."""
        made_of = (self.model, self.settings, self.total_steps, self.probe)
        return {"made_of": made_of, "widths": self.widths, "state": self.state()}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__init__(*kept["made_of"], widths=kept["widths"])  # type: ignore[misc]
        self.restore(kept["state"])

    def state(self) -> dict[str, Tensor]:
        """All that the next batch depends on."""
        links = {_place(i): link.operator.weight for i, link in enumerate(self.model.links)}
        return links | {"optimizer": as_bytes(self.optimizer.state_dict())}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()``, with the units that were left then."""
        network = self.network
        weights = [state[_place(i)].to(network.device) for i in range(len(network.links))]
        widths = [network.operators[0].n_in]
        widths += [len(W) for W in weights[: len(network.layers) - 1]]
        for link, W in zip(network.links, weights, strict=True):
            network.replace(link, link.operator.resized(W, widths[link.source]))
        self._stale = False
        self._build()
        self.optimizer.load_state_dict(from_bytes(state["optimizer"]))
        self.bits = self._bits()


def _place(i: int) -> str:
    return f"W{i}"


def as_bytes(state: dict[str, Any]) -> Tensor:
    """A nested state as one tensor of bytes, wherever its tensors are."""
    buffer = io.BytesIO()
    torch.save(tree_map_only(Tensor, Tensor.cpu, state), buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def from_bytes(content: Tensor) -> dict[str, Any]:
    """What ``as_bytes`` was given; it reads tensors and plain values only."""
    buffer = io.BytesIO(content.cpu().numpy().tobytes())
    state: dict[str, Any] = torch.load(buffer, weights_only=True, map_location="cpu")
    return state
