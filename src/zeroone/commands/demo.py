"""``zeroone demo``: 0/1 networks on real handwritten digits, beside others, in a minute or two."""

from pathlib import Path
from typing import Any

from zeroone.baselines.settings import BaselineSettings
from zeroone.commands.console import print_results, progress
from zeroone.commands.figures import plot_training
from zeroone.data.embedded import load_embedded
from zeroone.data.splits import Split
from zeroone.training import Callback, TrainSettings, train
from zeroone.training.baselines import train_baseline
from zeroone.training.runs import RECORD
from zeroone.utils.records import write_record
from zeroone.utils.storage import make_folder

HIDDEN = (300, 300)
RUNS: dict[str, dict[str, Any]] = {
    "paper's settings": {"preset": "paper"},
    "exact BCD": {"solver": "exact", "head": "hardmax"},
    "stochastic BCD": {},
    "stochastic, half": {"keep": 0.5},
}
RIVALS: dict[str, dict[str, Any]] = {
    "STE + Adam, 0/1": {"activation": "ste"},
    "ReLU + Adam": {"activation": "relu"},
}


def run_demo(out: Path, *, seed: int = 0, quiet: bool = False) -> dict[str, Path]:
    """Train on digits, print a table, write records, models and a figure to ``out``.

    Gives the folders of the runs, by their names.
    """
    TrainSettings(seed=seed)  # refused before anything is written
    data = load_embedded("digits")
    records, folders = {}, {}
    for name in (*RUNS, *RIVALS):
        folders[name] = make_folder(out / _as_folder(name))
        with progress(f"{name:17}", quiet=quiet) as callbacks:
            records[name] = _train(name, data, seed, folders[name], callbacks)
    figure = plot_training({name: records[name] for name in RUNS}, out / "training.png")
    widths = "-".join(map(str, (data.X.shape[1], *HIDDEN, 10)))
    print_results(f"digits, {len(data.y)} training samples, {widths}", records)
    print(f"flipped bits and errors: {figure}")
    print(f"records and models:      {out}/*/record.json, model.safetensors")
    print("The printed settings leave every layer where it started (docs/errata.md, E6 and E7).")
    print("'half' keeps half of the units: the others leave while it trains.")
    return folders


def _train(
    name: str, data: Split, seed: int, folder: Path, callbacks: list[Callback]
) -> dict[str, Any]:
    given: dict[str, Any] = {"test": data.test, "name": data.name, "callbacks": callbacks}
    if name in RIVALS:
        options = dict(RIVALS[name])
        baseline = BaselineSettings(options.pop("activation"))
        settings = TrainSettings.from_options(**options, hidden=HIDDEN, seed=seed)
        _, record = train_baseline(data.X, data.y, baseline, settings, **given)
        write_record(folder / RECORD, record)
        return record
    settings = TrainSettings.from_options(**RUNS[name], hidden=HIDDEN, seed=seed)
    run = train(data.X, data.y, settings, **given)
    run.save(folder)
    return run.record


def _as_folder(name: str) -> str:
    kept = "".join(letter if letter.isalnum() else " " for letter in name.replace("'", ""))
    return "-".join(kept.lower().split())
