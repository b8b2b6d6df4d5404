"""Shell completion: the script for a shell, and the words it offers for an option."""

from importlib import import_module

import click
from click.shell_completion import CompletionItem, get_completion_class

from zeroone.utils.checks import one_of

SHELLS = ("bash", "zsh", "fish")
DATA = ("zeroone.data.registry:REGISTRY",)
# The words of an option, by its name, or by its command and name where names clash. A word with a
# colon is the place of a registry: it is imported on demand, and holds what users add, too.
WORDS: dict[str, tuple[str, ...]] = {
    "data": DATA,
    "name": DATA,
    "shell": SHELLS,
    "solver": ("zeroone.training.settings:SOLVERS",),
    "preset": ("zeroone.training.settings:PRESETS",),
    "dtype": ("zeroone.training.settings:DTYPES",),
    "head": ("zeroone.nn.heads:HEADS",),
    "v_solver": ("factor", "cg"),
    "scaling": ("zeroone.nn.scaling:SCALINGS",),
    "augment": ("zeroone.training.augment:AUGMENTATIONS",),
    "u_rule": ("zeroone.nn:U_RULES",),
    "weights": ("zeroone.optim.projection:WEIGHTS",),
    "backbone": ("zeroone.nn.backbones:BACKBONES",),
    "compress to": ("zeroone.commands.compress:FORMS",),
    "export to": ("zeroone.deploy.exporters:exporters",),
    "target": ("paper.reproduce.targets:TARGETS", "all"),
}


def completion(shell: str) -> None:
    """Print a script that makes a SHELL (bash, zsh or fish) complete commands and options.

    Example: zeroone completion bash > ~/.zeroone-complete.bash, and source that file in ~/.bashrc
    """
    from zeroone.cli import app

    kind = get_completion_class(one_of("shell", shell, SHELLS))
    assert kind is not None
    print(kind(app, {}, "zeroone", "_ZEROONE_COMPLETE").source())


def words_of(command: str, option: str) -> list[str]:
    """Return the words that an option of a command takes; none if it takes anything."""
    found: list[str] = []
    for word in WORDS.get(f"{command} {option}", WORDS.get(option, ())):
        module, colon, name = word.partition(":")
        known = getattr(import_module(module), name) if colon else [word]
        found += known() if callable(known) else known
    return found


def complete(ctx: click.Context, option: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete an option: by its words, or by the files that its type stands for."""
    name = option.name or ""
    takes_new_samples = (ctx.info_name, name) == ("predict", "data")  # no data set by name
    try:
        words = [] if takes_new_samples else words_of(ctx.info_name or "", name)
    except ModuleNotFoundError:  # paper/, which is not in the wheel
        words = []
    found = [CompletionItem(word) for word in words if word.startswith(begun)]
    if not found and name == "data":
        return [CompletionItem(begun, type="file")]
    return found or option.type.shell_complete(ctx, option, begun)
