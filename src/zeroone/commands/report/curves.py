"""Which curves of the runs the page draws."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from zeroone.commands.report.charts import Series, line_chart
from zeroone.commands.report.runs import Run

TERMS = ("F", "loss", "sparsity", "ridge", "coupling", "activation")


def shared_charts(runs: Sequence[Run]) -> list[str]:
    """Draw the charts that all runs share: error, loss, error in noise."""
    x_label = " or ".join(dict.fromkeys(run.iteration for run in runs))
    errors, losses = [], []
    for colour, run in enumerate(runs):
        scored = "test" if "test_error" in run.history[-1] else "validation"
        for part in ("train", scored):
            dashed, name = part == "train", f"{run.name}: {part}"
            errors.append(_curve(run, name, f"{part}_error", colour, factor=100, dashed=dashed))
        losses.append(_curve(run, run.name, "loss", colour))
    least = min((value for line in errors for value in line.y if value), default=1)
    errors = [replace(x, y=[least / 2 if v == 0 else v for v in x.y]) for x in errors]
    charts = [
        line_chart(
            "Error (dashed: training; 0 is the bottom line)", x_label, "%", errors, log=True
        ),
        line_chart("Loss", x_label, "loss", losses, log=True),
        *_noise_charts(runs),
    ]
    return [chart for chart in charts if chart]


def layer_charts(run: Run) -> list[str]:
    """Draw the charts with one line for each layer or each term of the objective."""
    x_label = run.iteration
    terms = TERMS if x_label == "sweep" else ()
    values = [_curve(run, term, term, k) for k, term in enumerate(terms)]
    units, bits = _layer_curves(run, "active_units"), _layer_curves(run, "flipped", factor=100)
    charts = [
        line_chart("Objective by term", x_label, "value", values, log=True),
        line_chart("Active units", x_label, "units", units),
        line_chart("Bits flipped", x_label, "%", bits),
    ]
    return [chart for chart in charts if chart]


def _noise_charts(runs: Sequence[Run]) -> list[str]:
    """One chart for each part of the data and each unit of noise."""
    groups: dict[tuple[str, str], list[Series]] = {}
    for colour, run in enumerate(runs):
        if noise := _noise_of(run):
            name = f"{run.name}, {noise['samples']:,} samples"
            series = Series(name, noise["levels"], [100 * e for e in noise["errors"]], colour)
            groups.setdefault((noise["part"], noise["unit"]), []).append(series)
    return [
        line_chart(f"Error of the {part} part in Gaussian noise", unit, "%", series)
        for (part, unit), series in groups.items()
    ]


def _noise_of(run: Run) -> dict[str, Any] | None:
    """Errors in noise as evaluated here, or else as recorded, which does not name the unit."""
    if run.evaluation:
        noise = run.evaluation.noise
        return noise | {"part": run.evaluation.part, "unit": f"deviation, {noise['unit']}"}
    recorded: dict[str, Any] | None = run.record["result"].get("noise")
    if recorded is None:
        return None
    samples = run.record["data"]["samples"][recorded["part"]]
    return recorded | {"samples": samples, "unit": "deviation"}


def _layer_curves(run: Run, key: str, factor: float = 1) -> list[Series]:
    n_layers = max(len(entry.get(key) or ()) for entry in run.history)
    return [_curve(run, f"layer {k + 1}", key, k, factor=factor, layer=k) for k in range(n_layers)]


def _curve(
    run: Run,
    name: str,
    key: str,
    colour: int,
    *,
    factor: float = 1,
    dashed: bool = False,
    layer: int | None = None,
) -> Series:
    """An entry of the history over the iterations, or one layer's value of a list."""
    values = []
    for entry in run.history:
        value = entry.get(key)
        if layer is not None:
            value = value[layer] if value and layer < len(value) else None
        values.append(None if value is None else factor * value)
    return Series(name, [entry["iteration"] for entry in run.history], values, colour, dashed)
