"""Sort a model's parameters into groups: W blocks, and what Adam trains."""

import logging
from typing import Any

import torch
from torch import Tensor, nn

from zeroone.optim.layers import LayerKind, layer_kind
from zeroone.optim.projection import WEIGHTS
from zeroone.utils.checks import InputError, not_negative, one_of, positive, share

LOG = logging.getLogger("zeroone")
NEVER_CALLED = nn.modules.linear.NonDynamicallyQuantizableLinear  # attention reads its weights
SETTINGS = ("move", "head_step", "damping", "weights", "density")  # of a group
# The default damping by the number of batches. It regularises, so long trainings need more.
SHORT, LONG = (1000, 0.01), (2000, 0.04)


class Group(dict[str, Any]):
    """A group of parameters with its settings; wrong ones are refused, as are learning rates."""

    def __missing__(self, key: str) -> Any:
        _refuse_rate(key)
        raise KeyError(key)

    def __setitem__(self, key: str, value: Any) -> None:
        _refuse_rate(key)
        if key in SETTINGS:
            check_group(self | {key: value})
            value = value if isinstance(value, str) else float(value)
        elif key not in ("params", "param_names", "adam"):
            raise InputError(f"a group has no setting {key!r}, only {', '.join(SETTINGS)}.")
        super().__setitem__(key, value)


def _refuse_rate(key: str) -> None:
    if key in ("lr", "initial_lr"):
        raise InputError(
            "BCD has no learning rate to schedule: its steps fall over total_steps by themselves, "
            "and a group's 'move' and 'head_step' may be changed at any time."
        )


def inner_model(model: nn.Module) -> nn.Module:
    """Unwrap a compiled or a DistributedDataParallel model."""
    while True:
        wrapped = getattr(model, "_orig_mod", None)
        if wrapped is None and isinstance(model, nn.parallel.DistributedDataParallel):
            wrapped = model.module
        if wrapped is None:
            return model
        model = wrapped


def find_layers(model: nn.Module) -> dict[str, LayerKind]:
    """Return the trainable layers with a W block by name, shared ones once."""
    found: dict[str, LayerKind] = {}
    owners: dict[int, str] = {}
    for name, module in model.named_modules():
        kind = None if isinstance(module, NEVER_CALLED) else layer_kind(module)
        # Parametrized weights are computed from other parameters, so they are not trained here.
        if kind is None or "weight" not in module._parameters or not kind.weight.requires_grad:
            continue
        if getattr(module, "sparse", False):
            raise InputError(f"{name}: BCD needs dense gradients, sparse=False.")
        if id(kind.weight) in owners:
            raise InputError(
                f"{owners[id(kind.weight)]} and {name} share their weights: use one module twice."
            )
        found[name], owners[id(kind.weight)] = kind, name
    return found


def check_group(group: dict[str, Any]) -> None:
    """Check a group's settings."""
    if group.get("adam"):
        return
    for name in ("move", "head_step"):
        not_negative(name, group.get(name, 0))
    positive("damping", group.get("damping", 1))
    weights = one_of("weights", group.get("weights", "real"), WEIGHTS)
    density = share("density", group.get("density", 1))
    if density == 0 or (density < 1 and weights != "ternary"):
        raise InputError("density must be above 0, and needs weights='ternary' if it is below 1.")


def sort_parameters(
    model: nn.Module, layers: dict[str, LayerKind], given: list[dict[str, Any]], *, strict: bool
) -> list[dict[str, Any]]:
    """Return groups: those given with their own settings, other W blocks, and the rest."""
    names = {id(p): name for name, p in model.named_parameters()}
    for name, p in model.named_parameters():
        if not p.is_floating_point():
            raise InputError(f"{name} is {p.dtype}: BCD trains real floating point numbers.")
        if p.requires_grad and p.dtype not in (torch.float32, torch.float64):
            raise InputError(f"{name} is {p.dtype}: keep parameters in float32, use autocast.")
    blocks = {
        id(p): p
        for kind in layers.values()
        for p in (kind.weight, kind.bias)
        if p is not None and p.requires_grad
    }
    groups = []
    for group in given:
        for key in group.keys() - {"params", *SETTINGS}:
            raise InputError(f"a group has no setting {key!r}, only {', '.join(SETTINGS)}.")
        if "params" not in group:
            raise InputError("a group needs its params.")
        params = group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        for p in params:
            if blocks.pop(id(p), None) is None:
                name = names.get(id(p), "a parameter")
                raise InputError(f"{name} is not a trainable W block, or is in two groups.")
        groups.append({**group, "params": params})
    _check_biases(layers, groups)
    if blocks:
        groups.append({"params": list(blocks.values())})
    known = {id(p) for group in groups for p in group["params"]}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in known]
    if rest and strict:
        listed = ", ".join(names[id(p)] for p in rest)
        raise InputError(f"strict: {listed} have no W block.")
    if rest:
        listed = ", ".join(names[id(p)] for p in rest)
        LOG.warning(
            "Adam trains parameters without a W block: %s (strict=True refuses them).", listed
        )
        groups.append({"params": rest, "adam": True})
    if not groups:
        raise InputError("the model has no trainable parameters.")
    return groups


def _check_biases(layers: dict[str, LayerKind], groups: list[dict[str, Any]]) -> None:
    """Refuse a bias in a group without its weight, whose settings it has."""
    for group in groups:
        here = {id(p) for p in group["params"]}
        for name, kind in layers.items():
            if id(kind.bias) in here and id(kind.weight) not in here:
                raise InputError(f"the bias of {name} belongs in the group of its weight.")


def default_damping(total_steps: int | None) -> float:
    """Return the damping for a training of so many batches; None means without an end."""
    (short, least), (long, most) = SHORT, LONG
    if total_steps is None:
        return most
    share = min(max((total_steps - short) / (long - short), 0.0), 1.0)
    return least + share * (most - least)
