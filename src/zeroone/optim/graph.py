"""Probe a model to find which units must leave together, and what leaves with them.

A unit is a row of one layer's weights. It feeds columns of other layers, entries of BatchNorms, and
so on. To probe a layer, we replace its outputs by each unit's number and all other layers' outputs
by 0; modules that keep units apart (Step, BatchNorm) pass their inputs on. The numbers that arrive
at another layer's columns identify the units, through any pooling, flattening, concatenation or
sum. Units that are summed leave together. Any other value means that something mixes units, which
is refused.

Torch-Pruning reads the same dependencies from autograd's graph, with a rule for each operation.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from zeroone.nn.step import Step
from zeroone.optim.layers import ConvKind, LayerKind
from zeroone.optim.observer import first_input
from zeroone.utils.checks import InputError

KEEPS_UNITS_APART = (Step, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.PReLU, nn.Identity)
INPUT, NONE = -2, -1
TINY = 1e-9  # what arrives and is less than this counts as nothing


@dataclass
class UnitGraph:
    """Labels of units: equal labels leave together.

    units: the label of each layer's units; ``NONE`` for units that must stay
    columns: the label of each column of a layer, and of each channel of the modules in between,
        such as BatchNorm; ``INPUT`` for the model's inputs
    """

    units: dict[str, Tensor] = field(default_factory=dict)
    columns: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class _Arrivals:
    """What a probe delivers: to columns of layers, to channels in between, and as outputs."""

    columns: dict[str, Tensor] = field(default_factory=dict)
    outputs: list[Tensor] = field(default_factory=list)

    def take(self, name: str, values: Tensor) -> None:
        """Add one value for each column; of several calls of a module, the larger ones count."""
        values = values.double().cpu()
        before = self.columns.get(name, values)
        self.columns[name] = torch.maximum(before, values)


def unit_graph(model: nn.Module, layers: dict[str, LayerKind], inputs: Any) -> UnitGraph:
    """Probe a model with example inputs (args, kwargs) of its forward pass."""
    prober, first = _Prober(model, layers, inputs), 0
    numbers: dict[str, Tensor] = {}  # of each layer's units
    owners: dict[str, list[Tensor]] = {}  # the units that arrive at a place, by probe
    fixed: list[Tensor] = []  # units that must stay
    for name, kind in layers.items():
        own = numbers[name] = torch.arange(first, first + kind.n_units)
        first += len(own)
        found, reach_output = prober.units_at(name)
        if reach_output:
            fixed.append(own)
        else:
            _check_arrivals(name, len(own), [found[place] for place in layers if place in found])
        for place, unit in found.items():
            owners.setdefault(place, []).append(torch.where(unit >= 0, unit + own[0], NONE))
    ties = list(owners.values())
    for name, kind in layers.items():
        if kind.groups > 1:
            tied, stay = _follow_groups(kind, numbers[name], owners.get(name, []))
            ties.append(tied)
            fixed += stay
    label = torch.arange(first)
    _tie(label, ties)
    graph, inputs_at = UnitGraph(), prober.inputs_at()
    for place, owner in owners.items():
        merged = torch.stack(owner).amax(dim=0)
        labels = torch.where(merged >= 0, label[merged.clamp_min(0)], NONE)
        shared = inputs_at[place] | (prober.blank.columns[place] != 0)
        fixed.append(labels[shared & (labels >= 0)])  # they are added to inputs or to a constant
        graph.columns[place] = torch.where(inputs_at[place] & (labels < 0), INPUT, labels)
    stays = torch.zeros(len(label), dtype=torch.bool)
    stays[label[torch.cat([*fixed, label[:0]])]] = True
    for name, own in numbers.items():
        graph.units[name] = torch.where(stays[label[own]], NONE, label[own])
    return graph


def _check_arrivals(name: str, n_units: int, found: list[Tensor]) -> None:
    """Refuse units that arrive nowhere: a probe does not show how they are used."""
    arrived = torch.cat([*found, torch.empty(0, dtype=torch.long)])
    if not bool(torch.isin(torch.arange(n_units), arrived).all()):
        raise InputError(
            f"keep and lam cannot follow the units of {name!r}: some reach no other layer."
        )


def _follow_groups(
    kind: LayerKind, own: Tensor, owners: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Tie a depthwise convolution's units to its channels; other groups keep their units.

    Returns the units to tie, and those that must stay.
    """
    if not (isinstance(kind, ConvKind) and kind.groups == kind.module.in_channels):
        return [own], [own, *(owner[owner >= 0] for owner in owners)]
    tied, from_units = [own], torch.zeros(len(own), dtype=torch.bool)
    for owner in owners:
        of_channel = owner.reshape(kind.groups, -1)[:, 0]
        tied.append(of_channel.repeat_interleave(len(own) // kind.groups))
        from_units |= tied[-1] >= 0
    return tied, [own[~from_units]]  # channels of the inputs stay


def _tie(label: Tensor, places: list[list[Tensor]]) -> None:
    """Give units that arrive at the same place the same label, the smallest."""
    while True:
        before = label.clone()
        for found in places:
            first = found[0]  # the first unit at each entry
            for a in found[1:]:
                both = (first >= 0) & (a >= 0)
                for x, y in ((first, a), (a, first)):
                    ours, theirs = label[x[both]], label[y[both]]
                    label.scatter_reduce_(0, x[both], theirs, "amin")
                    label.scatter_reduce_(0, ours, theirs, "amin")
                first = torch.where(first >= 0, first, a)
        label.copy_(label[label])
        if torch.equal(before, label):
            return


class _Prober:
    """Runs a model with numbers of units in place of one layer's outputs."""

    def __init__(self, model: nn.Module, layers: dict[str, LayerKind], inputs: Any) -> None:
        self.model, self.layers, self.inputs = model, layers, inputs
        self.blank = self._forward("", number=False)  # all layers and inputs are 0: constants

    def units_at(self, name: str) -> tuple[dict[str, Tensor], bool]:
        """Find which of a layer's units arrive at each place, and whether they reach an output."""
        ones, numbers = self._forward(name, number=False), self._forward(name, number=True)
        found = {}
        for place, without in self.blank.columns.items():
            size, value = ones.columns[place] - without, numbers.columns[place] - without
            there = size.abs() > TINY
            ratio = torch.where(there, value / torch.where(there, size, 1), 0.0)
            number = ratio.round().long()
            if bool((ratio - number).abs().amax() > 0.05) or bool((number < 0).any()):
                raise InputError(
                    f"keep and lam cannot follow the units of {name!r} to {place!r}: something "
                    f"in between mixes them."
                )
            found[place] = number - 1  # NONE where there was 0
        both = zip(numbers.outputs, self.blank.outputs, strict=True)
        return found, any(not torch.equal(*outputs) for outputs in both)

    def inputs_at(self) -> dict[str, Tensor]:
        """Tell where the model's inputs arrive."""
        ones = self._forward(None, number=False).columns
        return {name: (ones[name] - T).abs() > TINY for name, T in self.blank.columns.items()}

    def _forward(self, name: str | None, *, number: bool) -> _Arrivals:
        """Probe with each unit's number, or with 1 for all units; "" stands for no layer."""
        arrivals = _Arrivals()

        def at_layer(own: str, kind: LayerKind) -> Callable[..., Tensor]:
            def hook(_module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor:
                x = first_input(args, kwargs)
                if x.is_floating_point():
                    arrivals.take(own, kind.columns_of(x))
                if own == name:
                    return _numbered(output, kind.unit_dim, number)
                return torch.zeros_like(output)

            return hook

        def between(own: str) -> Callable[..., Tensor]:
            def hook(module: nn.Module, args: Any, kwargs: Any, _output: Tensor) -> Any:
                x = first_input(args, kwargs)
                dim = getattr(module, "dim", 1)
                arrivals.take(own, x.movedim(dim, 0).flatten(1).amax(dim=1))
                bits = len(getattr(module, "thresholds", (0.0,)))  # that each unit gives
                return torch.cat([x] * bits, dim) if bits > 1 else x

            return hook

        hooks = [
            kind.module.register_forward_hook(at_layer(own, kind), with_kwargs=True)
            for own, kind in self.layers.items()
        ] + [
            module.register_forward_hook(between(own), with_kwargs=True)
            for own, module in self.model.named_modules()
            if isinstance(module, KEEPS_UNITS_APART)
        ]
        args, kwargs = self.inputs
        fill = torch.ones_like if name is None else torch.zeros_like
        given, named = tree_map(lambda v: fill(v) if _is_float(v) else v, (args, kwargs))
        try:
            with torch.no_grad(), evaluating(self.model):
                output = self.model(*given, **named)
        finally:
            for hook in hooks:
                hook.remove()
        arrivals.outputs = [leaf for leaf in tree_leaves(output) if _is_float(leaf)]
        return arrivals


def _numbered(output: Tensor, dim: int, number: bool) -> Tensor:
    """Fill each unit's entries with its number, from 1; or all entries with 1."""
    by_unit = output.movedim(dim, -1)
    n = by_unit.shape[-1]
    values = torch.arange(1, n + 1) if number else torch.ones(n)
    return values.to(output).expand_as(by_unit).movedim(-1, dim)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode, then restore each module's own mode."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
