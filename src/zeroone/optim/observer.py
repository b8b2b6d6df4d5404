"""Observe a batch: each layer's inputs, and the scales and residuals of its outputs.

Hooks are attached for observed batches only. All other batches run as they would without BCD,
compiled or not.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from zeroone.nn.step import Step
from zeroone.optim.layers import LayerKind
from zeroone.utils.checks import InputError

Value = TypeVar("Value")
SCALE_MEMORY = 0.9  # the weight of the past in a unit's running variance
APART = 0.5  # the initial spread of thresholds, relative to the units' scales
CONSTANT = 1e-12  # a unit with no more variance than this counts as constant
# Operations in autograd's graph that pass on a common shift of all of a unit's entries: poolings,
# means, sums and changes of shape. A product with a number passes on a multiple of it.
SHIFTED = re.compile(
    "MaxPool|AvgPool|AdaptiveAvgPool|AdaptiveMaxPool|MeanBackward|AddBackward|ViewBackward|"
    "ReshapeAlias|UnsafeView|Permute|Transpose|Clone|ToCopy|Squeeze|Unsqueeze"
)
SCALED = "MulBackward0"


@dataclass
class Call:
    """What one call of a layer shows."""

    rows: Tensor
    weights: Tensor | None  # of the rows, if samples have weights
    sums: Tensor  # of each unit's outputs and of their squares
    count: float
    shift: Tensor | None = None  # subtracted from the bias after the call

    def shifted(self) -> Tensor:
        """Return the sums of the outputs as the bias is now."""
        if self.shift is None:
            return self.sums
        (first, second), shift = self.sums, self.shift.to(self.sums)
        moved = second - 2 * shift * first + self.count * shift.square()
        return torch.stack([first - self.count * shift, moved])


@dataclass
class Seen:
    """What one observed batch shows of a layer: the calls that had a part in its loss."""

    calls: list[Call] = field(default_factory=list)
    residuals: list[Tensor] = field(default_factory=list)  # this rank's rows, for all units

    @property
    def count(self) -> float:
        """Of each unit's outputs."""
        return sum(call.count for call in self.calls)

    @property
    def variance(self) -> Tensor:
        """Of each unit's outputs."""
        sums = self.calls[0].sums  # a common shift leaves the variance of one call alone
        if len(self.calls) > 1:
            sums = torch.stack([call.shifted() for call in self.calls]).sum(dim=0)
        return unit_moments(sums, self.count)[1]


class Hook:
    """A hook that does nothing on copies of its module, and can be pickled with them."""

    def __init__(self, see: Callable[..., Any] | None = None, name: str = "") -> None:
        self.see, self.name = see, name

    def __call__(self, *call: Any) -> Any:
        """Report the module's call; what comes back replaces the inputs of a Step."""
        return None if self.see is None else self.see(self.name, *call)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hook, ()


