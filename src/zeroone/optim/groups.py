"""Sort a model's parameters into groups: W blocks, and what Adam trains."""

import logging
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from zeroone.optim.layers import LayerKind, layer_kind
from zeroone.optim.projection import WEIGHTS
from zeroone.utils.checks import InputError, not_negative, one_of, positive, share

LOG = logging.getLogger("zeroone")
NEVER_CALLED = nn.modules.linear.NonDynamicallyQuantizableLinear  # attention reads its weights
RATES = ("lr", "initial_lr")  # which schedulers look for
SETTINGS = ("move", "momentum", "head_step", "damping", "weights", "density")  # of a group
NUMBERS = {"move": not_negative, "head_step": not_negative, "damping": positive}
# The default damping by the number of batches. It regularises, so long trainings need more.
SHORT, LONG = (1000, 0.01), (2000, 0.04)


class Group(dict[str, Any]):
    """A group of parameters with its settings, which are checked; it has no learning rate."""

    def __init__(self, group: dict[str, Any]) -> None:
        super().__init__(checked(group))

    def __missing__(self, key: str) -> Any:
        if key in RATES:
            raise InputError(
                "BCD has no learning rate to schedule: its steps fall over total_steps by "
                "themselves, and a group's move and head_step may be changed at any time."
            )
        raise KeyError(key)

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def update(self, *others: Any, **settings: Any) -> None:
        """Change some settings, after checking them."""
        changed = dict(*others, **settings)
        for key in RATES:
            if key in changed:
                self.__missing__(key)
        super().update(checked({**self, **changed}))

    def __ior__(self, others: Any) -> "Group":  # type: ignore[override,misc]
        self.update(others)
        return self


def checked(group: dict[str, Any]) -> dict[str, Any]:
    """Check a group's settings."""
    for key in group.keys() - {"params", "param_names", "adam", *SETTINGS}:
        raise InputError(f"a group has no setting {key!r}, only {', '.join(SETTINGS)}.")
    check_weights(group["weights"], group["density"])
    numbers = {name: check(name, group[name]) for name, check in NUMBERS.items()}
    return {**group, **numbers, "momentum": check_momentum(group["momentum"])}


def check_momentum(momentum: float) -> float:
    """Check the weight of the past in an average of gradients."""
    if share("momentum", momentum) == 1:
        raise InputError(f"momentum must be below 1, got {momentum!r}.")
    return float(momentum)


def check_weights(weights: str, density: float) -> None:
    """Check which values the weights may have, and how many of them differ from 0."""
    one_of("weights", weights, WEIGHTS)
    if share("density", density) == 0 or (density < 1 and weights != "ternary"):
        raise InputError("density must be above 0, and needs weights='ternary' if it is below 1.")


def inner_model(model: nn.Module) -> nn.Module:
    """Unwrap a compiled or a DistributedDataParallel model."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return inner_model(model.module)
    compiled = getattr(model, "_orig_mod", None)
    return model if compiled is None else inner_model(compiled)


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


def sort_parameters(
    model: nn.Module, layers: dict[str, LayerKind], given: list[dict[str, Any]], *, strict: bool
) -> list[dict[str, Any]]:
    """Return groups: those given with their own settings, other W blocks, and the rest."""
    for name, p in model.named_parameters():
        if not p.is_floating_point():
            raise InputError(f"{name} is {p.dtype}: BCD trains real floating point numbers.")
        if p.requires_grad and p.dtype not in (torch.float32, torch.float64):
            raise InputError(
                f"{name} is {p.dtype}: BCD trains float32 and float64; for bfloat16, use autocast."
            )
    trained = {p: name for name, p in model.named_parameters() if p.requires_grad}
    both = [p for kind in layers.values() for p in (kind.weight, kind.bias)]
    blocks = {p: trained[p] for p in both if p is not None and p in trained}
    rest = [p for p in trained if p not in blocks]
    groups = []
    for group in given:
        if not isinstance(group, dict) or not _are_params(group.get("params")):
            raise InputError(
                "each of the groups is a dict of params and their settings; params are tensors, "
                "such as layer.parameters()."
            )
        if "adam" in group:
            raise InputError("Adam trains the parameters without a W block, and no others.")
        one = isinstance(group["params"], Tensor)
        params = [group["params"]] if one else list(group["params"])
        for p in params:
            if blocks.pop(p, None) is None:
                name = trained.get(p, "a parameter")
                raise InputError(f"{name} is not a trainable W block, or is in two groups.")
        groups.append({**group, "params": params})
    if blocks:
        groups.append({"params": list(blocks)})
    if rest:
        listed = ", ".join(trained[p] for p in rest)
        if strict:
            raise InputError(f"strict: {listed} have no W block.")
        LOG.warning(
            "Adam trains parameters without a W block: %s (strict=True refuses them).", listed
        )
        groups.append({"params": rest, "adam": True})
    if not groups:
        raise InputError("the model has no trainable parameters.")
    return groups


def _are_params(given: Any) -> bool:
    """Tell a tensor or several of them from modules, some of which can be iterated as well."""
    modules = isinstance(given, nn.Module) and not isinstance(given, nn.ParameterList)
    return isinstance(given, Iterable) and not modules and not isinstance(given, str)


def default_damping(total_steps: int | None) -> float:
    """Return the damping for a training of so many batches; None means without an end."""
    (short, least), (long, most) = SHORT, LONG
    if total_steps is None:
        return most
    share = min(max((total_steps - short) / (long - short), 0.0), 1.0)
    return least + share * (most - least)
