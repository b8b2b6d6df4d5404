"""``zeroone train``: one run, with or without an initial process, and what is printed of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zeroone.bodies import BITS, BODIES, default_body
from zeroone.checks import InputError, count, one_of
from zeroone.data.files import load_data
from zeroone.experiments.console import print_results, stages
from zeroone.initial import InitialSettings, train_on_body
from zeroone.training import Callback, TrainSettings, train

# The options of an initial process, and what its settings call them.
STAGE = {
    "body": "body",
    "initial_epochs": "epochs",
    "initial_batch": "batch",
    "initial_rate": "learning_rate",
}


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
    loggers: Sequence[Callback] = (),
) -> None:
    """Train into the folder ``out`` and print a table, a line a stage.

    ``loggers`` hear of the 0/1 network's training, not of the initial process.
    """
    for logger in loggers:
        logger.check()
    stage = {ours: options[name] for name, ours in STAGE.items() if name in options}
    rest = {name: value for name, value in options.items() if name not in STAGE}
    on_body = _has_initial_process(stage)
    if on_body:
        stage |= {"augment": rest.pop("augment", None)}
        InitialSettings(**{"body": "small"} | stage)  # refused before the data are read
    settings = TrainSettings.from_options(preset, **rest)
    split = load_data(data, data_dir=data_dir, label=label)
    if on_body:
        initial = InitialSettings(**{"body": default_body(split.shape)} | stage)
        stage_names = ("initial process", "features", "training")
        with stages(*stage_names, quiet=quiet) as (first, second, last):
            run = train_on_body(
                split.X,
                split.y,
                initial,
                settings,
                out=out,
                test=split.test,
                name=data,  # as it was typed, so that a report finds them
                image=split.shape,
                callbacks=(first, second, [*last, *loggers]),
                resume=resume,
            )
    else:
        if stage:
            body = one_of("0/1 body", stage.get("body", default_body(split.shape)), BITS)
            settings = TrainSettings.from_options(
                preset, **rest | {"hidden": (*BITS[body], *settings.hidden)}
            )
        with stages("training", quiet=quiet) as (callbacks,):
            run = train(
                split.X,
                split.y,
                settings,
                test=split.test,
                name=data,
                image=split.shape,
                callbacks=[*callbacks, *loggers],
                out=out,
                resume=resume,
                feature_names=split.feature_names,
            )
    if run.status == "diverged":
        raise InputError(
            f"training diverged: {run.reason}; take smaller steps. The record is in {out}."
        )
    lines = {str(out): run.record}
    if "initial" in run.record:
        lines = {"initial process": run.record["initial"], **lines}
    print_results(f"{split.name}: {run.status}, {run.reason}", lines)


def _has_initial_process(stage: dict[str, Any]) -> bool:
    """Whether Adam trains a body first; with no epochs the body's layers are BCD's, too."""
    if stage and "epochs" not in stage:
        raise InputError("a body needs --initial-epochs, how long it is trained first (or 0).")
    epochs = count("--initial-epochs", stage.get("epochs", 0), least=0)
    if not epochs and ("batch" in stage or "learning_rate" in stage):
        raise InputError("--initial-batch and --initial-rate need --initial-epochs above 0.")
    if "body" in stage:
        one_of("body", stage["body"], BODIES)
    return epochs > 0
