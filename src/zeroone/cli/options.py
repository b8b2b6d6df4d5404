"""The options that commands share."""

from collections.abc import Callable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

Command = Callable[..., None]
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def words(*known: str, files: bool = False) -> Complete:
    """What a shell offers for an option: known words, and perhaps files."""

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
        found = [CompletionItem(word) for word in known if word.startswith(begun)]
        return found or ([CompletionItem(begun, type="file")] if files else [])

    return complete


DATA_SETS = ("mnist", "fashion-mnist", "cifar10", "cifar100")
CHOICES = {
    "u-rule": ("expected", "drawn", "half"),
    "weights": ("real", "ternary", "binary"),
    "augment": ("crop-flip", "none"),
    "body": ("tiny", "small", "resnet18", "resnet18-3x3"),
}

data_option = click.option(
    "--data",
    required=True,
    shell_complete=words("digits", "breast-cancer", *DATA_SETS, files=True),
    help="digits, breast-cancer, mnist, fashion-mnist, cifar10, cifar100, a .npz file with arrays "
    "X and y, a .csv file, or a folder of images by class.",
)
data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Where data sets are kept (default: $ZEROONE_DATA, else the platform's cache folder).",
)
json_option = click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Write the numbers here."
)
label_option = click.option("--label", help="The label column of a .csv file (default: the last).")
model_argument = click.argument("model", type=click.Path(path_type=Path))


threads_option = click.option("--threads", type=int, help="CPU threads (default: all cores).")
quiet_option = click.option("--quiet", is_flag=True, help="No progress.")


def run_options(command: Command) -> Command:
    """The options of every command that trains."""
    for option in (
        quiet_option,
        click.option("--threads", type=int, help="CPU threads (default: all cores; demo: 1)."),
        click.option("--seed", default=0, show_default=True, help="Seed of the random start."),
    ):
        command = option(command)
    return command


def solver_options(command: Command) -> Command:
    """The solvers' numbers; None leaves the preset's or the default value."""
    for name, kind, text in (
        ("max-iter", int, "exact: sweeps over all blocks (the paper's K)."),
        ("pgm-steps", int, "exact: steps of each W block (the paper's L)."),
        ("beta", float, "exact: size of a W step (default: from the Lipschitz constant)."),
        ("pi", float, "exact: weight of V = step(U)."),
        ("tau", float, "exact: weight of U = W V."),
        ("gamma", float, "exact: weight of the ridge term."),
        ("u-rule", str, "stochastic: expected (default), drawn or half."),
        (
            "input-dropout",
            float,
            "stochastic: inputs dropped (default: 0.2; 0 for convolutions and few inputs).",
        ),
        (
            "smoothing",
            float,
            "stochastic: label smoothing, or its like for hardmax (default: 0.1).",
        ),
        ("damping", float, "stochastic: damping of the W block (default: by the length)."),
        ("head-step", float, "stochastic: step of the last W block (default: 0.3)."),
        ("window", float, "stochastic: |b| up to which a bit may flip (default: 1)."),
        ("move", float, "stochastic: step of the hidden W blocks (default: 0.08)."),
        ("weights", str, "stochastic: of hidden layers: real (default), ternary or binary."),
        ("keep", float, "stochastic: share of the hidden units to keep, such as 0.6."),
        ("batch", int, "stochastic: samples a batch (default: 256)."),
        ("epochs", int, "stochastic: passes over the data (default: 10, more on small data)."),
        ("lam", float, "Price of a unit; 0 prunes nothing."),
        ("margin", float, "hardmax: lead by which a class must win to count as right."),
        (
            "patience",
            int,
            "Stop, and go back to the best, after so many epochs without a better one.",
        ),
    ):
        offered = words(*CHOICES.get(name, ()))
        command = click.option(f"--{name}", type=kind, help=text, shell_complete=offered)(command)
    return command


def initial_options(command: Command) -> Command:
    """The initial process."""
    for name, kind, text in (
        ("augment", str, "crop-flip: shift and flip images anew in every epoch; or none."),
        ("initial-rate", float, "Learning rate of the initial process's Adam (default: 0.001)."),
        ("initial-batch", int, "Samples a batch of the initial process (default: 64)."),
        (
            "initial-epochs",
            int,
            "Train a body by Adam first, then the layers on its features; 0 trains the body with "
            "them, all activations 0/1.",
        ),
        ("body", str, "tiny, small, resnet18 or resnet18-3x3 (default: by the images' shape)."),
    ):
        offered = words(*CHOICES.get(name, ()))
        command = click.option(f"--{name}", type=kind, help=text, shell_complete=offered)(command)
    return command
