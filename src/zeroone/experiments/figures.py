"""Figures, made from records only."""

from pathlib import Path
from typing import Any

from zeroone.storage import replacing

TERMS = ("loss", "sparsity", "ridge", "coupling", "activation")


def plot_training(records: dict[str, dict[str, Any]], path: Path) -> Path:
    """F by term (left, one panel a run) and the errors of all runs (right)."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels = len(records) + 1
    figure, axes = plt.subplots(1, panels, figsize=(4.2 * panels, 3.6), layout="constrained")
    for axis, (name, record) in zip(axes, records.items(), strict=False):
        _plot_terms(axis, record["history"])
        axis.set_title(f"F by term: {name}", fontsize=10)
    for colour, (name, record) in enumerate(records.items()):
        _plot_errors(axes[-1], record["history"], name, f"C{colour}")
    axes[-1].set(xlabel="sweep", ylabel="error (%)", ylim=(0, 100))
    axes[-1].set_title("Error of the 0/1 network (dashed: training)", fontsize=10)
    axes[-1].legend(fontsize=8)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."), dpi=120)
    plt.close(figure)
    return path


def _plot_terms(axis: Any, history: list[dict[str, Any]]) -> None:
    sweeps = [entry["iteration"] for entry in history]
    for colour, term in enumerate(TERMS):
        values = [entry[term] or None for entry in history]  # a logarithmic axis has no zero
        if any(values):
            axis.plot(sweeps, values, label=term, color=f"C{colour}")
    axis.plot(sweeps, [entry["F"] for entry in history], "k--", label="F")
    axis.set(xlabel="sweep", yscale="log")
    axis.legend(fontsize=8)


def _plot_errors(axis: Any, history: list[dict[str, Any]], name: str, colour: str) -> None:
    sweeps = [entry["iteration"] for entry in history]
    axis.plot(sweeps, [100 * e["train_error"] for e in history], "--", color=colour, alpha=0.6)
    if "test_error" in history[-1]:
        axis.plot(sweeps, [100 * e["test_error"] for e in history], color=colour, label=name)
