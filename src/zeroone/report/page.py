"""The page: one HTML file with everything in it, which asks nobody for anything."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from zeroone.report.charts import Series, line_chart
from zeroone.report.runs import Reported, read_run
from zeroone.training.text_progress import percent, say
from zeroone.utils.checks import InputError
from zeroone.utils.storage import replacing
from zeroone.version import __version__

TERMS = ("F", "loss", "sparsity", "ridge", "coupling", "activation")
PARTS = ("train", "validation", "test")


def write_report(
    runs: Sequence[Path],
    out: Path,
    *,
    data: Sequence[str] = (),
    data_dir: Path | None = None,
    label: str | None = None,
    quiet: bool = True,
) -> Path:
    """Write the page of these runs, side by side.

    ``data``: what all of them were trained on, or each, if their records do not tell.
    """
    if len(data) not in (0, 1, len(runs)):
        raise InputError(f"data are given once or once a run: {len(data)} for {len(runs)} runs.")
    sources = list(data) if len(data) == len(runs) else [*data, None][:1] * len(runs)
    reported = []
    for k, (path, source) in enumerate(zip(runs, sources, strict=True)):
        if not quiet and len(runs) > 1:
            say(f"{path}, run {k + 1} of {len(runs)}")
        reported.append(read_run(path, data=source, data_dir=data_dir, label=label))
    with replacing(out) as temporary:
        temporary.write_text(render(reported), encoding="utf-8")
    return out


def render(runs: Sequence[Reported]) -> str:
    """The page's text."""
    files = resources.files(__package__)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {"percent": percent, "count": lambda number: f"{number:,.0f}"}
    template = environment.from_string((files / "page.html").read_text(encoding="utf-8"))
    return template.render(
        runs=runs,
        style=Markup((files / "page.css").read_text(encoding="utf-8")),
        version=__version__,
        charts=[chart for chart in _charts(runs) if chart],
        layer_charts=[(run, [chart for chart in _layer_charts(run) if chart]) for run in runs],
        settings=_side_by_side([_flat(run.settings) for run in runs]),
        machines=_side_by_side([_flat(run.record["machine"]) for run in runs]),
        parts=[p for p in PARTS if any(f"{p}_error" in r.record["result"] for r in runs)],
    )


def _charts(runs: Sequence[Reported]) -> list[Markup]:
    """What all runs share a chart for."""
    x_label = " or ".join(dict.fromkeys(run.iteration for run in runs))
    errors = []
    for colour, run in enumerate(runs):
        for part, dashed in (("train", True), ("validation", False), ("test", False)):
            if part == "validation" and "test_error" in run.history[-1]:
                continue
            values = [_times(100, entry.get(f"{part}_error")) for entry in run.history]
            errors.append(Series(f"{run.name}: {part}", _steps(run), values, colour, dashed))
    losses = [
        Series(run.name, _steps(run), [entry.get("loss") for entry in run.history], colour)
        for colour, run in enumerate(runs)
    ]
    return [
        line_chart("Error (dashed: training)", x_label, "%", errors, log=True),
        line_chart("Loss", x_label, "loss", losses, log=True),
        *_noise_charts(runs),
    ]


def _noise_charts(runs: Sequence[Reported]) -> list[Markup]:
    """One for each unit of noise and each part of the data."""
    groups: dict[tuple[str, str], list[Series]] = {}
    for colour, run in enumerate(runs):
        if noise := _noise_of(run):
            name = f"{run.name}, {noise['samples']:,} samples"
            shares = [100 * error for error in noise["errors"]]
            series = Series(name, noise["levels"], shares, colour)
            groups.setdefault((noise["part"], noise["unit"]), []).append(series)
    return [
        line_chart(f"Error of the {part} part in Gaussian noise", unit, "%", series)
        for (part, unit), series in groups.items()
    ]


def _noise_of(run: Reported) -> dict[str, Any] | None:
    """As the network was looked at; of a record alone what it holds, which names no unit."""
    if run.looks:
        noise = run.looks.noise
        return noise | {"part": run.looks.part, "unit": f"deviation, {noise['unit']}"}
    recorded: dict[str, Any] | None = run.record["result"].get("noise")
    if recorded is None:
        return None
    samples = run.record["data"]["samples"][recorded["part"]]
    return recorded | {"samples": samples, "unit": "deviation"}


def _layer_charts(run: Reported) -> list[Markup]:
    """What has a line a layer, or a term: a chart of its own for each run."""
    steps = _steps(run)
    terms = [
        Series(term, steps, [entry.get(term) for entry in run.history], k)
        for k, term in enumerate(TERMS)
    ]
    return [
        line_chart("Objective by term", run.iteration, "value", terms, log=True)
        if "F" in run.history[-1]
        else Markup(""),
        line_chart("Active units", run.iteration, "units", _by_layer(run, "active_units", 1)),
        line_chart("Bits flipped", run.iteration, "%", _by_layer(run, "flipped", 100)),
    ]


def _by_layer(run: Reported, name: str, factor: float) -> list[Series]:
    """A list in the history's entries as one line a layer."""
    n_layers = max(len(entry.get(name) or ()) for entry in run.history)
    series = []
    for k in range(n_layers):
        lists = [entry.get(name) or [] for entry in run.history]
        values = [_times(factor, own[k] if len(own) > k else None) for own in lists]
        series.append(Series(f"layer {k + 1}", _steps(run), values, k))
    return series


def _steps(run: Reported) -> list[float]:
    return [entry["iteration"] for entry in run.history]


def _times(factor: float, value: float | None) -> float | None:
    return None if value is None else factor * value


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings by names such as stochastic.epochs."""
    flat: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            flat[prefix + name] = words
    return flat


def _side_by_side(columns: list[dict[str, str]]) -> list[tuple[str, list[str], bool]]:
    """One row a name: the value of each run, and whether they differ."""
    names = dict.fromkeys(name for column in columns for name in column)
    rows = []
    for name in names:
        values = [column.get(name, "") for column in columns]
        rows.append((name, values, len(set(values)) > 1))
    return rows
