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
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from zeroone.nn.step import Step
from zeroone.optim.layers import ConvKind, LayerKind
from zeroone.optim.observer import first_input
from zeroone.utils.checks import InputError

KEEPS_UNITS_APART = (
    Step,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.PReLU,
    nn.Identity,
)
INPUT, NONE = -2, -1


@dataclass
class UnitGraph:
    """Labels of units: equal labels leave together.

    units: the label of each layer's units; ``NONE`` for units that must stay
    columns: the label of each layer's columns; ``INPUT`` for columns of the model's inputs
    channels: the label of each channel of the modules in between, such as BatchNorm
    """

    units: dict[str, Tensor] = field(default_factory=dict)
    columns: dict[str, Tensor] = field(default_factory=dict)
    channels: dict[str, Tensor] = field(default_factory=dict)

    @property
    def n_labels(self) -> int:
        """One more than the largest label."""
        labels = (*self.units.values(), *self.columns.values())  # columns list units that stay
        return 1 + max((int(label.max()) for label in labels if len(label)), default=NONE)


@dataclass
class _Arrivals:
    """What a probe delivered to columns of layers, to modules in between and to the output."""

    columns: dict[str, Tensor] = field(default_factory=dict)
    channels: dict[str, Tensor] = field(default_factory=dict)
    output: bool = False  # whether units reach it
    outputs: list[Tensor] = field(default_factory=list)


Owners = dict[tuple[str, str], list[Tensor]]  # the units that arrive at a place, by probe


def unit_graph(model: nn.Module, layers: dict[str, LayerKind], inputs: Any) -> UnitGraph:
    """Probe a model with example inputs (args, kwargs) of its forward pass."""
    prober, first = _Prober(model, layers, inputs), 0
    graph, owners = UnitGraph(), Owners()
    fixed: list[Tensor] = []  # units that must stay
    for name, kind in layers.items():
        own = torch.arange(first, first + kind.n_units)
        graph.units[name], first = own, first + len(own)
        arrivals = prober.run(name)
        if arrivals.output:
            fixed.append(own)
        else:
            _check_arrivals(name, len(own), arrivals)
        for what in ("columns", "channels"):
            for place, numbers in getattr(arrivals, what).items():
                owner = torch.where(numbers >= 0, numbers + own[0], NONE)
                owners.setdefault((what, place), []).append(owner)
    for name, kind in layers.items():
        if kind.groups > 1:
            fixed += _follow_groups(name, kind, graph, owners)
    label = torch.arange(first)
    _tie(label, list(owners.values()))
    for (what, place), found in owners.items():
        merged = torch.stack(found).amax(dim=0)
        if what != "units":
            labels = torch.where(merged >= 0, label[merged.clamp_min(0)], NONE)
            getattr(graph, what)[place] = labels
    fixed += _mark_inputs(prober.run(None), graph)
    for what in ("columns", "channels"):  # units that are added to a constant stay
        for place, constant in getattr(prober.blank, what).items():
            labels = getattr(graph, what).get(place, torch.empty(0))
            fixed.append(labels[(constant != 0) & (labels >= 0)])
    _fix(graph, label, torch.cat([*fixed, torch.empty(0, dtype=torch.long)]))
    return graph


def _check_arrivals(name: str, n_units: int, arrivals: "_Arrivals") -> None:
    """Refuse units that arrive nowhere: a probe does not show how they are used."""
    arrived = torch.cat([*arrivals.columns.values(), torch.empty(0, dtype=torch.long)])
    if not bool(torch.isin(torch.arange(n_units), arrived).all()):
        raise InputError(
            f"keep and lam cannot follow the units of {name!r}: some reach no other layer."
        )


