"""Back-propagation and Adam, with softmax and cross entropy."""

from typing import Any

import torch
from torch import Tensor, nn

from zeroone.baselines.networks import FloatNetwork
from zeroone.baselines.settings import RivalSettings
from zeroone.parallel import ALONE, Share, Team

CHUNK = 2048  # rows that pass a network at once: what a full batch leaves behind is out of cache


class AdamRule:
    """Back-propagation and one step of Adam for each batch.

    A large batch passes the network in chunks whose gradients add up, unless it is normalised by
    its own statistics. The ranks of a ``team`` add up their gradients, too. Batch normalisation,
    where a body has it, takes each rank's own samples, and the running statistics are their mean.
    """

    def __init__(
        self, model: FloatNetwork, settings: RivalSettings, n_batches: int, team: Team = ALONE
    ) -> None:
        self.model, self.settings, self.n_batches, self.team = model, settings, n_batches, team
        self.k = 0
        norms = (nn.BatchNorm1d, nn.BatchNorm2d)
        self.normalises = any(isinstance(module, norms) for module in model.modules())
        fused = next(model.parameters()).device.type in {"cpu", "cuda"}
        self.optimizer = torch.optim.Adam(model.parameters(), settings.learning_rate, fused=fused)

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
        share: Share | None = None,
    ) -> Tensor:
        """One step of Adam."""
        rate = self.settings.learning_rate * (1 - self.k / self.n_batches)
        self.optimizer.param_groups[0]["lr"] = rate
        self.model.train()
        self.optimizer.zero_grad()
        total = len(y) if share is None else share.total  # the gradients of all ranks are added up
        chunk = len(y) if self.normalises else CHUNK
        scores = []
        for start in range(0, len(y), chunk):
            rows = slice(start, start + chunk)
            scores.append(self.model(V0[rows]))
            losses = nn.functional.cross_entropy(
                scores[-1], y[rows], label_smoothing=self.settings.smoothing, reduction="none"
            )
            loss = (losses if weights is None else losses * weights[rows]).sum() / total
            loss.backward()  # type: ignore[no-untyped-call]
            scores[-1] = scores[-1].detach()
        self._add_up()
        self.optimizer.step()
        self.model.eval()
        self.k += 1
        return torch.cat(scores)

    def _add_up(self) -> None:
        if self.team.size == 1:
            return
        self.team.sum_(*(p.grad for p in self.model.parameters() if p.grad is not None))
        statistics = [b for b in self.model.buffers() if b.is_floating_point()]
        if statistics:
            self.team.sum_(*statistics)
            for buffer in statistics:
                buffer.div_(self.team.size)

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
