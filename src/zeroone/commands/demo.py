"""``zeroone demo``: 0/1 networks on handwritten digits beside baselines, in a minute or two."""

from pathlib import Path
from typing import Any

from zeroone.baselines.settings import BaselineSettings
from zeroone.commands.checks import output_folder, set_threads
from zeroone.commands.console import print_results, stages
from zeroone.commands.figures import plot_training
from zeroone.data.embedded import load_embedded
from zeroone.data.splits import Split
from zeroone.training import Callback, TrainSettings, train
from zeroone.training.baselines import train_baseline
from zeroone.training.runs import RECORD
from zeroone.utils.checks import need_extra
from zeroone.utils.records import write_record
from zeroone.utils.storage import make_folder

HIDDEN = (300, 300)
RUNS: dict[str, dict[str, Any]] = {
    "paper's settings": {"preset": "paper"},
    "exact BCD": {"solver": "exact", "head": "hardmax"},
    "stochastic BCD": {},
    "stochastic, half": {"keep": 0.5},
}
BASELINES: dict[str, dict[str, Any]] = {
    "STE + Adam, 0/1": {"activation": "ste"},
    "ReLU + Adam": {"activation": "relu"},
}
NEXT = """\
The printed settings leave every layer where it started (docs/errata.md, E6 and E7).
'half' keeps half of the units: the others are removed during training.
Next, try your own data, or a larger set:
  zeroone train --data mine.csv --label kind --validation 0.1 --out runs/mine
  zeroone data get mnist && zeroone train --data mnist --hidden 1000,1000 --out runs/mnist
  zeroone reproduce all --quick"""


def demo(
    *,
    out: Path = Path("zeroone-demo"),
    seed: int = 0,
    threads: int = 1,
    quiet: bool = False,
) -> None:
    """Train on embedded handwritten digits, print a table, write a figure and a page.

    Example: zeroone demo --out zeroone-demo

    Args:
        out: folder for the figure, records and models.
        seed: seed of the random start.
        threads: CPU threads; the matrices are too small for more than one.
    """
    set_threads(threads)
    need_extra("plots", "matplotlib")
    need_extra("pages", "jinja2")
    from zeroone.commands.report import write_report

    TrainSettings(seed=seed)  # refuses a wrong seed before anything is written
    data = load_embedded("digits")
    records, folders = {}, []
    with output_folder(out):
        for name in (*RUNS, *BASELINES):
            folders.append(make_folder(out / _as_folder(name)))
            with stages(f"{name:17}", quiet=quiet) as (callbacks,):
                records[name] = _train(name, data, seed, folders[-1], callbacks)
        figure = plot_training({name: records[name] for name in RUNS}, out / "training.png")
        widths = "-".join(map(str, (data.X.shape[1], *HIDDEN, 10)))
        print_results(f"digits, {len(data.y)} training samples, {widths}", records)
        page = write_report(folders, out / "report.html")
    print(f"flipped bits and errors: {figure}")
    print(f"records and models:      {out}/*/record.json, model.safetensors")
    print(f"all of it on one page:   {page}")
    print(NEXT)


def _train(
    name: str, data: Split, seed: int, folder: Path, callbacks: list[Callback]
) -> dict[str, Any]:
    given: dict[str, Any] = {"test": data.test, "name": data.name, "callbacks": callbacks}
    if name in BASELINES:
        options = dict(BASELINES[name])
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
