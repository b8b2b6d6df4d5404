"""A fully connected network of any activation, trained by Adam with softmax and cross entropy."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from zeroone.baselines.activations import ACTIVATIONS
from zeroone.checks import one_of, positive, share
from zeroone.scaling import Scaling


@dataclass(frozen=True)
class AdamSettings:
    """A rival: its activation and how it is trained.

    batch_norm: batch normalisation before each activation
    learning_rate: of Adam, at the start; falls linearly to 0
    smoothing: label smoothing
    """

    activation: str = "relu"
    batch_norm: bool = False
    learning_rate: float = 1e-3
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        one_of("activation", self.activation, ACTIVATIONS)
        positive("learning_rate", self.learning_rate)
        share("smoothing", self.smoothing)


class FloatNetwork(nn.Module):
    """Linear layers, each hidden one followed by batch normalisation (or not) and activation."""

    def __init__(self, widths: list[int], settings: AdamSettings, scaling: Scaling) -> None:
        super().__init__()
        self.scaling = scaling
        self.activate = ACTIVATIONS[settings.activation]
        self.layers = nn.ModuleList(nn.Linear(n_in, n_out) for n_in, n_out in pairwise(widths))
        norm = nn.BatchNorm1d if settings.batch_norm else nn.Identity
        self.norms = nn.ModuleList(norm(width) for width in widths[1:-1])

    def forward(self, V: Tensor) -> Tensor:
        """The scores of scaled inputs."""
        for layer, norm in zip(self.layers, self.norms, strict=False):
            V = self.activate(norm(layer(V)))
        scores: Tensor = self.layers[-1](V)
        return scores


class AdamRule:
    """Back-propagation and one step of Adam for each batch."""

    def __init__(self, model: FloatNetwork, settings: AdamSettings, n_batches: int) -> None:
        self.model, self.settings, self.n_batches = model, settings, n_batches
        self.k = 0
        self.optimizer = torch.optim.Adam(model.parameters(), settings.learning_rate, fused=True)

    @classmethod
    def fresh(
        cls, widths: list[int], settings: AdamSettings, scaling: Scaling, n_batches: int, seed: int
    ) -> "AdamRule":
        """A network with torch's own start, from the seed."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = FloatNetwork(widths, settings, scaling).eval()
        return cls(model, settings, n_batches)

    @property
    def settled(self) -> bool:
        """No unit is ever removed."""
        return True

    def update(self, V0: Tensor, y: Tensor, rng: torch.Generator) -> Tensor:  # noqa: ARG002
        """One step of Adam."""
        rate = self.settings.learning_rate * (1 - self.k / self.n_batches)
        self.optimizer.param_groups[0]["lr"] = rate
        self.model.train()
        scores: Tensor = self.model(V0)
        loss = nn.functional.cross_entropy(scores, y, label_smoothing=self.settings.smoothing)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.model.eval()
        self.k += 1
        return scores.detach()

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """The cross entropy of each sample."""
        return nn.functional.cross_entropy(scores, y, reduction="none")

    def notes(self) -> dict[str, Any]:
        """Nothing besides."""
        return {}

    def sizes(self) -> dict[str, Any]:
        """All units are active."""
        return {
            "active_units": [layer.out_features for layer in list(self.model.layers)[:-1]],
            "active_inputs": self.model.layers[0].in_features,
            "parameters": sum(p.numel() for p in self.model.parameters()),
        }

    def state(self) -> dict[str, Tensor]:
        """The network's and Adam's."""
        tensors = {f"model.{name}": T for name, T in self.model.state_dict().items()}
        for i, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{i}.{name}": T for name, T in moments.items()}
        return tensors | {"k": torch.tensor(self.k)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from ``state()``."""
        self.k = int(state["k"])
        self.model.load_state_dict(
            {k.removeprefix("model."): T for k, T in state.items() if k.startswith("model.")}
        )
        adam = self.optimizer.state_dict()
        for name, T in state.items():
            if name.startswith("adam."):
                _, i, moment = name.split(".")
                adam["state"].setdefault(int(i), {})[moment] = T
        self.optimizer.load_state_dict(adam)