class Observer:
    """Hooks on the layers and the steps of a model, attached while a batch is observed.

    A forward pass shows inputs, outputs and scales. They count once a backward pass comes back to
    them, so that batches may be skipped. With several ranks all count at once: each rank knows its
    own backward pass only, and all must count the same.
    """

    def __init__(
        self, model: nn.Module, layers: dict[str, LayerKind], steps: dict[str, Step]
    ) -> None:
        self.model, self.layers, self.steps = model, layers, steps  # the model as it is called
        # For the next batch: the samples' weights and their places in the batch of all ranks.
        self.sample_weight: Tensor | None = None
        self.places: Tensor | None = None
        self.seen: dict[str, Seen] = {}
        self._undo = ExitStack()
        self.detach()

    def detach(self) -> None:
        """Remove all hooks and discard what was seen."""
        self._undo.close()
        self.attached = self._balances = False
        self.seen.clear()
        self._begin()

    def attach(self, *, balance: bool = False) -> None:
        """Start to observe; ``balance`` sets the thresholds from this batch."""
        self.detach()
        self.attached, self._balances = True, balance
        self._begin()
        self._scales_at_start = {name: step.scale for name, step in self.steps.items()}
        for name, kind in self.layers.items():
            look = Hook(self._see_layer, name)
            self._undo.enter_context(kind.module.register_forward_hook(look, with_kwargs=True))
        for name, step in self.steps.items():
            look = Hook(self._see_step, name)
            self._undo.enter_context(step.register_forward_pre_hook(look, with_kwargs=True))
        # Compiled code skips hooks: until they are removed, compiled modules run eagerly.
        for part in self.model.modules():
            plain = part._modules.get("_orig_mod")
            if plain is not None:  # torch.compile(part)
                self._set(part, "forward", plain.__call__)
            elif part._compiled_call_impl is not None:  # part.compile()
                self._set(part, "_compiled_call_impl", None)

    def _begin(self) -> None:
        """Forget all forward passes so far."""
        self._stale = False
        self.hidden: set[str] = set()  # layers whose outputs reach a Step
        self._widths: dict[str, int] = {}  # the number of units that each Step saw
        # Steps whose thresholds this batch has yet to set.
        self._unbalanced: set[str] = set(self.steps if self._balances else ())
        self._to_shift: dict[str, list[Call]] = {}  # calls of layers, while there are such steps
        self._scales_before: dict[str, Tensor] = {}  # calls to which no backward pass came back
        # Of nodes in autograd's graph: the layers' outputs, what was subtracted from their biases
        # since, and those that some Step has been seen to depend on.
        self._layer_of: dict[Any, str] = {}
        self._shifts: dict[Any, Tensor] = {}
        self._walked: set[Any] = set()

    def discard(self) -> None:
        """Discard what counts so far; another forward pass begins the batch anew."""
        if world_size() > 1:
            for seen in self.seen.values():
                seen.residuals.clear()
            return
        self.seen.clear()
        self._stale = self.attached

    def _begin_anew(self) -> None:
        """Begin the batch again if it was discarded."""
        if self._stale:
            self._begin()
            for name, scale in self._scales_at_start.items():
                self.steps[name].scale = scale.to(self.steps[name].scale.device)

    def settle(self) -> None:
        """Restore the scales from before the calls since the last backward pass."""
        for name, scale in self._scales_before.items():
            self.steps[name].scale = scale

    def _set(self, module: nn.Module, name: str, value: Any) -> None:
        self._undo.callback(setattr, module, name, getattr(module, name))
        setattr(module, name, value)

    def _see_layer(
        self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Tensor
    ) -> None:
        kind = self.layers[name]
        if not _trains(module, kind.module, output):
            return
        if output.ndim < kind.axes:
            raise InputError(f"{name} got a sample without a batch axis: give a batch of samples.")
        self._begin_anew()
        self._layer_of[output.grad_fn] = name
        with torch.no_grad(), without_autocast(output.device.type):
            x, dtype = first_input(args, kwargs).detach(), kind.weight.dtype
            numbers, total = places_in_batch(len(x), self.places)
            rows, samples = kind.rows(x, numbers, total)
            rows = rows.to(dtype)
            rows, often, heavy = gathered(rows), None, self._weights_of(x)
            if heavy is not None:
                some = heavy[samples.to(heavy.device)].to(dtype)
                often = gathered(some[None, :, None])[0, :, 0]
            sums, count = unit_sums(output.detach().to(dtype), kind.unit_dim, heavy)
        waiting = [Call(rows, often, sums, count)]  # empty once it counts: losses may be kept
        if self._unbalanced:
            self._to_shift.setdefault(name, []).append(waiting[0])
        if world_size() > 1:
            self.seen.setdefault(name, Seen()).calls.append(waiting.pop())

        def look_back(residual: Tensor | None) -> None:
            if waiting:
                self._stale = False
                self.seen.setdefault(name, Seen()).calls.append(waiting.pop())
            seen = self.seen.get(name)
            # With groups, the map mixes units, and groups have different columns.
            if seen is None or residual is None or kind.groups > 1:
                return
            rows, samples = kind.residual_rows(residual.detach(), numbers, total)
            rows = rows.to(dtype)
            if heavy is not None:
                # The residual of a sample with weight w is w times as large. Divided by sqrt(w),
                # its square counts w times.
                often = heavy[samples.to(heavy.device)].to(rows)
                rows = rows / often.clamp_min(1e-30).sqrt()[:, None]
            seen.residuals.append(rows)

        output.register_hook(look_back)  # type: ignore[no-untyped-call]

    def _see_step(self, name: str, module: Step, args: Any, kwargs: Any) -> Any:
        B, shift = first_input(args, kwargs), None
        if not _trains(module, self.steps[name], B):
            return None
        self._begin_anew()
        self._check_axis(name, module, B)
        with torch.no_grad(), without_autocast(B.device.type):
            exact = B.dtype if B.dtype == torch.float64 else torch.float32
            sums, n = unit_sums(B.detach().to(exact), module.dim, self._weights_of(B))
            mean, variance = unit_moments(sums, n)
            if self._widths.setdefault(name, len(mean)) != len(mean):
                raise InputError(
                    f"{name} follows layers of {self._widths[name]} and {len(mean)} units: give "
                    f"each its own Step, and Step(dim=-1) after a Linear on samples of several "
                    f"axes."
                )
            if B.grad_fn is not None and world_size() == 1:
                before = self._scales_before
                before.setdefault(name, module.scale)

                def look_back(_residual: Tensor | None) -> None:
                    before.pop(name, None)

                B.register_hook(look_back)
            module.take_scale(torch.where(variance > CONSTANT, variance, 1.0), SCALE_MEMORY)
            if name in self._unbalanced and bool(variance.isfinite().all()):
                self._unbalanced.remove(name)
                shift = mean + variance.sqrt() * thresholds_apart(len(mean)).to(mean)
                shift = self._shift(B.grad_fn, shift.to(B.dtype))
        self._note_hidden(B.grad_fn)
        return None if shift is None else ((B - module.along_units(shift, B),), {})

    def _check_axis(self, name: str, step: Step, B: Tensor) -> None:
        """Refuse a Step that takes another axis for the units than the layer before it has."""
        layer = self._layer_of.get(B.grad_fn)
        axis = step.dim if layer is None else self.layers[layer].unit_dim
        if (axis - step.dim) % B.ndim:
            raise InputError(
                f"the units of {layer} are axis {axis} of its output: give {name} Step(dim={axis})."
            )

    def _weights_of(self, x: Tensor) -> Tensor | None:
        """Return the weights of x's samples, if there are any and x has one row per sample."""
        weights = self.sample_weight
        return None if weights is None or len(weights) != len(x) else weights

    def _shift(self, node: Any, wanted: Tensor) -> Tensor:
        """Subtract a shift from the bias of a layer that feeds a Step, if one can take it.

        Returns the shift that the Step would see if the same batch came again. Shifts of earlier
        layers in a stream count. A layer that an earlier Step has seen is left alone.
        """
        feeding = list(self._feeding(node))
        total = torch.zeros_like(wanted)
        for at, factor in feeding:
            if at in self._shifts and self._shifts[at].shape == wanted.shape:
                total += factor * self._shifts[at]
        for at, factor in feeding:
            name = self._layer_of[at]
            bias = self.layers[name].bias
            if name in self.hidden or bias is None or not bias.requires_grad:
                continue
            if bias.shape == wanted.shape:
                shift = (wanted - total) / factor
                bias.sub_(shift)
                for call in self._to_shift.get(name, ()):
                    call.shift = shift if call.shift is None else call.shift + shift
                self._shifts |= {a: shift for a, owner in self._layer_of.items() if owner == name}
                return wanted
        return total

    def _feeding(self, node: Any) -> Iterator[tuple[Any, float]]:
        """Yield the layers whose outputs a node adds up, nearest first, each with its factor."""
        queue = [(node, 1.0)]
        while queue:
            at, factor = queue.pop(0)
            if at in self._layer_of:
                yield at, factor
            elif factor := factor * _shift_factor(at):
                queue.extend((below, factor) for below, _ in at.next_functions)

    def _note_hidden(self, node: Any) -> None:
        """Note that all layers below a node of autograd's graph are below a Step."""
        stack = [node]
        while stack:
            node = stack.pop()
            if node is None or node in self._walked:
                continue
            self._walked.add(node)
            if node in self._layer_of:
                self.hidden.add(self._layer_of[node])
            stack.extend(below for below, _ in node.next_functions)


