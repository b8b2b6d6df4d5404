"""The W block of one layer: what BCD has seen of the layer, and the step that it takes."""

from typing import Any

import torch
from torch import Tensor, nn

from zeroone.optim.layers import LayerKind
from zeroone.optim.observer import SCALE_MEMORY, Seen, gathered
from zeroone.optim.preconditioner import LowRank, Preconditioner, UnitMap
from zeroone.optim.projection import falling_density, project
from zeroone.utils.checks import InputError

RESIDUAL_DAMPING = 1.0  # of the unit map, relative to the residuals' mean variance
# In a checkpoint, as they are; those of PER_WEIGHT have the weight's shape.
KEPT = ("hidden", "variance", "latent", "latent_bias", "average", "average_bias", "dead")
PER_WEIGHT, PER_UNIT = ("latent", "average"), ("variance", "latent_bias", "average_bias")
HEAD_END = 0.1  # the step of the last layer falls to this share


class DivergedError(InputError):
    """A layer's outputs are no longer finite."""


class WBlock:
    """A layer's weights and bias."""

    group: dict[str, Any]  # the optimizer's group of the weights, with their settings

    def __init__(self, name: str, kind: LayerKind) -> None:
        self.name, self.kind = name, kind
        self.hidden = False  # whether a Step comes after the layer
        self.left = 1.0  # the share of the training that is left
        self.moments: Preconditioner | None = None  # of the inputs; None until one is observed
        self.residuals: LowRank | None = None  # second moments of a hidden layer's residuals
        self.variance: Tensor | None = None  # of each unit's outputs
        self.latent: Tensor | None = None  # the real weights that few-valued ones are made of
        self.latent_bias: Tensor | None = None
        self.average: Tensor | None = None  # of the gradients of recent batches, with momentum
        self.average_bias: Tensor | None = None
        self.dead: Tensor | None = None  # which columns stay empty, for ``lam``
        self._unit_map: UnitMap | None = None  # made of the residuals and the variance

    @property
    def bias(self) -> nn.Parameter | None:
        """The bias, if it is trained."""
        bias = self.kind.bias
        return bias if bias is not None and bias.requires_grad else None

    @property
    def trained(self) -> tuple[Tensor, Tensor | None]:
        """The weights and the bias that steps change: the latent ones, if there are any."""
        if self.latent is not None:
            return self.latent, self.latent_bias
        return self.kind.weight.data, None if self.bias is None else self.bias.data

    def check_same_place(self) -> None:
        """Refuse weights that have left their moments behind."""
        then, now = self.variance, self.kind.weight
        if then is not None and (then.dtype, then.device) != (now.dtype, now.device):
            raise InputError(
                f"{self.name} is {now.dtype} on {now.device} now, and was {then.dtype} on "
                f"{then.device}: convert the model first, then make its BCD."
            )

    def observe(self, seen: Seen, k: int) -> None:
        """Update the moments and the scales from the observed batch k."""
        known: Any = self.moments
        weights = [call.weights for call in seen.calls if call.weights is not None]
        self.moments = self.kind.preconditioner.observe(
            torch.cat([call.rows for call in seen.calls], dim=1),
            known,
            k,
            centre=self.bias is not None,
            weights=torch.cat(weights) if weights else None,
        )
        past, variance = self.variance, seen.variance
        if not bool(variance.isfinite().all()):
            raise DivergedError(f"the outputs of {self.name} are not finite.")
        self.variance = variance if past is None else past.lerp(variance, 1 - SCALE_MEMORY)
        if self.hidden and seen.residuals:
            self._observe_residuals(torch.cat(seen.residuals, dim=1), k)
        self._unit_map = None

    def _observe_residuals(self, rows: Tensor, k: int) -> None:
        """Update the second moment of residuals, each times its unit's scale.

        Without the scale, a unit with large weights has small residuals, looks uncorrelated with
        the others and runs away. The residuals' common size does not matter.
        """
        assert self.variance is not None
        rows = gathered(rows) * self.variance.sqrt()
        if bool(rows.isfinite().all()):
            rows = rows / rows.square().mean().sqrt().clamp_min(1e-30)
            self.residuals = LowRank.observe(rows, self.residuals, k, centre=False)

    def step(self, left: float) -> None:
        """Move towards the W block's solution; ``left`` of the training is left."""
        self.left = left
        if self.moments is None or self.kind.weight.grad is None:
            return  # a layer that was frozen until now waits for the next observed batch
        weight_grad, bias_grad = self._averaged()
        grad = self.kind.matrix(weight_grad)
        if bias_grad is not None:
            bias_grad = bias_grad.view(grad.shape[:2])
        if self._unit_map is None and self.residuals is not None and self.variance is not None:
            self._unit_map = self.residuals.unit_map(RESIDUAL_DAMPING, self.variance.sqrt())
        if self._unit_map is not None:  # divides the residuals in both by their second moment
            grad = self._unit_map.apply(grad)
            if bias_grad is not None:
                bias_grad = self._unit_map.apply(bias_grad[:, :, None])[:, :, 0]
        solution = self.moments.solve(grad, bias_grad, self.group["damping"])
        size = self._step_size(solution.change, left)
        self._take_latent()
        weight, bias = self.trained
        W = self.kind.matrix(weight)
        solution.add_to(W, None if bias is None else bias.view(size.shape), size)
        if self.dead is not None:
            W[:, :, self.dead] = 0
        self.kind.store(weight, W)
        self.project()

    def _averaged(self) -> tuple[Tensor, Tensor | None]:
        """Return the gradients of the weights and of the bias, averaged over recent batches.

        The last batch counts twice, once for the average and once beside it (Nesterov's momentum).
        """
        grad, bias_grad = self.kind.weight.grad, None if self.bias is None else self.bias.grad
        assert grad is not None
        new = 1 - self.group["momentum"]
        if new == 1:
            self.average = self.average_bias = None
            return grad, bias_grad
        self.average = grad.clone() if self.average is None else self.average.lerp_(grad, new)
        if bias_grad is not None:
            past = self.average_bias
            self.average_bias = bias_grad.clone() if past is None else past.lerp_(bias_grad, new)
            bias_grad = self.average_bias.lerp(bias_grad, new)
        return self.average.lerp(grad, new), bias_grad

    def _step_size(self, change: Tensor, left: float) -> Tensor:
        """Return each unit's step along -G, which would ``change`` its outputs."""
        if not self.hidden:
            falling = HEAD_END + (1 - HEAD_END) * left
            return torch.full_like(change, -self.group["head_step"] * falling)
        assert self.variance is not None
        variance = self.variance.view(change.shape)
        moved = torch.linalg.vecdot(variance, change).sum() / variance.numel()
        inverse = torch.where(moved > 0, moved.rsqrt(), 0)
        size: Tensor = variance * (inverse * (-self.group["move"] * left))
        return size

    def _take_latent(self) -> None:
        """Begin or end to keep latent weights, as the group's setting says."""
        if self.group["weights"] == "real" or not self.hidden:
            self.latent = self.latent_bias = None
        elif self.latent is None:
            weight, bias = self.trained
            self.latent, self.latent_bias = weight.clone(), None if bias is None else bias.clone()

    def project(self) -> None:
        """Set few-valued weights to the projection of the latent ones.

        The bias compensates for the change of the pre-activations' mean.
        """
        if self.latent is None or self.moments is None:
            return
        L, W = (self.kind.matrix(T) for T in (self.latent, self.kind.weight.data))
        density = self.group["density"]
        if density < 1:
            density = falling_density(density, self.left)
        P = project(L.flatten(0, 1), self.group["weights"], density).view_as(L)
        W.copy_(P)
        self.kind.store(self.kind.weight.data, W)
        if self.latent_bias is not None and self.bias is not None:
            shift = ((L - P) @ self.moments.mean[:, :, None]).flatten()
            self.bias.data.copy_(self.latent_bias + shift)

    def select(self, units: Tensor | None, columns: Tensor | None) -> None:
        """Forget all but some units and columns, which the weights are about to lose."""
        assert self.moments is not None
        for name in PER_WEIGHT:
            if (T := getattr(self, name)) is not None:
                setattr(self, name, self.kind.selected(T, units, columns))
        if units is not None:
            for name in PER_UNIT:
                if (T := getattr(self, name)) is not None:
                    setattr(self, name, T[units])
            self.residuals = None if self.residuals is None else self.residuals.select(units)
            if self.kind.groups > 1:  # depthwise: each channel has moments of its own
                each = self.kind.n_units // self.kind.groups
                channels = units[::each] // each
                kept = {name: T[channels] for name, T in self.moments.tensors().items()}
                self.moments = type(self.moments)(**kept)
        if columns is not None:
            assert isinstance(self.moments, LowRank)  # tokens of embeddings always stay
            self.dead = None if self.dead is None else self.dead[columns]
            self.moments = self.moments.select(columns)
        self._unit_map = None

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {
            "moments": None if self.moments is None else self.moments.tensors(),
            "residuals": None if self.residuals is None else self.residuals.tensors(),
        } | {name: getattr(self, name) for name in KEPT}

    def check(self, state: dict[str, Any]) -> None:
        """Refuse the ``state()`` of a layer of another size."""
        moments, weight = state["moments"], self.kind.weight
        if moments is not None:
            groups, units, columns = self.kind.matrix(weight.data).shape
            sizes = (len(state["variance"]), *moments["mean"].shape)
            if sizes != (groups * units, groups, columns):
                raise ValueError(f"{self.name} has other units or columns")

    def load(self, state: dict[str, Any]) -> None:
        """Continue from ``state()``."""
        weight, moments, residuals = self.kind.weight, state["moments"], state["residuals"]
        for name in KEPT:
            T = state[name]
            setattr(self, name, T if T is None or name == "hidden" else T.to(weight.device).clone())
        self.moments = self.residuals = self._unit_map = None
        if moments is not None:
            made = {name: T.to(weight) for name, T in moments.items()}
            self.moments = self.kind.preconditioner(**made)
        if residuals is not None:
            self.residuals = LowRank(**{name: T.to(weight) for name, T in residuals.items()})
