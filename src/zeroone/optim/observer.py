"""What BCD sees of a forward pass: the inputs of each layer, the scales of its outputs.

Hooks are attached for the batches that are observed and removed after them. All other batches run
as they would without BCD, compiled or not.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, distributed, nn

from zeroone.nn.step import Step
from zeroone.optim.layers import LayerKind

SCALE_MEMORY = 0.9  # what an observation leaves of a unit's variance
APART = 0.5  # how far apart the thresholds of units start, in units of their scales
CONSTANT = 1e-12  # variance up to which a unit's pre-activation does not vary
# Operations of autograd's graph that pass on a common shift of all entries of a unit.
SHIFTED = (
    "MaxPool",
    "AvgPool",
    "AdaptiveAvgPool",
    "AdaptiveMaxPool",
    "MeanBackward",
    "AddBackward",
    "ViewBackward",
    "ReshapeAlias",
    "UnsafeView",
    "Permute",
    "Transpose",
    "Clone",
    "ToCopy",
    "Squeeze",
    "Unsqueeze",
)


@dataclass
class Seen:
    """What one observed batch showed of a layer, over all calls of it."""

    rows: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)  # of the rows, if samples have weights
    nodes: list[Any] = field(default_factory=list)  # its outputs in autograd's graph
    sums: Tensor | None = None  # of each unit's outputs and of their squares
    count: float = 0.0

    @property
    def variance(self) -> Tensor:
        """Of each unit's outputs."""
        assert self.sums is not None
        return unit_moments(self.sums, self.count)[1]


