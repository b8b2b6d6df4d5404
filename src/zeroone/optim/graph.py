"""Probe a model to find which units must leave together, and what leaves with them.

A unit is a row of one layer's weights. It feeds columns of other layers, entries of BatchNorms, and
so on. To probe a layer, we replace its outputs by each unit's number and all other layers' outputs
by 0; modules that keep units apart (Step, BatchNorm) pass their inputs on. The numbers that arrive
at another layer's columns identify the units, through any pooling, flattening, concatenation or
sum. Units that are summed leave together. Any other value means that something mixes units, which
is refused.

Torch-Pruning reads the same dependencies from autograd's graph, with a rule for each operation.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from zeroone.nn.step import Step
from zeroone.optim.layers import ConvKind, LayerKind
from zeroone.optim.observer import first_input
from zeroone.utils.checks import InputError

KEEPS_UNITS_APART = (Step, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.PReLU, nn.Identity)
INPUT, NONE = -2, -1
TINY = 1e-9  # what arrives and is less than this counts as nothing
Layers = dict[str, LayerKind]
Arrivals = tuple[dict[str, Tensor], list[Tensor]]  # at columns and channels; the outputs


@dataclass
class UnitGraph:
    """Labels of units: equal labels leave together.

    units: the label of each layer's units; ``NONE`` for units that must stay
    columns: the label of each column of a layer, and of each channel of the modules in between,
        such as BatchNorm; ``INPUT`` for the model's inputs
    """

    units: dict[str, Tensor] = field(default_factory=dict)
    columns: dict[str, Tensor] = field(default_factory=dict)


def unit_graph(model: nn.Module, layers: Layers, inputs: Any) -> UnitGraph:
    """Probe a model with example inputs (args, kwargs) of its forward pass."""
    probe, first = partial(_probe, model, layers, inputs), 0
    constants, with_inputs = probe(), probe(fill=1.0)[0]
    numbers: dict[str, Tensor] = {}  # of each layer's units
    owners: dict[str, list[Tensor]] = {}  # the units that arrive at a place, by probe
    fixed: list[Tensor] = []  # units that must stay
    for name, kind in layers.items():
        own = numbers[name] = torch.arange(first, first + kind.n_units)
        first += len(own)
        found, reach_output = _follow(name, probe(name), probe(name, number=True), constants)
        arrived = torch.cat([own[:0], *(found[place] for place in layers if place in found)])
        if reach_output:
            fixed.append(own)
        elif len(own) > int((torch.unique(arrived) >= 0).sum()):  # a probe does not show their use
            raise InputError(
                f"keep and lam cannot follow the units of {name!r}: some reach no other layer."
            )
        for place, unit in found.items():
            owners.setdefault(place, []).append(torch.where(unit >= 0, unit + own[0], NONE))
    ties = [torch.stack(units) for units in owners.values()]
    for name, kind in layers.items():
        if kind.groups > 1:
            tied, stay = _follow_groups(kind, numbers[name], owners.get(name, []))
            ties.append(torch.stack(tied))
            fixed += stay
    label, graph = _tied(first, ties), UnitGraph()
    for place, units in owners.items():
        owner, constant = torch.stack(units).amax(dim=0), constants[0][place]
        from_inputs = (with_inputs[place] - constant).abs() > TINY
        labels = torch.where(owner >= 0, label[owner.clamp_min(0)], NONE)
        shared = from_inputs | (constant != 0)
        fixed.append(labels[shared & (labels >= 0)])  # they are added to inputs or to a constant
        graph.columns[place] = torch.where(from_inputs & (labels < 0), INPUT, labels)
    stays = torch.zeros(len(label), dtype=torch.bool)
    stays[label[torch.cat([*fixed, label[:0]])]] = True
    for name, own in numbers.items():
        graph.units[name] = torch.where(stays[label[own]], NONE, label[own])
    return graph


def _follow(
    name: str, ones: Arrivals, numbers: Arrivals, constants: Arrivals
) -> tuple[dict[str, Tensor], bool]:
    """Find which of a layer's units arrive at each place, and whether they reach an output."""
    found = {}
    for place, constant in constants[0].items():
        size, value = ones[0][place] - constant, numbers[0][place] - constant
        there = size.abs() > TINY
        ratio = torch.where(there, value / torch.where(there, size, 1), 0.0)
        number = ratio.round().long()
        if bool((ratio - number).abs().amax() > 0.05) or bool((number < 0).any()):
            raise InputError(
                f"keep and lam cannot follow the units of {name!r} to {place!r}: something in "
                f"between mixes them."
            )
        found[place] = number - 1  # NONE where there was 0
    outputs = zip(numbers[1], constants[1], strict=True)
    return found, any(not torch.equal(*both) for both in outputs)


