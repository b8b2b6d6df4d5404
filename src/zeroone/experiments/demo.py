"""``zeroone demo``: 0/1 networks on real handwritten digits, in under a minute."""

from pathlib import Path
from typing import Any

from zeroone.data.embedded import load_embedded
from zeroone.experiments.console import print_results, progress
from zeroone.experiments.figures import plot_training
from zeroone.training import TrainSettings, train

HIDDEN = (300, 300)
RUNS: dict[str, dict[str, Any]] = {
    "paper's settings": {"preset": "paper"},
    "exact BCD": {"solver": "exact", "head": "hardmax"},
    "stochastic BCD": {},
    "stochastic, half": {"keep": 0.5},
}


def run_demo(out: Path, *, seed: int = 0, quiet: bool = False) -> dict[str, dict[str, Any]]:
    """Train four ways on digits, print a table, write records, models and a figure to ``out``."""
    data = load_embedded("digits")
    records = {}
    for name, options in RUNS.items():
        settings = TrainSettings.from_options(**options, hidden=HIDDEN, seed=seed)
        with progress(f"{name:17}", quiet=quiet) as callbacks:
            run = train(
                data.X, data.y, settings, test=data.test, name=data.name, callbacks=callbacks
            )
        run.save(out / name.replace("'", "").replace(",", "").replace(" ", "-").lower())
        records[name] = run.record
    figure = plot_training(records, out / "training.png")
    widths = "-".join(map(str, (data.X.shape[1], *HIDDEN, 10)))
    print_results(f"digits, {len(data.y)} training samples, {widths}", records)
    print(f"flipped bits and errors: {figure}")
    print(f"records and models:      {out}/*/record.json, model.safetensors")
    print("The printed settings leave every layer where it started (docs/errata.md, E6 and E7).")
    print("'half' keeps half of the units: the others leave while it trains.")
    print(
        "Next: zeroone data get mnist && zeroone train --data mnist --hidden 1000,1000 --out runs/m"
    )
    return records
