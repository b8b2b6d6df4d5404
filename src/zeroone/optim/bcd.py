"""Stochastic BCD as an optimizer: autograd carries the residuals, ``step`` is the W block.

    model = nn.Sequential(nn.Linear(784, 1000), zeroone.nn.Step(), nn.Linear(1000, 10))
    bcd = zeroone.optim.BCD(model, total_steps=epochs * len(loader))
    for x, y in loader:
        bcd.zero_grad()
        cross_entropy(model(x), y).backward()
        bcd.step()

For one batch: the loss asks for a change of the scores (U_h block), each layer's backward pass asks
for a change of the bits below it (V block), ``Step`` turns that into a change of pre-activations
(U block), and ``step`` changes the weights (W block). No derivative of the step is taken.
"""

import warnings
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from zeroone.nn.step import Step
from zeroone.optim.eager import Eager
from zeroone.optim.groups import (
    Group,
    check_group,
    default_damping,
    find_layers,
    inner_model,
    sort_parameters,
)
from zeroone.optim.layers import LayerKind
from zeroone.optim.observer import SCALE_MEMORY, Observer, Seen, gathered
from zeroone.optim.preconditioner import LowRank, Preconditioner, UnitMap
from zeroone.optim.projection import falling_density, project
from zeroone.optim.removal import Removal
from zeroone.optim.state_schema import check_state
from zeroone.utils.checks import InputError, count, positive

EARLY, OBSERVE_EVERY = (0, 1, 2, 4, 7), 10  # the batches that are observed
HALVED = 2000  # in a training without an end, steps are half as large after so many batches
RESIDUAL_DAMPING = 1.0  # of the unit map, relative to the residuals' mean variance
HEAD_END, WINDOW_END = 0.1, 0.5  # the last layer's step and the window fall to these shares
ACTIVE: "WeakKeyDictionary[nn.Module, Observer]" = WeakKeyDictionary()  # one per model
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8  # Adam's


class DivergedError(InputError):
    """A layer's outputs are no longer finite."""


