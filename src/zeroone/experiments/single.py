"""``zeroone train``: one run, with or without an initial process, and what is printed of it."""

from pathlib import Path
from typing import Any

from zeroone.bodies import BITS, BODIES, default_body
from zeroone.checks import InputError, not_negative, one_of
from zeroone.data.arrays import Split
from zeroone.data.files import load_data
from zeroone.experiments.console import print_results, progress, stages
from zeroone.initial import InitialSettings, train_on_body
from zeroone.training import TrainSettings, train
from zeroone.training.run import Run

INITIAL = {"body": "body", "initial_epochs": "epochs", "initial_batch": "batch"}


def train_one(
    data: str,
    out: Path,
    options: dict[str, Any],
    *,
    preset: str | None = None,
    data_dir: Path | None = None,
    label: str | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> None:
    """Train into the folder ``out`` and print a table, a line a stage."""
    initial = {ours: options[name] for name, ours in INITIAL.items() if name in options}
    rest = {name: value for name, value in options.items() if name not in INITIAL}
    _check_initial(initial)
    TrainSettings.from_options(preset, **rest)  # refused before the data are read
    split = load_data(data, data_dir=data_dir, label=label)
    if initial.get("epochs"):
        run = _on_body(split, initial, rest, preset, out, resume, quiet)
    else:
        if initial:
            rest["hidden"] = _bits(initial, split, preset, rest)
        settings = TrainSettings.from_options(preset, **rest)
        with progress("training", quiet=quiet) as callbacks:
            run = train(
                split.X,
                split.y,
                settings,
                test=split.test,
                name=split.name,
                image=split.shape,
                callbacks=callbacks,
                out=out,
                resume=resume,
            )
    if run.status == "diverged":
        raise InputError(
            f"training diverged: {run.reason}; take smaller steps. The record is in {out}."
        )
    lines = {str(out): run.record}
    if "initial" in run.record:
        lines = {"initial process": run.record["initial"], **lines}
    print_results(f"{split.name}: {run.status}, {run.reason}", lines)


def _check_initial(initial: dict[str, Any]) -> None:
    if initial and "epochs" not in initial:
        raise InputError("a body needs --initial-epochs, how long it is trained first (or 0).")
    if not_negative("initial_epochs", initial.get("epochs", 0)) == 0 and "batch" in initial:
        raise InputError("initial_batch needs initial_epochs above 0.")
    if "body" in initial:
        one_of("body", initial["body"], BODIES)


def _bits(
    initial: dict[str, Any], split: Split, preset: str | None, options: dict[str, Any]
) -> tuple[int | str, ...]:
    """The layers of the body with 0/1 activations, and then the others: trained alike."""
    body = one_of("0/1 body", initial.get("body", default_body(split.shape)), BITS)
    return (*BITS[body], *TrainSettings.from_options(preset, **options).hidden)


def _on_body(
    split: Split,
    initial: dict[str, Any],
    options: dict[str, Any],
    preset: str | None,
    out: Path,
    resume: bool,
    quiet: bool,
) -> Run:
    stage = {"body": default_body(split.shape), "augment": options.pop("augment", None)} | initial
    with stages("initial process", "features", "training", quiet=quiet) as callbacks:
        return train_on_body(
            split.X,
            split.y,
            InitialSettings(**stage),
            TrainSettings.from_options(preset, **options),
            out=out,
            test=split.test,
            name=split.name,
            image=split.shape,
            callbacks=callbacks,
            resume=resume,
        )
