"""Baselines learn by back-propagation and Adam, with softmax and cross entropy."""

import torch
from torch import Tensor

from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import BaselineSettings
from zeroone.nn.heads import make_head
from zeroone.training.trainers import ModuleTrainer, as_bytes, from_bytes
from zeroone.utils.parallel import ALONE, Share, Team


class AdamTrainer(ModuleTrainer):
    """One step of Adam for each batch. Batch normalisation takes each rank's own samples."""

    def __init__(
        self, model: FloatNetwork, settings: BaselineSettings, n_batches: int, team: Team = ALONE
    ) -> None:
        self.network, self.settings, self.n_batches, self.team = model, settings, n_batches, team
        self.k = 0
        self.head = make_head("softmax", smoothing=settings.smoothing)
        fused = next(model.parameters()).device.type in {"cpu", "cuda"}
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=fused,
        )
        self.module = team.wrap(model)

    @property
    def model(self) -> FloatNetwork:
        """The network that is scored."""
        return self.network

    def update(
        self,
        V0: Tensor,
        y: Tensor,
        rng: torch.Generator,
        weights: Tensor | None = None,
        share: Share | None = None,
    ) -> Tensor:
        """Take one step of Adam, at a rate that may rise first and then falls linearly to 0."""
        self.optimizer.param_groups[0]["lr"] = self.settings.learning_rate * self._share_of_rate()
        self.module.train()
        with torch.autocast(V0.device.type, torch.bfloat16, enabled=self.settings.bf16):
            scores = super().update(V0, y, rng, weights, share).float()
        self.module.eval()
        self.k += 1
        return scores

    def _share_of_rate(self) -> float:
        warm = self.settings.warmup * self.n_batches
        if self.k < warm:
            return (self.k + 1) / (warm + 1)
        return (self.n_batches - self.k) / (self.n_batches - warm)

    def state(self) -> dict[str, Tensor]:
        """Return the state of the network and of Adam."""
        state = {"model": self.network.state_dict(), "adam": self.optimizer.state_dict()}
        return {"state": as_bytes(state | {"k": self.k})}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Resume from ``state()``."""
        kept = from_bytes(state["state"])
        self.k = kept["k"]
        self.network.load_state_dict(kept["model"])
        parameters = list(self.network.parameters())
        for i, moments in kept["adam"]["state"].items():
            for name, T in moments.items():
                if T.shape == parameters[i].shape:
                    # The fused optimizer needs moments laid out in memory like their parameter.
                    moments[name] = torch.empty_like(parameters[i]).copy_(T)
        self.optimizer.load_state_dict(kept["adam"])
