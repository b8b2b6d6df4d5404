"""``zeroone demo``: the paper's algorithm on real handwritten digits, in under a minute."""

from pathlib import Path
from typing import Any

from zeroone.data.embedded import load_embedded
from zeroone.experiments.console import print_results, progress
from zeroone.experiments.figures import plot_training
from zeroone.training import TrainSettings, train

HIDDEN = (300, 300)
RUNS: dict[str, dict[str, Any]] = {
    "paper's settings": {"preset": "paper"},
    "exact BCD": {},
    "exact BCD, pruned": {"lam": 5e-4},
}


def run_demo(out: Path, *, seed: int = 0, quiet: bool = False) -> dict[str, dict[str, Any]]:
    """Train three ways on digits, print a table, write records, models and a figure to ``out``."""
    data = load_embedded("digits")
    records = {}
    for name, options in RUNS.items():
        settings = TrainSettings.from_options(**options, hidden=HIDDEN, seed=seed)
        with progress(f"{name:17}", settings.exact.max_iter, quiet=quiet) as report:
            run = train(
                data.X, data.y, settings, test=data.test, name=data.name, on_iteration=report
            )
        run.save(out / name.replace("'", "").replace(",", "").replace(" ", "-").lower())
        records[name] = run.record
    figure = plot_training(records, out / "training.png")
    widths = "-".join(map(str, (data.X.shape[1], *HIDDEN, 10)))
    print_results(f"digits, {len(data.y)} training samples, {widths}", records)
    print(f"F by term and the errors: {figure}")
    print(f"records and models:       {out}/*/record.json, model.safetensors")
    print("The printed settings leave every layer where it started (docs/errata.md, E6 and E7).")
    print("Next: zeroone train --data digits --hidden 1000 --out runs/wide")
    return records
