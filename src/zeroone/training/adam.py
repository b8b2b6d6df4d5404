"""Baselines learn by back-propagation and Adam, with softmax and cross entropy."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import BaselineSettings
from zeroone.training.trainers import (
    ModuleTrainer,
    as_bytes,
    check_form,
    from_bytes,
    is_bytes,
    tensor,
)
from zeroone.utils.checks import is_number
from zeroone.utils.parallel import ALONE, Share, Team
from zeroone.utils.schema import find_fault, is_count, nothing

CHUNK = 2048  # rows that pass a network at once: the tensors of a full batch leave the cache


class AdamTrainer(ModuleTrainer):
    """One step of Adam for each batch.

    A large batch passes the network in chunks whose gradients add up, unless batch normalisation
    needs all of it. Batch normalisation takes each rank's own samples.
    """

    def __init__(
        self, model: FloatNetwork, settings: BaselineSettings, n_batches: int, team: Team = ALONE
    ) -> None:
        self.network, self.settings, self.n_batches, self.team = model, settings, n_batches, team
        self.k = 0
        norms = (nn.BatchNorm1d, nn.BatchNorm2d)
        self.normalises = any(isinstance(module, norms) for module in model.modules())
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

    def training_losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the cross entropy of each sample, with label smoothing."""
        smoothing = self.settings.smoothing
        return nn.functional.cross_entropy(scores, y, label_smoothing=smoothing, reduction="none")

    def losses(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the cross entropy of each sample."""
        return nn.functional.cross_entropy(scores, y, reduction="none")

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

    def backward(self, V0: Tensor, y: Tensor, weights: Tensor | None, total: int) -> Tensor:
        """Add up the gradients chunk by chunk; return the scores."""
        if self.normalises or self.team.size > 1 or len(y) <= CHUNK:
            return super().backward(V0, y, weights, total)
        scores = []
        for start in range(0, len(y), CHUNK):
            rows = slice(start, start + CHUNK)
            some = None if weights is None else weights[rows]
            scores.append(super().backward(V0[rows], y[rows], some, total))
        return torch.cat(scores)

    def state(self) -> dict[str, Tensor]:
        """Return the state of the network and of Adam."""
        state = {"model": self.network.state_dict(), "adam": self.optimizer.state_dict()}
        return {"state": as_bytes(state | {"k": self.k})}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Resume from ``state()``."""
        check_form(state, {"state": is_bytes})
        kept = from_bytes(state["state"])
        check_form(kept, self._form(begun=kept.get("k") != 0))
        self.k = kept["k"]
        self.network.load_state_dict(kept["model"])
        parameters = list(self.network.parameters())
        for i, moments in kept["adam"]["state"].items():
            for name, T in moments.items():
                if T.shape == parameters[i].shape:
                    # The fused optimizer needs moments laid out in memory like their parameter.
                    moments[name] = torch.empty_like(parameters[i]).copy_(T)
        self.optimizer.load_state_dict(kept["adam"])

    def _form(self, *, begun: bool) -> dict[str, Any]:
        """Return the form of a stored state."""
        (group,), model = self.optimizer.state_dict()["param_groups"], self.network.state_dict()
        # The rate is set before every step.
        same = {name: partial(_is, value) for name, value in group.items() if name != "lr"}
        moments = [
            {"step": tensor(())} | dict.fromkeys(("exp_avg", "exp_avg_sq"), tensor(tuple(p.shape)))
            for p in self.network.parameters()
        ]
        return {
            "k": lambda k: is_count(k) and k <= self.n_batches,
            "model": {n: tensor(tuple(T.shape), T.dtype) for n, T in model.items()}
            | {...: nothing},
            "adam": {
                "state": (dict(enumerate(moments)) if begun else {}) | {...: nothing},
                "param_groups": lambda groups: (
                    isinstance(groups, list)
                    and len(groups) == 1
                    and find_fault(groups[0], same | {"lr": is_number}) is None
                ),
            },
        }


def _is(known: Any, value: Any) -> bool:
    return type(value) is type(known) and bool(value == known)