def _trains(module: nn.Module, ours: nn.Module, T: Tensor) -> bool:
    """Whether a call trains our module: copies of the model carry the hooks, too."""
    return module is ours and module.training and torch.is_grad_enabled() and T.requires_grad


def _shift_factor(node: Any) -> float:
    """Return by how much an operation multiplies a shift of a whole unit; 0 if unknown."""
    name = "" if node is None else node.name()
    if not name.startswith(SCALED):
        return float(SHIFTED.match(name) is not None)
    factors = [getattr(node, saved, None) for saved in ("_saved_self", "_saved_other")]
    numbers = [float(f) for f in factors if isinstance(f, Tensor) and f.ndim == 0]
    return numbers[0] if len(numbers) == 1 else 0.0


def first_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a module's first argument, positional or named."""
    return args[0] if args else next(iter(kwargs.values()))


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """Compute in the tensors' own dtypes, even inside autocast."""
    known = torch.amp.is_autocast_available(device_type)
    return torch.autocast(device_type, enabled=False) if known else nullcontext()


def thresholds_apart(n: int) -> Tensor:
    """Return n initial thresholds around 0: evenly spaced quantiles of a Gaussian, shuffled.

    Units whose thresholds all lie in the middle of the data reveal only the sign of a projection;
    steps at several heights follow it like a staircase.
    """
    golden = (5**0.5 - 1) / 2
    shares = torch.arange(1, n + 1, dtype=torch.float64) * golden % 1
    return APART * 2**0.5 * torch.erfinv(2 * shares - 1)


