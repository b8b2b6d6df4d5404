"""``zeroone train``: one run, with or without an initial process, and what is printed of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeroone.commands.console import print_results, stages
from zeroone.data.load import load_data
from zeroone.data.splits import Split
from zeroone.nn.backbones import BACKBONES, BITS, default_backbone
from zeroone.pretraining import InitialSettings, train_on_body
from zeroone.training import Callback, Run, TrainSettings, train
from zeroone.training.checkpoint import FILE as STATE
from zeroone.training.runs import RECORD
from zeroone.utils.checks import InputError, count, one_of
from zeroone.utils.parallel import Team, restarts, together

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
    half_sums: bool = False,
) -> None:
    """Train into the folder ``out`` and print a table, a line a stage.

    ``loggers`` hear of the 0/1 network's training, not of the initial process. Under torchrun all
    processes train one network together, and the first one talks; started anew, they go on.
    ``half_sums``: see ``parallel.Ranks``.
    """
    for logger in loggers:
        logger.check()
    plan = Plan.of(options, preset)
    with together(halved=half_sums, device=plan.settings.device) as team:
        split = load_data(data, data_dir=data_dir, label=label)
        if restarts():
            resume = team.first_word(any(out.rglob(STATE)))
            if team.first_word((out / RECORD).exists() and not resume):
                return  # it ended before another process did
        heard = loggers if team.is_first else ()
        run = plan.train(
            split, data, out, team, heard, resume=resume, quiet=quiet or not team.is_first
        )
        if run.status == "diverged":
            raise InputError(
                f"training diverged: {run.reason}; take smaller steps. The record is in {out}."
            )
    if not team.is_first:
        return
    lines = {str(out): run.record}
    if "initial" in run.record:
        lines = {"initial process": run.record["initial"], **lines}
    print_results(f"{split.name}: {run.status}, {run.reason}", lines)


@dataclass(frozen=True)
class Plan:
    """What was asked for, checked before the data are read."""

    stage: dict[str, Any]  # of the initial process
    rest: dict[str, Any]
    preset: str | None
    settings: TrainSettings
    on_body: bool

    @classmethod
    def of(cls, options: dict[str, Any], preset: str | None) -> "Plan":
        """From the options of the command."""
        stage = {ours: options[name] for name, ours in STAGE.items() if name in options}
        rest = {name: value for name, value in options.items() if name not in STAGE}
        on_body = _has_initial_process(stage)
        if on_body:
            stage |= {"augment": rest.pop("augment", None)}
            InitialSettings(**{"body": "small"} | stage)
        return cls(stage, rest, preset, TrainSettings.from_options(preset, **rest), on_body)

    def train(
        self,
        split: Split,
        data: str,
        out: Path,
        team: Team,
        loggers: Sequence[Callback],
        *,
        resume: bool,
        quiet: bool,
    ) -> Run:
        """One run, on a body or not. ``data``: as it was typed, so that a report finds them."""
        common: dict[str, Any] = {"out": out, "test": split.test, "name": data}
        common |= {"image": split.shape, "resume": resume, "team": team}
        if self.on_body:
            initial = InitialSettings(**{"body": default_backbone(split.shape)} | self.stage)
            names = ("initial process", "features", "training")
            with stages(*names, quiet=quiet) as (first, second, last):
                heard = (first, second, [*last, *loggers])
                return train_on_body(
                    split.X, split.y, initial, self.settings, callbacks=heard, **common
                )
        with stages("training", quiet=quiet) as (callbacks,):
            return train(
                split.X,
                split.y,
                self._for(split),
                callbacks=[*callbacks, *loggers],
                feature_names=split.feature_names,
                **common,
            )

    def _for(self, split: Split) -> TrainSettings:
        """The settings, with the layers of a 0/1 body if one was asked for."""
        if not self.stage:
            return self.settings
        body = one_of("0/1 body", self.stage.get("body", default_backbone(split.shape)), BITS)
        layers = (*BITS[body], *self.settings.hidden)
        return TrainSettings.from_options(self.preset, **self.rest | {"hidden": layers})


def _has_initial_process(stage: dict[str, Any]) -> bool:
    """Whether Adam trains a body first; with no epochs the body's layers are BCD's, too."""
    if stage and "epochs" not in stage:
        raise InputError("a body needs --initial-epochs, how long it is trained first (or 0).")
    epochs = count("--initial-epochs", stage.get("epochs", 0), least=0)
    if not epochs and ("batch" in stage or "learning_rate" in stage):
        raise InputError("--initial-batch and --initial-rate need --initial-epochs above 0.")
    if "body" in stage:
        one_of("body", stage["body"], BACKBONES)
    return epochs > 0
