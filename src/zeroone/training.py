"""The one training loop: arrays in; a network, a reason for stopping and a record out."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from zeroone.checks import InputError, count, not_negative, one_of, positive
from zeroone.data.arrays import encode_known_labels, encode_labels, stratified_cut
from zeroone.heads import make_head
from zeroone.inputs import check_inputs
from zeroone.metrics import active_inputs, active_units, error_rate, parameters
from zeroone.network import Network
from zeroone.records import new_record, write_record
from zeroone.scaling import Scaling
from zeroone.solvers.exact import PAPER, ExactBCD, ExactSettings, Sweep

SOLVERS = ("exact",)
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class TrainSettings:
    """What is trained and how; ``exact`` holds the solver's own settings.

    hidden: the widths of the hidden layers
    head, margin: 'hardmax' (with the lead a class must have to count as right) or 'softmax'
    bias: whether each layer gets a constant-1 input
    init_std: the spread of the Gaussian start
    validation: the share of the training samples that is held out, class by class, by the seed
    """

    hidden: tuple[int, ...] = (300, 300)
    solver: str = "exact"
    head: str = "hardmax"
    margin: float = 1.0
    bias: bool = True
    init_std: float = 1e-3
    validation: float = 0.0
    dtype: str = "float32"
    seed: int = 0
    exact: ExactSettings = field(default_factory=ExactSettings)

    def __post_init__(self) -> None:
        one_of("solver", self.solver, SOLVERS)
        one_of("head", self.head, ["hardmax", "softmax"])
        one_of("dtype", self.dtype, DTYPES)
        object.__setattr__(self, "hidden", _checked_widths(self.hidden))
        count("seed", self.seed, least=0, most=2**63 - 1)
        not_negative("margin", self.margin)
        positive("init_std", self.init_std)
        if not_negative("validation", self.validation) >= 1:
            raise InputError(f"validation must be below 1, got {self.validation!r}.")
        if self.head == "softmax" and self.exact.printed:
            raise InputError("the printed U_h formula is Lemma 1, which needs head='hardmax'.")

    @classmethod
    def from_options(cls, preset: str | None = None, **options: Any) -> "TrainSettings":
        """Settings from one flat set of options, on top of a preset if one is named."""
        base = cls()
        if preset is not None:
            base = PRESETS[one_of("preset", preset, PRESETS)]
        own = {f.name for f in fields(cls)} - {"exact"}
        solver = {f.name for f in fields(ExactSettings)}
        for name in options:
            one_of("option", name, sorted(own | solver))
        exact = replace(base.exact, **{k: v for k, v in options.items() if k in solver})
        return replace(base, exact=exact, **{k: v for k, v in options.items() if k in own})


def _checked_widths(hidden: Any) -> tuple[int, ...]:
    if not isinstance(hidden, Sequence) or isinstance(hidden, str):
        raise InputError(f"hidden must be a sequence of widths, got {hidden!r}.")
    return tuple(count("every hidden width", width, most=10**6) for width in hidden)


# Printed: small Gaussian weights, no biases, no margin. Their spread is not printed.
PRESETS = {
    "paper": TrainSettings(hidden=(2000, 2000), margin=0.0, bias=False, init_std=0.01, exact=PAPER)
}


class Status(StrEnum):
    """Why training stopped."""

    CONVERGED = "converged"
    MAX_ITER = "max_iter"
    DIVERGED = "diverged"


@dataclass
class Run:
    """A finished training run."""

    network: Network
    status: Status
    reason: str
    n_iter: int
    objective: float
    residuals: dict[str, float]
    record: dict[str, Any]

    def save(self, folder: str | Path) -> Path:
        """Write ``record.json`` and ``model.safetensors`` into the folder, which is made.

        A run that diverged has a record but no model that could be used.
        """
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {folder}: {error.strerror}.") from None
        write_record(folder / "record.json", self.record)
        if self.status is not Status.DIVERGED:
            self.network.save(folder / "model.safetensors")
        return folder


@dataclass(frozen=True)
class Part:
    """Checked raw inputs and class numbers."""

    X: Tensor
    y: Tensor


def train(
    X: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    settings: TrainSettings | None = None,
    *,
    test: tuple[ArrayLike | Tensor, ArrayLike | Tensor] | None = None,
    name: str | None = None,
    on_iteration: Callable[[dict[str, Any]], None] | None = None,
) -> Run:
    """Train a network on raw inputs X and labels y.

    ``name`` is what the record calls the data, beside their digests.
    ``test`` is scored after every iteration and never used for anything else.
    ``on_iteration`` is given each iteration's entry of the history.
    """
    settings = settings or TrainSettings()
    dtype = DTYPES[settings.dtype]
    inputs = check_inputs(X, dtype)
    codes, classes = encode_labels(y, len(inputs))
    parts = _cut_validation(Part(inputs, codes), settings)
    scaling = Scaling.fit(parts["train"].X, dtype)
    network = Network.dense(
        [inputs.shape[1], *settings.hidden, len(classes)],
        make_head(settings.head, settings.margin),
        std=settings.init_std,
        bias=settings.bias,
        seed=settings.seed,
        dtype=dtype,
        scaling=scaling,
        classes=classes,
    )
    if test is not None:
        parts["test"] = prepare(network, *test)
    return _run_exact(network, parts, settings, name, on_iteration)


def prepare(network: Network, X: ArrayLike | Tensor, y: ArrayLike | Tensor) -> Part:
    """Raw inputs and labels as a trained network scores them; an unknown label is never right."""
    inputs = network.inputs(X)
    return Part(inputs, encode_known_labels(y, network.classes, len(inputs)))


def _digest(part: Part) -> str:
    """A fingerprint of the samples and class numbers, in their order."""
    digest = hashlib.sha256()
    for rows in torch.split(part.X, 4096):
        digest.update(rows.numpy().tobytes())
    digest.update(part.y.numpy().tobytes())
    return digest.hexdigest()


def _cut_validation(part: Part, settings: TrainSettings) -> dict[str, Part]:
    if not settings.validation:
        return {"train": part}
    rest, cut = stratified_cut(part.y.numpy(), settings.validation, settings.seed)
    return {
        "train": Part(part.X[rest], part.y[rest]),
        "validation": Part(part.X[cut], part.y[cut]),
    }


def _run_exact(
    network: Network,
    parts: dict[str, Part],
    settings: TrainSettings,
    name: str | None,
    on_iteration: Callable[[dict[str, Any]], None] | None,
) -> Run:
    exact, part = settings.exact, parts["train"]
    solver = ExactBCD(network, network.scaling.apply(part.X), part.y, exact)
    history = [_entry(0, network, parts, solver.terms.weighted(exact.weights), None)]
    status, residuals = Status.MAX_ITER, {}
    reason = f"the limit of max_iter={exact.max_iter} was reached"
    for k in range(1, exact.max_iter + 1):
        sweep = solver.sweep()
        history.append(_entry(k, network, parts, solver.terms.weighted(exact.weights), sweep))
        if on_iteration:
            on_iteration(history[-1])
        if not sweep.finite:
            status, reason = Status.DIVERGED, f"F was no longer finite after sweep {k}"
            break
        if k % exact.check_every == 0 or k == exact.max_iter:
            residuals = solver.residuals()
            history[-1]["residuals"] = residuals
            if exact.tol and max(residuals.values()) <= exact.tol:
                status = Status.CONVERGED
                reason = f"every stationarity residual is at most {exact.tol:g}"
                break
    record = new_record("train", asdict(settings), settings.seed)
    record |= {
        "data": {
            "name": name,
            "features": network.n_features,
            "classes": network.classes,
            "samples": {part: len(p.y) for part, p in parts.items()},
            "sha256": {part: _digest(p) for part, p in parts.items()},
        },
        "network": [op.describe() for op in network.operators],
        "status": str(status),
        "reason": reason,
        "n_iter": len(history) - 1,
        "objective": history[-1]["F"],
        "residuals": residuals,
        "result": {
            **{f"{part}_error": history[-1][f"{part}_error"] for part in parts},
            "active_units": active_units(network),
            "active_inputs": active_inputs(network),
            "parameters": parameters(network),
            "seconds": sum(entry["seconds"] for entry in history),
        },
        "history": history,
    }
    return Run(network, status, reason, len(history) - 1, history[-1]["F"], residuals, record)


def _entry(
    iteration: int,
    network: Network,
    parts: dict[str, Part],
    terms: dict[str, float],
    sweep: Sweep | None,
) -> dict[str, Any]:
    """One line of the history: F by term, errors of the consistent forward pass, what moved."""
    entry: dict[str, Any] = {"iteration": iteration, "F": sum(terms.values()), **terms}
    for name, part in parts.items():
        entry[f"{name}_error"] = error_rate(network, part.X, part.y)
    entry["active_units"] = active_units(network)
    entry["seconds"] = sweep.seconds if sweep else 0.0
    if sweep:
        entry |= {"flipped": sweep.flipped, "moved": sweep.moved, "blocks": sweep.blocks}
    return entry