def unit_sums(B: Tensor, dim: int, weights: Tensor | None = None) -> tuple[Tensor, float]:
    """Sum each unit's values and their squares over all ranks; also return their number."""
    others = [d for d in range(B.ndim) if d != dim % B.ndim]
    count = B.numel() / B.shape[dim]
    weighted = B
    if weights is not None:
        weighted = B * weights.to(B).view(-1, *[1] * (B.ndim - 1))
        count *= float(weights.sum()) / max(1, len(weights))
    sums = torch.stack([weighted.sum(dim=others), (weighted * B).sum(dim=others)])
    if world_size() > 1:
        both = torch.cat([sums.flatten(), sums.new_tensor([count])])
        distributed.all_reduce(both)
        sums, count = both[:-1].view_as(sums), float(both[-1])
    return sums, count


def unit_moments(sums: Tensor, count: float) -> tuple[Tensor, Tensor]:
    """Return each unit's mean and variance; a variance within rounding error counts as 0."""
    mean, square = sums / count
    variance = square - mean.square()
    rounding = 64 * torch.finfo(variance.dtype).eps * square
    return mean, torch.where(variance <= rounding, 0, variance)  # NaN stays


def world_size() -> int:
    """Return the number of processes that train together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def places_in_batch(n: int, known: Tensor | None) -> tuple[Tensor, int]:
    """Return this rank's n places in the whole batch, and the size of that batch.

    Unless the places are ``known``, each rank holds one slice, in the order of the ranks.
    """
    counts = _of_all_ranks(n)
    if known is None or len(known) != n or len(counts) == 1:
        rank = distributed.get_rank() if len(counts) > 1 else 0
        known = sum(counts[:rank]) + torch.arange(n)
    return known, sum(counts)


def gathered(rows: Tensor) -> Tensor:
    """Concatenate the rows (groups, rows, columns) of all processes, in the order of ranks."""
    if world_size() == 1:
        return rows
    return torch.cat([part.to(rows.device) for part in _of_all_ranks(rows.cpu())], dim=1)


def _of_all_ranks(value: Value) -> list[Value]:
    """Return every process's value, in the order of ranks."""
    if world_size() == 1:
        return [value]
    everyone = [value] * world_size()
    distributed.all_gather_object(everyone, value)
    return everyone
