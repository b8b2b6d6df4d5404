"""What can be reproduced: the tables and figures of the paper, and the protocols behind them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paper.reproduce import figures
from paper.reproduce.comparison import (
    compare_with_paper,
    errors_by_pretraining_epochs,
    errors_in_noise,
)
from paper.reproduce.results import Results
from paper.reproduce.text_tables import TextTable, unlinked
from zeroone.data.load import load_data
from zeroone.utils.checks import InputError
from zeroone.utils.storage import replacing

Plot = Callable[[Sequence[Results], Path], None]
Tabulate = Callable[[Results], list[TextTable]]


@dataclass(frozen=True)
class Target:
    """Tables, a figure, or both; ``shows`` is its text on the page."""

    title: str
    shows: str
    protocols: tuple[str, ...] = ()
    plot: Plot | None = None
    tabulate: Tabulate | None = None


TARGETS = {
    "table1": Target(
        "Table 1",
        "Ten methods on MNIST, Fashion-MNIST and CIFAR-10, five measures (label com-9-algs1).",
        ("mnist", "mnist-256", "mnist-raw", "fashion-mnist", "cifar10"),
        tabulate=compare_with_paper,
    ),
    "table2": Target(
        "Table 2",
        "Ten methods on CIFAR-100, top-1 and top-5 (label com-9-algs2).",
        ("cifar100",),
        tabulate=compare_with_paper,
    ),
    "fig-initial": Target(
        "Effect of pretraining",
        "Error of the trained layers against epochs of pretraining below them (label "
        "fig:MNIST). All backbones are frozen: that of 0 epochs is at its random start.",
        ("initial", "initial-256"),
        figures.plot_pretraining,
        errors_by_pretraining_epochs,
    ),
    "fig-training": Target(
        "Training curves",
        "Top-1 training and test error, mean and standard deviation over the seeds (labels "
        "fig:MNIST, fig:Fashion, fig:Cifar10, fig:Cifar100Top5, whose top-5 curves we have not: "
        "top-5 errors are in Table 2). Training curves are of 10,000 samples, tables of all.",
        ("mnist", "mnist-256", "fashion-mnist", "cifar10", "cifar100"),
        figures.plot_training,
    ),
    "fig-noise": Target(
        "Noise",
        "Test error against Gaussian noise (label fig:Robust), whose deviation is a share of the "
        "range of grey levels; beside it, the mean difference from ReLU seed by seed, since "
        "backbones differ by more than methods do (shaded: its standard deviation, of BCD); and "
        "the class probabilities of single images in noise (labels rubfashion1, rubfashion2) by "
        "ReLU and by "
        "our default, of the first seed.",
        ("fashion-mnist",),
        figures.plot_noise,
        errors_in_noise,
    ),
    "fig-activations": Target(
        "Activation functions",
        "The six of label figureactivation.",
        plot=figures.plot_activations,
    ),
    "fig-prox": Target(
        "The U block",
        "The solution of Lemma 2, rho = 0.1 (label 01-solutions).",
        plot=figures.plot_prox,
    ),
    "parameters": Target(
        "Parameters",
        "What changing a parameter of Algorithm 3 does, and halving or doubling a setting of "
        "stochastic BCD.",
        ("printed", "parameters"),
        tabulate=compare_with_paper,
    ),
}


@dataclass(frozen=True)
class Made:
    """The tables of a target, and the names of its figures."""

    tables: list[TextTable] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)


def make(name: str, results: Sequence[Results], out: Path, data_dir: Path | None) -> Made:
    """Write the tables and figures of a target into ``out``, from protocols that have results."""
    target, made = TARGETS[name], Made()
    results = [r for r in results if r.rows_done]
    if target.protocols and not results:
        return made
    if target.plot is not None:
        target.plot(results, out / name)
        made.figures.append(name)
        if name == "fig-noise" and _draw_images(results[0], out, data_dir):
            made.figures.append("fig-noise-images")
    if target.tabulate is not None:
        made.tables.extend(table for r in results for table in target.tabulate(r))
        _write(out / f"{name}.md", [unlinked(table.markdown()) for table in made.tables])
        _write(out / f"{name}.tex", [table.latex() for table in made.tables])
    return made


def _write(path: Path, parts: list[str]) -> None:
    with replacing(path) as temporary:
        temporary.write_text("\n".join(parts), encoding="utf-8")


def _draw_images(results: Results, out: Path, data_dir: Path | None) -> bool:
    """Draw single images in noise; return False if their data are missing."""
    try:
        split = load_data(results.protocol.spec.data[0], data_dir=data_dir)
    except InputError:
        return False
    return figures.plot_noisy_images(results, split, out / "fig-noise-images")