def _follow_groups(
    kind: LayerKind, own: Tensor, owners: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """Tie a depthwise convolution's units to its channels; other groups keep their units.

    Returns the units to tie, and those that must stay.
    """
    if not (isinstance(kind, ConvKind) and kind.groups == kind.module.in_channels):
        return [own], [own, *(owner[owner >= 0] for owner in owners)]
    each = len(own) // kind.groups
    tied = [owner.reshape(kind.groups, -1)[:, 0].repeat_interleave(each) for owner in owners]
    of_inputs = torch.stack([*tied, torch.full_like(own, NONE)]).amax(dim=0) < 0
    return [own, *tied], [own[of_inputs]]  # channels of the inputs stay


def _tied(n: int, places: list[Tensor]) -> Tensor:
    """Label n units: those that arrive at the same entry of a place get the smallest number."""
    label = torch.arange(n)
    while True:
        before = label.clone()
        for units in places:  # (probes, entries)
            there = units >= 0
            least = torch.where(there, label[units.clamp_min(0)], n).amin(dim=0).expand_as(units)
            label.scatter_reduce_(0, units[there], least[there], "amin")
        if torch.equal(before, label):
            return label


def _probe(
    model: nn.Module,
    layers: Layers,
    inputs: Any,
    name: str = "",
    *,
    number: bool = False,
    fill: float = 0.0,
) -> Arrivals:
    """Run a model whose layers give 0, but for one: 1 for all of its units, or their numbers.

    Of several calls of a module, the larger values count. ``fill`` is what the inputs hold.
    """
    columns: dict[str, Tensor] = {}

    def take(place: str, values: Tensor) -> None:
        values = values.double().cpu()
        columns[place] = torch.maximum(columns.get(place, values), values)

    def at_layer(
        place: str, kind: LayerKind, _module: nn.Module, args: Any, kwargs: Any, output: Tensor
    ) -> Tensor:
        x = first_input(args, kwargs)
        if x.is_floating_point():
            take(place, kind.columns_of(x))
        if place != name:
            return torch.zeros_like(output)
        return _numbered(output, kind.unit_dim, number)

    def between(place: str, module: nn.Module, args: Any, kwargs: Any, _output: Tensor) -> Tensor:
        x = first_input(args, kwargs)
        dim = getattr(module, "dim", 1)
        take(place, x.movedim(dim, 0).flatten(1).amax(dim=1))
        return torch.cat([x] * len(getattr(module, "thresholds", (0.0,))), dim)  # bits of a unit

    given, named = tree_map_only(
        Tensor, lambda T: torch.full_like(T, fill) if T.is_floating_point() else T, inputs
    )
    with ExitStack() as undo, torch.no_grad():
        for place, kind in layers.items():
            hook = partial(at_layer, place, kind)
            undo.enter_context(kind.module.register_forward_hook(hook, with_kwargs=True))
        for place, module in model.named_modules():
            undo.callback(setattr, module, "training", module.training)
            if isinstance(module, KEEPS_UNITS_APART):
                hook = partial(between, place)
                undo.enter_context(module.register_forward_hook(hook, with_kwargs=True))
        leaves = tree_leaves(model.eval()(*given, **named))
    return columns, [T for T in leaves if isinstance(T, Tensor) and T.is_floating_point()]


def _numbered(output: Tensor, dim: int, number: bool) -> Tensor:
    """Fill each unit's entries with its number, from 1; or all entries with 1."""
    by_unit = output.movedim(dim, -1)
    n = by_unit.shape[-1]
    values = torch.arange(1, n + 1) if number else torch.ones(n)
    return values.to(output).expand_as(by_unit).movedim(-1, dim)
