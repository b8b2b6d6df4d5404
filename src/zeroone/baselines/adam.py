"""Back-propagation and Adam, with softmax and cross entropy."""

from typing import Any

import torch
from torch import Tensor, nn

from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import RivalSettings


class AdamRule:
    """Back-propagation and one step of Adam for each batch."""

    def __init__(self, model: FloatNetwork, settings: RivalSettings, n_batches: int) -> None:
        self.model, self.settings, self.n_batches = model, settings, n_batches
        self.k = 0
        self.optimizer = torch.optim.Adam(model.parameters(), settings.learning_rate, fused=True)

    @property
    def settled(self) -> bool:
        """No unit is ever removed."""
        return True

    def update(
        self,
        V0: Tensor,
        y: Tensor,
        rng: torch.Generator,  # noqa: ARG002
        weights: Tensor | None = None,
    ) -> Tensor:
        """One step of Adam."""
        rate = self.settings.learning_rate * (1 - self.k / self.n_batches)
        self.optimizer.param_groups[0]["lr"] = rate
        self.model.train()
        scores: Tensor = self.model(V0)
        losses = nn.functional.cross_entropy(
            scores, y, label_smoothing=self.settings.smoothing, reduction="none"
        )
        loss = losses.mean() if weights is None else (losses * weights).mean()
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
        adam, parameters = self.optimizer.state_dict(), list(self.model.parameters())
        for name, T in state.items():
            if name.startswith("adam."):
                _, i, moment = name.split(".")
                own = parameters[int(i)]
                # The fused optimizer takes it that moments lie in memory as their parameter does.
                laid_out = torch.empty_like(own).copy_(T) if T.shape == own.shape else T
                adam["state"].setdefault(int(i), {})[moment] = laid_out
        self.optimizer.load_state_dict(adam)