def _follow_groups(name: str, kind: LayerKind, graph: UnitGraph, owners: Owners) -> list[Tensor]:
    """Tie a depthwise convolution's units to its channels; other groups keep their units."""
    found = owners.get(("columns", name), [])
    if not (isinstance(kind, ConvKind) and kind.groups == kind.module.in_channels):
        return [graph.units[name], *(owner[owner >= 0] for owner in found)]
    own = graph.units[name]
    from_units = torch.zeros(len(own), dtype=torch.bool)
    for owner in found:
        of_channel = owner.reshape(kind.groups, -1)[:, 0]
        of_unit = of_channel.repeat_interleave(len(own) // kind.groups)
        owners.setdefault(("units", name), [own]).append(of_unit)
        from_units |= of_unit >= 0
    return [own[~from_units]]  # channels of the inputs stay


def _mark_inputs(arrivals: "_Arrivals", graph: UnitGraph) -> list[Tensor]:
    """Mark columns of inputs; return the labels that are added to inputs and must stay."""
    stay = []
    for place, numbers in arrivals.columns.items():
        from_input = numbers >= 0
        labels = graph.columns.get(place, torch.full_like(numbers, NONE))
        stay.append(labels[from_input & (labels >= 0)])
        graph.columns[place] = torch.where(from_input & (labels < 0), INPUT, labels)
    return stay


def _fix(graph: UnitGraph, label: Tensor, fixed: Tensor) -> None:
    """Label every unit, with ``NONE`` if it is tied to one that must stay."""
    stays = torch.zeros(len(label), dtype=torch.bool)
    stays[label[fixed]] = True
    for name, numbers in graph.units.items():
        graph.units[name] = torch.where(stays[label[numbers]], NONE, label[numbers])


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

    def run(self, name: str | None) -> _Arrivals:
        """Find where a layer's units arrive; None stands for the model's inputs."""
        ones, numbers = self._forward(name, number=False), self._forward(name, number=True)
        arrivals = _Arrivals(output=_differ(numbers.outputs, self.blank.outputs))
        for what in ("columns", "channels"):
            for place, without in getattr(self.blank, what).items():
                size = getattr(ones, what)[place] - without
                value, there = getattr(numbers, what)[place] - without, size.abs() > 1e-9
                if name is None:
                    getattr(arrivals, what)[place] = torch.where(there, 0, NONE)
                    continue
                found = torch.where(there, value / torch.where(there, size, 1), 0.0)
                number = found.round().long()
                if bool((found - number).abs().amax() > 0.05) or bool((number < 0).any()):
                    raise InputError(
                        f"keep and lam cannot follow the units of {name!r} to {place!r}: something "
                        f"in between mixes them."
                    )
                getattr(arrivals, what)[place] = number - 1
        return arrivals

    @cached_property
    def blank(self) -> _Arrivals:
        """What arrives if all layers and inputs are 0: constants."""
        return self._forward("", number=False)

    def _forward(self, name: str | None, *, number: bool) -> _Arrivals:
        """Probe with each unit's number, or with 1 for all units; "" stands for no layer."""
        arrivals = _Arrivals()

        def at_layer(own: str, kind: LayerKind) -> Callable[..., Tensor]:
            def hook(_module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor:
                x = first_input(args, kwargs)
                values = kind.columns_of(x) if x.is_floating_point() else None
                if values is not None:
                    _keep_larger(arrivals.columns, own, values)
                if own == name:
                    return _numbered(output, kind.unit_dim, number)
                return torch.zeros_like(output)

            return hook

        def between(own: str) -> Callable[..., Tensor]:
            def hook(module: nn.Module, args: Any, kwargs: Any, _output: Tensor) -> Any:
                x, dim = first_input(args, kwargs), getattr(module, "dim", 1)
                values = x.movedim(dim, 0).flatten(1)
                _keep_larger(arrivals.channels, own, values.amax(dim=1))
                return x

            return hook

        hooks = [
            kind.module.register_forward_hook(at_layer(own, kind), with_kwargs=True)
            for own, kind in self.layers.items()
        ]
        for own, module in self.model.named_modules():
            if isinstance(module, KEEPS_UNITS_APART):
                hooks.append(module.register_forward_hook(between(own), with_kwargs=True))
        args, kwargs = self.inputs
        with torch.no_grad(), evaluating(self.model), _removing(hooks):
            fill = torch.ones_like if name is None else torch.zeros_like
            given, named = tree_map(lambda v: fill(v) if _is_float(v) else v, (args, kwargs))
            output = self.model(*given, **named)
        arrivals.outputs = [leaf for leaf in tree_leaves(output) if _is_float(leaf)]
        return arrivals


def _differ(some: list[Tensor], others: list[Tensor]) -> bool:
    return any(not torch.equal(a, b) for a, b in zip(some, others, strict=True))


def _numbered(output: Tensor, dim: int, number: bool) -> Tensor:
    """Fill each unit's entries with its number, from 1; or all entries with 1."""
    shape = [1] * output.ndim
    shape[dim] = -1
    n = output.shape[dim]
    values = torch.arange(1, n + 1) if number else torch.ones(n)
    return values.to(output).view(shape).expand_as(output)


def _keep_larger(places: dict[str, Tensor], name: str, values: Tensor) -> None:
    """Merge the arrivals of a layer that is called several times."""
    values = values.double().cpu()
    places[name] = values if name not in places else torch.maximum(places[name], values)


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


@contextmanager
def _removing(hooks: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
