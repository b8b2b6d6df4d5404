"""The methods that a run matrix compares: 0/1 networks by BCD, and the paper's nine rivals."""

from dataclasses import dataclass, field
from typing import Any

from zeroone.utils.checks import InputError, one_of


@dataclass(frozen=True)
class Method:
    """A row of a comparison: a 0/1 network trained by BCD, or a network trained by Adam.

    ``options``: of training, and of ``BaselineSettings`` if it is a rival.
    """

    label: str
    rival: bool
    options: dict[str, Any] = field(default_factory=dict)


def _rival(label: str, activation: str, **options: Any) -> Method:
    return Method(label, rival=True, options={"activation": activation, **options})


def _bcd(label: str, **options: Any) -> Method:
    return Method(label, rival=False, options=options)


INITIAL = "initial"  # the method of a cell that trains the body of others
METHODS = {
    "relu": _rival("ReLU", "relu"),
    "sigmoid": _rival("Sigmoid", "sigmoid"),
    "swish": _rival("Swish", "swish"),
    "selu": _rival("SELU", "selu"),
    "tanh": _rival("Tanh", "tanh"),
    "ste": _rival("STE, 0/1", "ste"),
    "ste-sign": _rival("STE, sign", "ste-sign"),
    "ste-bn": _rival("STE, 0/1, BatchNorm", "ste", batch_norm=True),
    "bi-real": _rival("Bi-Real-Net", "bi-real"),
    "ccnn": _rival("CCNN", "ccnn"),
    "pcnn": _rival("PCNN (public form)", "pcnn"),
    "bcd": _bcd("0/1 BCD"),
    "bcd-hardmax": _bcd("0/1 BCD, hardmax", head="hardmax"),
    "bcd-half": _bcd("0/1 BCD, half of the units", keep=0.5),
}


def variant(name: str, options: Any) -> Method:
    """A method of a spec's own: ``method`` names the one it is like, other options are its own."""
    if name in (*METHODS, INITIAL):
        raise InputError(f"{name!r} is a method already: give the variant another name.")
    if not isinstance(options, dict) or "method" not in options:
        raise InputError(f"the variant {name!r} must say which method it is like: method = ...")
    base = METHODS[one_of("method", options["method"], METHODS)]
    own = {key: value for key, value in options.items() if key not in ("method", "label")}
    return Method(str(options.get("label", name)), base.rival, base.options | own)