class Observer:
    """Hooks on the layers and the steps of a model, attached while a batch is observed."""

    def __init__(self, layers: dict[str, LayerKind], steps: dict[str, Step]) -> None:
        self.layers, self.steps = layers, steps
        self.seen: dict[str, Seen] = {}
        self._step_nodes: list[Any] = []
        self._handles: list[Any] = []
        self._balanced: set[str] | None = None
        self.sample_weight: Tensor | None = None  # of the next batch: how often samples count

    @property
    def attached(self) -> bool:
        """Whether the next batch is observed."""
        return bool(self._handles)

    def attach(self, *, balance: bool = False) -> None:
        """Observe from now on; ``balance`` places the thresholds by the first batch."""
        self.detach()
        self._balanced = set() if balance else None
        for name, kind in self.layers.items():
            hook = self._layer_hook(name, kind)
            self._handles.append(kind.module.register_forward_hook(hook))
        for name, module in self.steps.items():
            self._handles.append(module.register_forward_pre_hook(self._step_hook(name)))

    def detach(self) -> None:
        """Remove all hooks, and forget what was seen."""
        for handle in self._handles:
            handle.remove()
        self._handles, self.seen, self._step_nodes = [], {}, []

    def below_a_step(self) -> set[str]:
        """The layers whose outputs reach a Step, found in autograd's graph of the batch."""
        layer_of = self._layer_of()
        return {layer_of[node] for node in _below(self._step_nodes) if node in layer_of}

    def _layer_of(self) -> dict[Any, str]:
        return {node: name for name, seen in self.seen.items() for node in seen.nodes}

    def _layer_hook(self, name: str, kind: LayerKind) -> Any:
        def look(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            if not (module.training and torch.is_grad_enabled()):
                return
            seen = self.seen.setdefault(name, Seen())
            seen.nodes.append(output.grad_fn)
            with torch.no_grad(), without_autocast(output.device.type):
                x, dtype = args[0].detach(), kind.weight.dtype
                first, total = place_in_batch(len(x))
                x = x.to(dtype) if x.is_floating_point() else x
                rows, samples = kind.rows(x, first, total)
                seen.rows.append(gathered(rows))
                heavy = self._weights_of(x)
                if heavy is not None:
                    some = heavy[samples.to(heavy.device)].to(dtype)
                    seen.weights.append(gathered(some[None, :, None])[0, :, 0])
                sums, count = unit_sums(output.detach().to(dtype), kind.unit_dim, heavy)
                seen.sums = sums if seen.sums is None else seen.sums + sums
                seen.count += count

        return look

    def _step_hook(self, name: str) -> Any:
        def look(module: Step, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            B = args[0]
            if not (module.training and torch.is_grad_enabled() and B.requires_grad):
                return None
            self._step_nodes.append(B.grad_fn)
            with torch.no_grad(), without_autocast(B.device.type):
                exact = B.dtype if B.dtype == torch.float64 else torch.float32
                heavy = self._weights_of(B)
                sums, n = unit_sums(B.detach().to(exact), module.dim, heavy)
                mean, variance = unit_moments(sums, n)
                module.take_scale(torch.where(variance > CONSTANT, variance, 1.0), SCALE_MEMORY)
                if self._balanced is None or name in self._balanced:
                    return None
                self._balanced.add(name)
                shift = mean + variance.sqrt() * thresholds_apart(len(mean)).to(mean)
                if not self._shift(B.grad_fn, shift):
                    return None
            return (B - module.along_units(shift, B).to(B.dtype),)

        return look

    def _weights_of(self, x: Tensor) -> Tensor | None:
        """The weights of the samples in x, if there are weights, and samples are its rows."""
        weights = self.sample_weight
        return None if weights is None or len(weights) != len(x) else weights

    def _shift(self, node: Any, mean: Tensor) -> bool:
        """Take the mean from the bias of a layer that feeds a Step; whether there is one."""
        layer_of, queue = self._layer_of(), [node]
        while queue:
            node = queue.pop(0)
            if node in layer_of:
                bias = self.layers[layer_of[node]].bias
                if bias is not None and bias.shape == mean.shape:
                    bias.sub_(mean)
                    return True
            elif node is not None and node.name().startswith(SHIFTED):
                queue.extend(below for below, _ in node.next_functions)
        return False


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """All in the dtypes that tensors have; where autocast is off, or unknown, nothing to do."""
    known = torch.amp.is_autocast_available(device_type)
    if not (known and torch.is_autocast_enabled(device_type)):
        return nullcontext()
    return torch.autocast(device_type, enabled=False)


def _below(nodes: list[Any]) -> Iterator[Any]:
    """These nodes of autograd's graph and all below them."""
    stack, done = list(nodes), set()
    while stack:
        node = stack.pop()
        if node is None or node in done:
            continue
        done.add(node)
        yield node
        stack.extend(below for below, _ in node.next_functions)


def thresholds_apart(n: int) -> Tensor:
    """Where n units start, around 0: evenly spread quantiles of a Gaussian, in no order.

    Units with their threshold in the middle of the data tell only the sign of a projection; steps
    at several heights follow it like a staircase.
    """
    golden = (5**0.5 - 1) / 2
    shares = torch.arange(1, n + 1, dtype=torch.float64) * golden % 1
    return APART * 2**0.5 * torch.erfinv(2 * shares - 1)


def unit_sums(B: Tensor, dim: int, weights: Tensor | None = None) -> tuple[Tensor, float]:
    """The sum of each unit's values and of their squares, and how many there are, on all ranks."""
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
    """The mean and the variance of each unit."""
    mean = sums[0] / count
    return mean, (sums[1] / count - mean.square()).clamp_min(0)


def world_size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def place_in_batch(n: int) -> tuple[int, int]:
    """Of n samples here: the number of the first one in the whole batch, and how many it has."""
    if world_size() == 1:
        return 0, n
    counts = gathered_counts(n)
    return sum(counts[: distributed.get_rank()]), sum(counts)


def gathered_counts(n: int) -> list[int]:
    """The n of every process."""
    backend = distributed.get_backend()
    device = "cuda" if "nccl" in backend and "gloo" not in backend else "cpu"
    counts = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(world_size())]
    distributed.all_gather(counts, torch.tensor([n], device=device))
    return [int(count) for count in counts]


def gathered(rows: Tensor) -> Tensor:
    """The rows (groups, rows, columns) of all processes, in the order of their ranks."""
    if world_size() == 1:
        return rows
    counts = gathered_counts(rows.shape[1])
    padded = rows.new_zeros(rows.shape[0], max(counts), rows.shape[2])
    padded[:, : rows.shape[1]] = rows
    everyone = [torch.empty_like(padded) for _ in counts]
    distributed.all_gather(everyone, padded)
    return torch.cat([part[:, :n] for part, n in zip(everyone, counts, strict=True)], dim=1)
