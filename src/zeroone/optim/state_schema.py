"""The schema of a BCD state: names, shapes and ranges, checked before it is loaded."""

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from zeroone.optim.groups import check_group
from zeroone.optim.layers import LayerKind
from zeroone.optim.preconditioner import LowRank, Preconditioner
from zeroone.utils.checks import InputError, is_number
from zeroone.utils.schema import Maybe, find_fault, is_count, nothing

if TYPE_CHECKING:
    from zeroone.optim.bcd import BCD


def check_state(bcd: "BCD", state: Any) -> None:
    """Refuse a state that cannot be one of this model with the weights it has now."""
    own = state.get("bcd") if isinstance(state, dict) else None
    if not isinstance(own, dict):
        raise InputError("the state is of another optimizer, not of BCD.")
    if bcd.removal is not None and own.get("removal") is None:
        raise InputError("the state is of a training without keep and lam.")
    k, most = own.get("k", 0), bcd.total_steps
    if is_count(k) and most is not None and k > most:
        raise InputError(f"the state has {k} batches, more than total_steps={most}.")
    check_form(state, _form(bcd, own.get("moments")))
    for group in state["param_groups"]:
        check_group(group)


def check_form(state: Any, form: Any) -> None:
    """Refuse a state that does not have a form; see ``find_fault``."""
    fault = find_fault(state, form)
    if fault is not None:
        raise InputError(f"the state does not fit: {fault or 'it'} is missing or of another form.")


def tensor(shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Callable[[Any], bool]:
    """Accept tensors of a shape and, unless it is None, of a dtype."""

    def accepts(value: Any) -> bool:
        alike = isinstance(value, Tensor) and tuple(value.shape) == tuple(shape)
        return alike and dtype in (None, value.dtype)

    return accepts


def _form(bcd: "BCD", observed: Any) -> dict[str, Any]:
    """Return the form of a state; layers with moments were observed, frozen ones were not."""
    layers, known = bcd.layers, observed if isinstance(observed, dict) else {}
    of_layers = {id(k.weight): _layer_form(k, begun=name in known) for name, k in layers.items()}
    parameters = [p for group in bcd.param_groups for p in group["params"]]
    of_parameters = {i: of_layers.get(id(p), _adam_form(p)) for i, p in enumerate(parameters)}
    moments = {name: Maybe(_moments_form(kind)) for name, kind in layers.items()}
    residuals = {name: Maybe(_residuals_form(kind)) for name, kind in layers.items()}
    own: dict[str, Any] = {
        "k": is_count,
        "observed": is_count,
        "window": Maybe(_is_positive),
        "adam_lr": Maybe(_is_positive),
        "hidden": [lambda name: isinstance(name, str) and name in layers],
        "moments": moments | {...: nothing},
        "residuals": residuals | {...: nothing},
        "steps": dict.fromkeys(bcd.observer.steps, _is_step) | {...: nothing},
    }
    if bcd.removal is not None:
        own["removal"] = {
            "units": {n: _are_units(_shape(kind)[0]) for n, kind in layers.items()},
            "widths": {...: is_count},
            "typical": {...: is_number},
        }
    return {
        "state": of_parameters | {...: nothing},
        "param_groups": lambda given: _are_groups(given, bcd.param_groups),
        "bcd": own,
    }


def _are_groups(given: Any, own: list[dict[str, Any]]) -> bool:
    """Accept as many groups of as many parameters, with all their settings."""
    if not isinstance(given, list) or len(given) != len(own):
        return False
    forms = [dict.fromkeys(group, lambda _value: True) for group in own]
    if any(find_fault(*pair) is not None for pair in zip(given, forms, strict=True)):
        return False
    sizes = [len(group["params"]) for group in own]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [group["params"] for group in given] == [
        list(range(start, start + n)) for start, n in zip(starts, sizes, strict=True)
    ]


def _shape(kind: LayerKind) -> tuple[int, int, int]:
    """Return the units, groups and columns of a layer."""
    groups, _, columns = kind.matrix(kind.weight.data).shape
    return kind.n_units, groups, columns


def _layer_form(kind: LayerKind, *, begun: bool) -> Any:
    """Return the form of what the optimizer keeps of a layer's weights."""
    weight, (units, _, columns) = kind.weight, _shape(kind)
    variance, latent = tensor((units,)), tensor(tuple(weight.shape))
    entries = {
        "variance": variance if begun else Maybe(variance),
        "latent": Maybe(latent),
        "latent_bias": Maybe(tensor((units,))),
        "dead": Maybe(tensor((columns,))),
    }

    def accepts(value: Any) -> bool:
        whole = find_fault(value, entries) is None
        return whole and ("latent" in value) == ("latent_bias" in value)

    return accepts if begun else Maybe(accepts)


def _adam_form(p: Tensor) -> Any:
    """Return the form of what Adam keeps of a parameter: both moments, or nothing yet."""
    both = dict.fromkeys(("first", "second"), tensor(tuple(p.shape)))
    return Maybe(lambda value: value == {} or find_fault(value, both) is None)


def _moments_form(kind: LayerKind) -> Any:
    _, groups, columns = _shape(kind)
    return _shaped(kind.preconditioner, kind.weight.dtype, groups, columns)


def _residuals_form(kind: LayerKind) -> Any:
    return _shaped(LowRank, kind.weight.dtype, 1, _shape(kind)[0])


def _shaped(made: type[Preconditioner], dtype: torch.dtype, groups: int, columns: int) -> Any:
    """Accept the tensors of a preconditioner, whose axes of the same letter have the same size."""
    names = {f.name for f in fields(made) if f.init}

    def accepts(value: Any) -> bool:
        if not isinstance(value, dict) or value.keys() != names:
            return False
        if not all(isinstance(T, Tensor) and T.dtype == dtype for T in value.values()):
            return False
        sizes = {"g": groups, "c": columns}
        return all(
            value[name].ndim == len(axes)
            and all(
                sizes.setdefault(a, n) == n for a, n in zip(axes, value[name].shape, strict=True)
            )
            for name, axes in made.AXES.items()
        )

    return accepts


def _is_positive(value: Any) -> bool:
    return is_number(value) and value > 0


def _is_step(value: Any) -> bool:
    """Accept the scale and the window of a Step."""
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and all(isinstance(T, Tensor) and T.is_floating_point() for T in value)
        and value[0].ndim <= 1
        and value[1].ndim == 0
    )


def _are_units(n: int) -> Callable[[Any], bool]:
    """Accept the numbers of n units, in rising order."""

    def accepts(value: Any) -> bool:
        numbers = isinstance(value, Tensor) and value.dtype == torch.long and value.shape == (n,)
        return numbers and bool((value.diff() > 0).all()) and bool((value >= 0).all())

    return accepts
