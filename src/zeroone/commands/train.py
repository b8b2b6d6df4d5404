"""``zeroone train``: train one network, on the data or on a pretrained backbone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from zeroone.commands.checks import check_output, set_threads
from zeroone.commands.console import print_results, stages
from zeroone.data.load import load_data
from zeroone.data.splits import Split
from zeroone.deploy import quantise
from zeroone.deploy.exporters.c import size_of
from zeroone.nn.backbones import BITS, default_backbone
from zeroone.nn.heads import HEADS
from zeroone.pretraining import FOLDER as PRETRAINED
from zeroone.pretraining import PretrainingSettings, train_on_backbone
from zeroone.training import Callback, CSVLogger, Run, TensorBoardLogger, TrainSettings
from zeroone.training import train as train_network
from zeroone.training.checkpoint import FILE as STATE
from zeroone.training.checkpoint import RECORD
from zeroone.utils.checks import InputError, count, one_of
from zeroone.utils.parallel import restarts, together


def train(
    *,
    data: str,
    label: str | None = None,
    data_dir: Path | None = None,
    out: Path,
    resume: bool = False,
    overwrite: bool = False,
    preset: str | None = None,
    pretraining_epochs: int | None = None,
    backbone: str | None = None,
    pretraining_batch: int | None = None,
    pretraining_rate: float | None = None,
    csv: Path | None = None,
    tensorboard: Path | None = None,
    threads: int | None = None,
    quiet: bool = False,
    **settings: Any,
) -> None:
    """Train a network; write the model and a record of the run to a folder.

    Example: zeroone train --data digits --hidden 300,300 --out runs/digits

    Example: zeroone train --data mnist --pretraining-epochs 5 --hidden 2000,2000 --out runs/deep

    Example: torchrun --nproc-per-node 4 -m zeroone train --data big --threads 1 --out runs/big

    After an interruption, repeat the command with --resume: the run continues where it stopped.

    Args:
        out: folder for model.safetensors and record.json.
        resume: continue the unfinished run in --out.
        overwrite: replace the run in --out, finished or not.
        preset: 'paper' takes the settings that the paper prints; other options override them.
        pretraining_epochs: pretrain a backbone by Adam for so many epochs, then train the layers on
            its features; 0 trains the backbone with the layers, all activations 0/1.
        backbone: tiny, small, resnet18 or resnet18-3x3 below the layers (default: by the shape of
            the images).
        pretraining_batch: samples per batch of the pretraining (default: 64).
        pretraining_rate: learning rate of the pretraining (default: 0.001).
        csv: write a line per epoch to this file.
        tensorboard: folder for TensorBoard, if it is installed.
    """
    set_threads(threads)
    loggers = _loggers(csv, tensorboard, out, data)
    own: dict[str, Any] = {"backbone": backbone, "epochs": pretraining_epochs}
    own |= {"batch": pretraining_batch, "learning_rate": pretraining_rate}
    chosen, pretraining = _settings(preset, _given(settings), _given(own))
    with together(chosen.device) as team:
        with team.agree():
            if resume and team.is_first and not pretraining and not out.exists():
                raise InputError(f"{out} holds no unfinished run: there is nothing to resume.")
            numbers = HEADS[chosen.head].targets.are_numbers
            split = load_data(data, data_dir=data_dir, label=label, numbers=numbers)
        if pretraining and backbone is None:
            pretraining = replace(pretraining, backbone=default_backbone(split.shape))
        if threads is None and not pretraining:
            set_threads(chosen.threads_for(split.X.shape[1]))
        place = {"out": out, "name": data, "team": team, "resume": resume, "overwrite": overwrite}
        _run(split, chosen, pretraining, loggers, quiet=quiet, **place)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _loggers(csv: Path | None, tensorboard: Path | None, out: Path, data: str) -> list[Callback]:
    """Make the loggers; refuse those that cannot write before the data are read."""
    made: list[Callback] = []
    if csv is not None:
        if csv.parent != out:  # which does not exist yet
            check_output(csv, data)
        made.append(CSVLogger(csv))
    if tensorboard is not None:
        made.append(TensorBoardLogger(tensorboard))
    return made


def _settings(
    preset: str | None, options: dict[str, Any], pretraining: dict[str, Any]
) -> tuple[TrainSettings, PretrainingSettings | None]:
    """Read the settings; augmentation is the backbone's, if one is pretrained."""
    chosen = None
    if pretraining:
        if "epochs" not in pretraining:
            raise InputError(
                "a backbone needs --pretraining-epochs, how long it is pretrained (or 0)."
            )
        if count("--pretraining-epochs", pretraining["epochs"], least=0):
            pretraining["augment"] = options.pop("augment", None)
        elif pretraining.keys() & {"batch", "learning_rate"}:
            raise InputError(
                "--pretraining-batch and --pretraining-rate need --pretraining-epochs above 0."
            )
        chosen = PretrainingSettings(**{"backbone": "small"} | pretraining)
    if "hidden" in options:
        options["hidden"] = tuple(options["hidden"].split(","))
    return TrainSettings.from_options(preset, **options), chosen


def _run(
    split: Split,
    settings: TrainSettings,
    pretraining: PretrainingSettings | None,
    loggers: list[Callback],
    *,
    quiet: bool,
    **place: Any,
) -> None:
    """Train on a pretrained backbone, or without one; loggers follow the 0/1 layers only."""
    team, out = place["team"], place["out"]
    if restarts():
        states = (out / STATE, out / PRETRAINED / STATE)
        place["resume"] = team.first_word(any(state.exists() for state in states))
        place["overwrite"] &= not place["resume"]  # the results may be those to replace
        ended = (out / RECORD).exists() and not place["resume"] and not place["overwrite"]
        if team.first_word(ended):
            return
    place |= {"test": split.test, "image": split.shape}
    if not team.is_first:
        loggers, quiet = [], True
    if pretraining and pretraining.epochs:
        shown = stages("pretraining", "features", "training", quiet=quiet)
        with shown as (first, second, last):
            place["callbacks"] = (first, second, [*last, *loggers])
            run = train_on_backbone(split.X, split.y, pretraining, settings, **place)
    else:
        if pretraining:  # for 0 epochs: the backbone's layers are 0/1, too
            layers = BITS[one_of("0/1 backbone", pretraining.backbone, BITS)]
            settings = replace(settings, hidden=(*layers, *settings.layers))
        with stages("training", quiet=quiet) as (callbacks,):
            place |= {"callbacks": [*callbacks, *loggers], "feature_names": split.feature_names}
            run = train_network(split.X, split.y, settings, **place)
    if run.status == "diverged":
        raise InputError(
            f"training diverged: {run.reason}; take smaller steps. The record is in {out}."
        )
    if team.is_first:
        _print(run, split.name, str(out))


def _print(run: Run, data: str, out: str) -> None:
    pretrained = run.record.get("initial")
    lines = {"pretraining": pretrained} if pretrained else {}
    print_results(f"{data}: {run.status}, {run.reason}", lines | {out: run.record})
    budget = run.record["settings"].get("stochastic", {}).get("flash")
    if budget is not None:
        flash = size_of(quantise(run.network)).flash
        print(f"C export: about {flash:,} of {budget:,} bytes of flash")
