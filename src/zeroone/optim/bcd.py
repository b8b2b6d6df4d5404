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

import inspect
import warnings
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary, finalize, ref

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from zeroone.nn.step import Step
from zeroone.optim.groups import (
    Group,
    default_damping,
    find_layers,
    inner_model,
    sort_parameters,
)
from zeroone.optim.observer import Observer
from zeroone.optim.removal import Removal
from zeroone.optim.w_block import WBlock
from zeroone.utils.checks import InputError, count, positive

EARLY, OBSERVE_EVERY = (0, 1, 2, 4, 7), 10  # the batches that are observed
HALVED = 2000  # in a training without an end, steps are half as large after so many batches
WINDOW_END = 0.5  # the window falls to this share
ACTIVE: "WeakKeyDictionary[nn.Module, ref[Observer]]" = WeakKeyDictionary()  # one per model
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8  # Adam's


class BCD(Optimizer):
    """Train a model with ``Step`` activations by stochastic block coordinate descent.

    Args:
        model: any module whose hidden activations are ``Step`` modules. Pass the model that
            you call, even if it is compiled or wrapped in ``DistributedDataParallel``.
        total_steps: the number of batches in the training, over which all step sizes fall.
            None means that there is no end.
        move: the root mean square change of a hidden layer's pre-activations per batch,
            relative to their standard deviation; falls linearly to 0.
        momentum: the weight of earlier batches in the gradients that the W block solves for. For
            deep convolutional networks, take 0.9 and a smaller ``move``, such as 0.03.
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
            of move, momentum, head_step, damping, weights and density.
        adam_lr: Adam's learning rate for parameters without a W block, such as BatchNorm's;
            falls linearly to 0.
        balance: whether the first batch sets the biases. It centres each unit's
            pre-activations and spreads the thresholds by half a standard deviation.
        strict: refuse parameters without a W block.

    Raises:
        InputError: if the model or a setting cannot be used.

    """

    # Optimizer wraps some methods. On their first call the wrappers import torch's compiler, which
    # takes a second of CPU time. The plain functions do the same without it.
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; only the constructor may do so."""
        if hasattr(self, "blocks"):
            raise InputError("BCD takes its groups when it is made: BCD(model, n, groups=[...]).")
        inspect.unwrap(Optimizer.add_param_group)(self, param_group)

    def __init__(
        self,
        model: nn.Module,
        total_steps: int | None,
        *,
        move: float = 0.08,
        momentum: float = 0.0,
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
        if not isinstance(model, nn.Module):
            raise InputError(
                f"BCD takes the model itself, not its parameters, and no {type(model).__name__}; "
                f"zeroone.to_torch(network, trainable=True) makes a module of a zeroone.Network."
            )
        self.total_steps = None if total_steps is None else count("total_steps", total_steps)
        self.k = 0  # batches done
        self.observed = 0  # those of them that were observed
        self._window, self.adam_lr = positive("window", window), positive("adam_lr", adam_lr)
        self.balance = balance
        self.model = inner_model(model)
        layers = find_layers(self.model)
        steps = {n: m for n, m in self.model.named_modules() if isinstance(m, Step)}
        if not steps and len(layers) != 1:  # one layer has no hidden units
            raise InputError("the model has no zeroone.nn.Step: BCD trains 0/1 activations.")
        defaults = {
            "move": move,
            "momentum": momentum,
            "head_step": head_step,
            "damping": default_damping(self.total_steps) if damping is None else damping,
            "weights": weights,
            "density": density,
        }
        super().__init__(sort_parameters(self.model, layers, list(groups), strict=strict), defaults)
        self.blocks = {name: WBlock(name, kind) for name, kind in layers.items()}
        self._take_groups()
        self.removal: Removal | None = None
        if keep is not None or lam:
            if isinstance(model, nn.parallel.DistributedDataParallel):
                raise InputError("keep and lam change sizes, which DistributedDataParallel cannot.")
            self.removal = Removal(self, keep, lam)
        earlier = ACTIVE[self.model]() if self.model in ACTIVE else None
        if earlier is not None:  # its BCD hands the model over
            earlier.detach()
        self.observer = Observer(model, layers, steps)
        ACTIVE[self.model] = ref(self.observer)
        finalize(self, self.observer.detach).atexit = False  # the model may outlive its BCD
        for step in steps.values():
            step.window.fill_(self.window)
        self._prepare()

    def _take_groups(self) -> None:
        """Check the groups, and tell each W block its settings: those of its weights."""
        self.param_groups = [Group(group) for group in self.param_groups]
        groups = {p: group for group in self.param_groups for p in group["params"]}
        for block in self.blocks.values():
            block.group = groups[block.kind.weight]

    def began_with(self, widths: dict[str, int]) -> None:
        """Continue from a pruned model: ``keep`` counts from these widths.

        Input columns that are empty stay empty.
        """
        for block in self.blocks.values():
            empty = (block.kind.matrix(block.kind.weight.data) == 0).all(dim=1).all(dim=0)
            if bool(empty.any()):
                block.dead = empty
        if self.removal is not None:
            self.removal.began = widths

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
        """Reset the gradients, and what was observed with them."""
        self.observer.discard()
        inspect.unwrap(Optimizer.zero_grad)(self, set_to_none)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every W block from the gradients of the last backward pass."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        if self.k == self.total_steps:
            raise InputError(f"total_steps={self.total_steps} batches are done.")
        if all(p.grad is None for group in self.param_groups for p in group["params"]):
            raise InputError("step() needs gradients: call backward() on the loss first.")
        for block in self.blocks.values():
            block.check_same_place()
        if self.observer.attached:
            self._take_in()
        for block in self.blocks.values():
            block.step(self.left)
        self._adam()
        self.k += 1
        if self.removal is not None:
            self.removal.after_batch()
        self._prepare()
        return loss

    def _prepare(self) -> None:
        """Observe the next batch, if it is due."""
        due = self.k in EARLY or self.k % OBSERVE_EVERY == 0
        pruned = self.removal is not None and self.removal.due(self.k + 1)  # needs fresh moments
        if (due or pruned) and self.k != self.total_steps:
            self.observer.attach(balance=self.balance and self.k == 0)
        else:
            self.observer.detach()

    def _take_in(self) -> None:
        """Update the W blocks and the windows from the batch that the observer saw."""
        self._check_seen()
        self.observer.settle()
        for name, block in self.blocks.items():
            seen = self.observer.seen.get(name)
            if seen is None:
                continue
            if seen.count == 0:
                raise InputError(f"a batch without samples reached {name}: skip it.")
            block.hidden |= name in self.observer.hidden
            if seen.count == 1 and block.hidden and self.k == 0:
                warnings.warn(
                    "BCD sizes its steps by the spread of units in a batch: batches of one sample "
                    "leave hidden layers as they are. Accumulate gradients over several.",
                    stacklevel=3,
                )
            block.observe(seen, self.observed)
        self.observed += 1
        for step in self.observer.steps.values():
            step.window.fill_(self.window * (WINDOW_END + (1 - WINDOW_END) * self.left))

    def _check_seen(self) -> None:
        """Refuse parameters that the batch trains, but BCD does not know or cannot observe."""
        if not self.observer.seen:
            raise InputError(
                "BCD saw no forward pass in training mode with a backward pass: call "
                "model.train(), and give BCD the model that you call, compiled or not."
            )
        known = {p for group in self.param_groups for p in group["params"]}
        for name, p in self.model.named_parameters():
            if p.grad is not None and p not in known:
                raise InputError(f"{name} was frozen when BCD was made: make another BCD.")
            if self.k == 0 and p.requires_grad and p.grad is None and p in known:
                raise InputError(
                    f"{name} has no part in the loss of the first batch: remove it, or freeze it "
                    f"with requires_grad_(False)."
                )
        for name, block in self.blocks.items():
            unseen = block.moments is None and name not in self.observer.seen
            if unseen and block.kind.weight.grad is not None:
                raise InputError(
                    f"BCD saw no inputs of {name}: call it as a module, in training mode."
                )

    def _adam(self) -> None:
        """Update all parameters without a W block by Adam."""
        for group in self.param_groups:
            for p in group["params"] if group.get("adam") else ():
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

    def replace(self, module: nn.Module, name: str, data: Tensor) -> None:
        """Replace a module's parameter by one of another size, which inherits place and state.

        The old tensor is left intact for graphs that still refer to it.
        """
        old = getattr(module, name)
        new = nn.Parameter(data, requires_grad=old.requires_grad)
        setattr(module, name, new)
        for group in self.param_groups:
            group["params"] = [new if p is old else p for p in group["params"]]
        if old in self.state:
            self.state[new] = self.state.pop(old)

    def state_dict(self) -> dict[str, Any]:
        """Everything the next batch depends on, apart from the model's own state."""
        state: dict[str, Any] = inspect.unwrap(Optimizer.state_dict)(self)
        state["bcd"] = {
            "k": self.k,
            "observed": self.observed,
            "window": self.window,
            "adam_lr": self.adam_lr,
            "blocks": {name: block.state() for name, block in self.blocks.items()},
            "steps": {
                name: (step.scale.clone(), step.window.clone())
                for name, step in self.observer.steps.items()
            },
            "removal": None if self.removal is None else self.removal.state(),
        }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from ``state_dict()``. Load the model's own state first."""
        try:
            self._load(state_dict, state_dict["bcd"])
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise InputError("the state does not fit the model and its settings.") from error

    def _load(self, state_dict: dict[str, Any], own: dict[str, Any]) -> None:
        if self.total_steps is not None and own["k"] > self.total_steps:
            raise ValueError(f"it has {own['k']} batches, more than {self.total_steps}")
        if self.removal is not None and own["removal"] is None:
            raise ValueError("it has removed no units")
        for name, block in self.blocks.items():  # before anything changes
            block.check(own["blocks"][name])
        if missing := self.observer.steps.keys() - own["steps"].keys():
            raise ValueError(f"it lacks the steps {missing}")
        plain = {name: value for name, value in state_dict.items() if name != "bcd"}
        inspect.unwrap(Optimizer.load_state_dict)(self, plain)
        self._take_groups()
        self.k, self.observed = own["k"], own["observed"]
        self.window, self.adam_lr = own["window"], own["adam_lr"]
        for name, block in self.blocks.items():
            block.load(own["blocks"][name])
        for name, step in self.observer.steps.items():
            step.scale, step.window = (T.to(step.scale.device).clone() for T in own["steps"][name])
        if self.removal is not None:
            self.removal.load(own["removal"])
        self._prepare()

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to be copied: hooks tie it to one model."""
        raise InputError("a BCD cannot be copied or pickled: copy its state_dict().")
