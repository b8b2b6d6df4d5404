"""Writes the page: one HTML file that makes no network requests."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zeroone.commands.report.curves import layer_charts, shared_charts
from zeroone.commands.report.runs import Run, read_run
from zeroone.commands.report.templates import load_template
from zeroone.optim.groups import default_damping
from zeroone.training.epochs import default_dropout
from zeroone.training.text_progress import PARTS, say
from zeroone.utils.checks import InputError
from zeroone.utils.storage import replacing
from zeroone.version import __version__

# What None means for settings whose value the record does not hold.
UNSET = {
    "patience": "off",
    "keep": "all units",
    "beta": "0.99 / Lipschitz constant",
    "init_std": "the solver's own",
    "input_dropout": "automatic",
    "damping": "automatic",
}


def write_report(
    runs: Sequence[Path],
    out: Path,
    *,
    data: Sequence[str] = (),
    data_dir: Path | None = None,
    label: str | None = None,
    quiet: bool = True,
) -> Path:
    """Write a page that shows runs side by side.

    Args:
        runs: Folders of runs, or files of records.
        out: The page to write.
        data: What all runs were trained on, or each, if their records do not tell.
        data_dir: The folder of downloaded data sets.
        label: The label column of .csv files.
        quiet: Whether to print no progress.
    """
    if len(data) not in (0, 1, len(runs)):
        raise InputError(f"data are given once or once a run: {len(data)} for {len(runs)} runs.")
    sources = list(data) if len(data) == len(runs) else [*data, None][:1] * len(runs)
    page = load_template("page.html")  # before the work, in case jinja2 is not installed
    read = []
    for k, (path, source) in enumerate(zip(runs, sources, strict=True)):
        if not quiet and len(runs) > 1:
            say(f"{path}, run {k + 1} of {len(runs)}")
        read.append(read_run(path, data=source, data_dir=data_dir, label=label))
    text = page.render(
        runs=read,
        version=__version__,
        charts=shared_charts(read),
        layer_charts=[(run, layer_charts(run)) for run in read],
        settings=_side_by_side([_settings(run) for run in read]),
        machines=_side_by_side([_machine(run) for run in read]),
        parts=[p for p in PARTS if any(f"{p}_error" in run.record["result"] for run in read)],
    )
    with replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return out


def _settings(run: Run) -> dict[str, str]:
    """The settings of a run, then those of its pretraining."""
    pretraining = run.pretraining["settings"] if run.pretraining else {}
    return _flat(run.record["settings"], _used(run)) | _flat(pretraining, {}, "initial.")


def _used(run: Run) -> dict[str, float]:
    """The values that settings of None had in the run, as far as its record tells."""
    plan, data = run.record.get("plan") or {}, run.record["data"]
    used, samples = dict(plan), data["samples"].get("train")
    if not samples or not plan.get("batches"):
        return used
    used["batch"] = math.ceil(samples / plan["batches"])
    if "epochs" in plan:
        used["damping"] = round(default_damping(plan["epochs"] * plan["batches"]), 4)
    layers = run.record["settings"].get("hidden")
    if layers and data.get("features") and not run.pretraining:  # whose features are not counted
        of_images = "conv" in str(layers)
        used["input_dropout"] = default_dropout(samples, data["features"], of_images=of_images)
    return used


def _machine(run: Run) -> dict[str, str]:
    names = ("commit", "date", "seed")
    return _flat(run.record["machine"] | {name: run.record.get(name, "") for name in names}, {})


def _flat(tree: dict[str, Any], used: dict[str, float], prefix: str = "") -> dict[str, str]:
    """Flatten settings into names such as stochastic.epochs.

    In place of None stands the value used, or what None means.
    """
    flat: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, used, f"{prefix}{name}.")
        elif isinstance(value, list):
            flat[prefix + name] = ", ".join(map(str, value)) or "none"
        elif value is None and name in used:
            flat[prefix + name] = f"{used[name]} (automatic)"
        else:
            flat[prefix + name] = UNSET.get(name, "none") if value is None else str(value)
    return flat


def _side_by_side(columns: list[dict[str, str]]) -> list[tuple[str, list[str], bool]]:
    """One row for each name: the value of each run, and whether they differ."""
    names = dict.fromkeys(name for column in columns for name in column)
    rows = []
    for name in names:
        values = [column.get(name, "") for column in columns]
        rows.append((name, values, len(set(values)) > 1))
    return rows