class BCD(Optimizer):
    """Train a model with ``Step`` activations by stochastic block coordinate descent."""

    def __init__(
        self,
        model: nn.Module,
        total_steps: int | None,
        *,
        move: float = 0.08,
        head_step: float = 0.3,
        window: float = 1.0,
        damping: float | None = None,
        weights: str = "real",
        density: float = 1.0,
        keep: float | None = None,
        lam: float = 0.0,
        groups: Iterable[dict[str, Any]] = (),
        adam_lr: float = 1e-3,
        balance: bool = True,
        strict: bool = False,
    ) -> None:
        """Take charge of a model's trainable parameters.

        Args:
            model: any module whose hidden activations are ``Step`` modules. Pass the model that
                you call, even if it is compiled or wrapped in ``DistributedDataParallel``.
            total_steps: the number of batches in the training, over which all step sizes fall.
                None means that there is no end.
            move: the root mean square change of a hidden layer's pre-activations per batch,
                relative to their standard deviation; falls linearly to 0.
            head_step: the share of the W block's solution that layers without a Step after them
                take; falls to a tenth. The loss must be a mean over the samples of a batch.
            window: a bit may flip where |u| is at most this many standard deviations of its unit;
                falls to a half.
            damping: of the W block, relative to the total variance of the layer's inputs. None
                chooses by the length of the training: 0.01 up to 1,000 batches, 0.04 from 2,000,
                and linearly in between.
            weights: 'real', 'ternary' or 'binary' weights in the hidden layers. Few-valued weights
                have one scale per unit, which the step ignores.
            density: the share of ternary weights that may differ from 0; 1 sets no limit. Models
                with few such weights are smaller and faster.
            keep: the share of hidden units to keep; the others are removed during the training.
            lam: an alternative to ``keep``: the price of a unit, relative to twice the mean cost
                of removing one. It empties input columns as well.
            groups: other settings for some parameters: ``{"params": ..., "move": 0.02}`` with any
                of move, head_step, damping, weights and density.
            adam_lr: Adam's learning rate for parameters without a W block, such as BatchNorm's;
                falls linearly to 0.
            balance: whether the first batch sets the biases. It centres each unit's
                pre-activations and spreads the thresholds by half a standard deviation.
            strict: refuse parameters without a W block.

        Raises:
            InputError: if the model or a setting cannot be used.

        """
        self.total_steps = None if total_steps is None else count("total_steps", total_steps)
        self.k = 0  # batches done
        self.observed = 0  # those of them that were observed
        if damping is None:
            damping = default_damping(self.total_steps)
        defaults: dict[str, Any] = {"move": move, "head_step": head_step, "damping": damping}
        defaults |= {"weights": weights, "density": density}
        self.adam_lr = positive("adam_lr", adam_lr)
        if not isinstance(model, nn.Module):
            raise InputError(
                f"BCD takes the model itself, not its parameters, and no {type(model).__name__}; "
                f"zeroone.to_torch(network, trainable=True) makes a module of a zeroone.Network."
            )
        self.model = inner_model(model)
        self._called, self._eager = model, Eager()
        self.layers = find_layers(self.model)
        steps = {n: m for n, m in self.model.named_modules() if isinstance(m, Step)}
        if not steps and len(self.layers) != 1:  # one layer has no hidden units
            raise InputError("the model has no zeroone.nn.Step: BCD trains 0/1 activations.")
        if self.model in ACTIVE:  # an earlier BCD hands the model over
            ACTIVE[self.model].detach()
        self.observer = ACTIVE[self.model] = Observer(self.layers, steps)
        self.moments: dict[str, Preconditioner] = {}  # of each layer's inputs
        self.residuals: dict[str, LowRank] = {}  # second moments of hidden layers' residuals
        self._unit_maps: dict[str, UnitMap] = {}  # derived from them; cleared when they change
        self.hidden: set[str] = set()  # the layers with a Step after them
        sorted_groups = sort_parameters(self.model, self.layers, list(groups), strict=strict)
        super().__init__(map(Group, sorted_groups), defaults)
        for group in self.param_groups:
            check_group(group)
        self._group_of = {id(p): group for group in self.param_groups for p in group["params"]}
        self.removal: Removal | None = None
        if keep is not None or lam:
            if isinstance(model, nn.parallel.DistributedDataParallel):
                raise InputError("keep and lam change sizes, which DistributedDataParallel cannot.")
            self.removal = Removal(self, keep, lam)
        self._window = float(positive("window", window))
        for step in steps.values():
            step.window.fill_(self._window)
        self.balance = balance
        self._prepare()

    # Optimizer wraps some methods. On their first call the wrappers import torch's compiler, which
    # takes a second of CPU time. The plain functions do the same without it.
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; only the constructor may do so."""
        if hasattr(self, "_group_of"):
            raise InputError("BCD takes its groups when it is made: BCD(model, n, groups=[...]).")
        plain = Optimizer.add_param_group
        getattr(plain, "__wrapped__", plain)(self, param_group)

    def began_with(self, widths: dict[str, int]) -> None:
        """Continue from a pruned model: ``keep`` counts from these widths.

        Input columns that are empty stay empty.
        """
        for kind in self.layers.values():
            dead = (kind.matrix(kind.weight.data) == 0).all(dim=1).all(dim=0)
            if bool(dead.any()):
                self.state[kind.weight]["dead"] = dead
        if self.removal is not None:
            self.removal.widths.update(widths)

    @property
    def window(self) -> float:
        """The window at the start of the training; ``Step.window`` is the one that has fallen."""
        return self._window

    @window.setter
    def window(self, value: float) -> None:
        wider = float(positive("window", value)) / self._window
        self._window = float(value)
        for step in self.observer.steps.values():
            step.window.mul_(wider)

    @property
    def left(self) -> float:
        """The share of the training that is left, or its substitute if there is no end."""
        if self.total_steps is None:
            return HALVED / (HALVED + self.k)
        return 1 - self.k / self.total_steps

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients, and the residuals that were observed with them."""
        for seen in self.observer.seen.values():
            seen.residuals.clear()
        plain = getattr(Optimizer.zero_grad, "__wrapped__", Optimizer.zero_grad)
        plain(self, set_to_none)

    def group_of(self, name: str) -> dict[str, Any]:
        """Return a layer's settings."""
        return self._group_of[id(self.layers[name].weight)]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every W block from the gradients of the last backward pass."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self.total_steps is not None and self.k >= self.total_steps:
            raise InputError(f"total_steps={self.total_steps} batches are done.")
        if all(p.grad is None for group in self.param_groups for p in group["params"]):
            raise InputError("step() needs gradients: call backward() on the loss first.")
        self._check_same_place()
        if self.observer.attached:
            self._take_in()
        for name, kind in self.layers.items():
            # A layer that was frozen until now waits for the next batch that is observed.
            if kind.weight.grad is not None and name in self.moments:
                self._update(name, kind)
        self._adam()
        self.k += 1
        if self.removal is not None:
            self.removal.after_batch()
        self._prepare()
        return loss

    def _check_same_place(self) -> None:
        """Refuse weights that have left their moments behind."""
        for name, moments in self.moments.items():
            weight, mean = self.layers[name].weight, moments.mean
            if (weight.dtype, weight.device) != (mean.dtype, mean.device):
                raise InputError(
                    f"{name} is {weight.dtype} on {weight.device} now, and was {mean.dtype} on "
                    f"{mean.device}: convert the model first, then make its BCD."
                )

    def _prepare(self) -> None:
        """Attach or remove the hooks for the next batch.

        A compiled model runs eagerly while it is observed, because compiled code skips hooks.
        """
        done = self.total_steps is not None and self.k >= self.total_steps
        due = self.k in EARLY or self.k % OBSERVE_EVERY == 0
        if self.removal is not None:  # removal costs need fresh moments
            due = due or self.removal.due(self.k + 1)
        if due and not done:
            self.observer.attach(balance=self.balance and self.k == 0)
        else:
            self.observer.detach()
        self._eager.undo()
        if self.observer.attached:
            self._eager.do(self._called)

    def _take_in(self) -> None:
        """Update the moments from the batch that the observer saw."""
        seen = self.observer.seen
        if not seen:
            raise InputError(
                "BCD saw no forward pass in training mode: call model.train(), and give BCD the "
                "model that you call, compiled or not."
            )
        for name, p in self.model.named_parameters():
            if p.grad is not None and id(p) not in self._group_of:
                raise InputError(f"{name} was frozen when BCD was made: make another BCD.")
        self.hidden |= self.observer.below_a_step()
        if self.k == 0:
            self._check_first_batch()
        self._unit_maps.clear()
        k = self.observed
        self.observed += 1
        for name, found in seen.items():
            kind = self.layers[name]
            rows = torch.cat(found.rows, dim=1)
            self.moments[name] = kind.preconditioner.observe(
                rows,
                self.moments.get(name),
                k,
                centre=kind.bias is not None and kind.bias.requires_grad,
                weights=torch.cat(found.weights) if found.weights else None,
            )
            state = self.state[kind.weight]
            variance = found.variance
            if found.count == 1 and name in self.hidden and self.k == 0:
                warnings.warn(
                    "BCD sizes its steps by the spread of units in a batch: batches of one sample "
                    "leave hidden layers as they are. Accumulate gradients over several.",
                    stacklevel=3,
                )
            if not bool(variance.isfinite().all()):
                raise DivergedError(f"the outputs of {name} are not finite.")
            if "variance" in state:
                variance = state["variance"].lerp(variance, 1 - SCALE_MEMORY)
            state["variance"] = variance
            if name in self.hidden and found.residuals:
                self._take_residuals(name, found, k)
        for step in self.observer.steps.values():
            step.window.fill_(self.window * (WINDOW_END + (1 - WINDOW_END) * self.left))

    def _check_first_batch(self) -> None:
        """Refuse parameters that the batch does not train."""
        trained = [name for name, kind in self.layers.items() if kind.weight.requires_grad]
        for name, p in self.model.named_parameters():
            if p.requires_grad and p.grad is None and id(p) in self._group_of:
                raise InputError(
                    f"{name} has no part in the loss: remove it, or freeze it with "
                    f"requires_grad_(False)."
                )
        for name in trained - self.observer.seen.keys():
            raise InputError(f"BCD saw no inputs of {name}: call it as a module, in training mode.")

    def _take_residuals(self, name: str, found: Seen, k: int) -> None:
        """Update the second moment of a layer's residuals, each times its unit's scale.

        Without the scale, a unit with large weights has small residuals, looks uncorrelated with
        the others and runs away. The residuals' common size does not matter.
        """
        scale = self.state[self.layers[name].weight]["variance"].sqrt()
        rows = gathered(torch.cat(found.residuals, dim=1)) * scale
        if not bool(rows.isfinite().all()):
            return
        rows = rows / rows.square().mean().sqrt().clamp_min(1e-30)
        past = self.residuals.get(name)
        self.residuals[name] = LowRank.observe(rows, past, k, centre=False)

    def _update(self, name: str, kind: LayerKind) -> None:
        """Move one layer's weights towards the W block's solution, as far as the step size says."""
        group, state = self._group_of[id(kind.weight)], self.state[kind.weight]
        assert kind.weight.grad is not None
        grad = kind.matrix(kind.weight.grad)
        shape = grad.shape[:2]
        bias = kind.bias if kind.bias is not None and kind.bias.requires_grad else None
        bias_grad = None if bias is None or bias.grad is None else bias.grad.view(shape)
        unit_map = self._unit_map(name, state)
        if unit_map is not None:
            grad = unit_map.apply(grad)
            if bias_grad is not None:
                bias_grad = unit_map.apply(bias_grad[:, :, None])[:, :, 0]
        solution = self.moments[name].solve(grad, bias_grad, group["damping"])
        if name in self.hidden:
            variance = state["variance"].view(shape)
            moved = torch.linalg.vecdot(variance, solution.change).sum() / variance.numel()
            inverse = torch.where(moved > 0, moved.rsqrt(), 0)
            size = variance * (inverse * (-group["move"] * self.left))
        else:
            falling = HEAD_END + (1 - HEAD_END) * self.left
            size = solution.change.new_full(shape, -group["head_step"] * falling)
        few_valued = group["weights"] != "real" and name in self.hidden
        if few_valued and "latent" not in state:
            state["latent"] = kind.weight.detach().clone()
            state["latent_bias"] = None if bias is None else bias.detach().clone()
        weight = state["latent"] if few_valued else kind.weight.data
        offset = state["latent_bias"] if few_valued else (None if bias is None else bias.data)
        W = kind.matrix(weight)
        solution.add_to(W, None if offset is None else offset.view(shape), grad, size)
        if "dead" in state:
            W[:, :, state["dead"]] = 0
        kind.store(weight, W)
        if few_valued:
            self.project(name)

    def _unit_map(self, name: str, state: dict[str, Any]) -> UnitMap | None:
        """The map that divides a hidden layer's residuals by their second moment."""
        if name not in self._unit_maps and name in self.residuals:
            scale = state["variance"].sqrt()
            self._unit_maps[name] = self.residuals[name].unit_map(RESIDUAL_DAMPING, scale)
        return self._unit_maps.get(name)

    def replace(self, module: nn.Module, name: str, data: Tensor) -> None:
        """Replace a module's parameter by one of another size, which inherits place and state.

        The old tensor is left intact for graphs that still refer to it.
        """
        self._unit_maps.clear()
        old = getattr(module, name)
        new = nn.Parameter(data, requires_grad=old.requires_grad)
        setattr(module, name, new)
        for group in self.param_groups:
            group["params"] = [new if p is old else p for p in group["params"]]
        if old in self.state:
            self.state[new] = self.state.pop(old)
        if id(old) in self._group_of:
            self._group_of[id(new)] = self._group_of.pop(id(old))

    def project(self, name: str) -> None:
        """Set a layer's weights to the projection of its latent weights.

        The bias compensates for the change of the pre-activations' mean.
        """
        kind = self.layers[name]
        state, group = self.state[kind.weight], self._group_of[id(kind.weight)]
        if "latent" not in state:
            return
        L = kind.matrix(state["latent"])
        density = 1.0 if group["density"] == 1 else falling_density(group["density"], self.left)
        P = project(L.flatten(0, 1), group["weights"], density).view_as(L)
        W = kind.matrix(kind.weight.data)
        W.copy_(P)
        kind.store(kind.weight.data, W)
        if state["latent_bias"] is not None and kind.bias is not None:
            shift = ((L - P) @ self.moments[name].mean[:, :, None]).flatten()
            kind.bias.data.copy_(state["latent_bias"] + shift)

    def _adam(self) -> None:
        """Update all parameters without a W block by Adam."""
        for group in self.param_groups:
            if not group.get("adam"):
                continue
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["first"], state["second"] = torch.zeros_like(p), torch.zeros_like(p)
                state["first"].lerp_(p.grad, 1 - BETA1)
                state["second"].lerp_(p.grad.square(), 1 - BETA2)
                corrected = (1 - BETA2 ** (self.k + 1)) ** 0.5 / (1 - BETA1 ** (self.k + 1))
                size = self.adam_lr * self.left * corrected
                p.addcdiv_(state["first"], state["second"].sqrt().add_(EPS), value=-size)

    def state_dict(self) -> dict[str, Any]:
        """Everything the next batch depends on, apart from the model's own state."""
        state = getattr(Optimizer.state_dict, "__wrapped__", Optimizer.state_dict)(self)
        state["bcd"] = {
            "k": self.k,
            "observed": self.observed,
            "window": self.window,
            "adam_lr": float(self.adam_lr),
            "hidden": sorted(self.hidden),
            "moments": {name: m.tensors() for name, m in self.moments.items()},
            "residuals": {name: m.tensors() for name, m in self.residuals.items()},
            "steps": {
                name: (step.scale.clone(), step.window.clone())
                for name, step in self.observer.steps.items()
            },
            "removal": None if self.removal is None else self.removal.state(),
        }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from ``state_dict()``. Load the model's own state first."""
        check_state(self, state_dict)
        own = state_dict["bcd"]
        plain = {name: value for name, value in state_dict.items() if name != "bcd"}
        getattr(Optimizer.load_state_dict, "__wrapped__", Optimizer.load_state_dict)(self, plain)
        self.param_groups = [Group(group) for group in self.param_groups]
        self._group_of = {id(p): group for group in self.param_groups for p in group["params"]}
        for state in self.state.values():  # torch has made numbers of it
            if "dead" in state:
                state["dead"] = state["dead"].bool()
        self.k, self.observed, self.hidden = own["k"], own["observed"], set(own["hidden"])
        self.window = own.get("window") or self.window  # states of earlier versions lack it
        self.adam_lr = own.get("adam_lr") or self.adam_lr
        self.moments, self.residuals, self._unit_maps = {}, {}, {}
        for name, tensors in own["moments"].items():
            self.moments[name] = self.layers[name].preconditioner(**self._moved(name, tensors))
        for name, tensors in own["residuals"].items():
            self.residuals[name] = LowRank(**self._moved(name, tensors))
        for name, (scale, window) in own["steps"].items():
            step = self.observer.steps[name]
            step.scale, step.window = (T.to(step.scale.device).clone() for T in (scale, window))
        if self.removal is not None:
            self.removal.restore(own["removal"])
        self._prepare()

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to be copied: hooks tie it to one model."""
        raise InputError("a BCD cannot be copied or pickled: copy its state_dict().")

    def _moved(self, name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Move tensors to the device of a layer's weights."""
        return {key: T.to(self.layers[name].weight.device) for key, T in tensors.items()}
