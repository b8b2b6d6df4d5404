"""The methods that a run matrix compares: 0/1 networks by BCD, and the paper's baselines."""

from dataclasses import dataclass, field
from typing import Any

from zeroone.utils.checks import InputError, one_of


@dataclass(frozen=True)
class Method:
    """A row of a comparison: a 0/1 network trained by BCD, or a baseline trained by Adam.

    Attributes:
        label: Its name in tables.
        baseline: Whether Adam trains it.
        options: Options of training, for a baseline also those of ``BaselineSettings``.

    """

    label: str
    baseline: bool
    options: dict[str, Any] = field(default_factory=dict)


def _baseline(label: str, activation: str, **options: Any) -> Method:
    return Method(label, baseline=True, options={"activation": activation, **options})


def _bcd(label: str, **options: Any) -> Method:
    return Method(label, baseline=False, options=options)


PRETRAINING = "initial"  # the method, in records, of a run that trains the backbone of other runs
METHODS = {
    "relu": _baseline("ReLU", "relu"),
    "sigmoid": _baseline("Sigmoid", "sigmoid"),
    "swish": _baseline("Swish", "swish"),
    "selu": _baseline("SELU", "selu"),
    "tanh": _baseline("Tanh", "tanh"),
    "ste": _baseline("STE, 0/1", "ste"),
    "ste-sign": _baseline("STE, sign", "ste-sign"),
    "ste-bn": _baseline("STE, 0/1, BatchNorm", "ste", batch_norm=True),
    "bi-real": _baseline("Bi-Real-Net", "bi-real"),
    "relu-bn": _baseline("ReLU, BatchNorm", "relu", batch_norm=True),
    "bi-real-bn": _baseline("Bi-Real, BatchNorm", "bi-real", batch_norm=True),
    "ccnn": _baseline("CCNN", "ccnn"),
    "pcnn": _baseline("PCNN (public form)", "pcnn"),
    "bcd": _bcd("0/1 BCD"),
    "bcd-hardmax": _bcd("0/1 BCD, hardmax", head="hardmax"),
    "bcd-half": _bcd("0/1 BCD, half of the units", keep=0.5),
}


def variant(name: str, options: Any) -> Method:
    """Derive a method from the one that ``options["method"]`` names; other options override it."""
    if name in (*METHODS, PRETRAINING):
        raise InputError(f"{name!r} is a method already: give the variant another name.")
    if not isinstance(options, dict) or "method" not in options:
        raise InputError(f"the variant {name!r} must say which method it is like: method = ...")
    base = METHODS[one_of("method", options["method"], METHODS)]
    own = {key: value for key, value in options.items() if key not in ("method", "label")}
    return Method(str(options.get("label", name)), base.baseline, base.options | own)
