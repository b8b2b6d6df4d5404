"""Commands from signatures: a parameter's annotation, default and docstring become a click option.

Positional parameters of a command's function are arguments, keyword-only ones are options, and
``**settings`` stands for one option per setting of a training. A function is imported when its
command is first used, so that ``zeroone --help`` is fast.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import click

from zeroone.utils.checks import InputError

# What these options mean in every command that does not say otherwise.
SHARED = {
    "data": "digits, breast-cancer, mnist, fashion-mnist, cifar10, cifar100, a .npz file with "
    "arrays X and y, a .csv file, or a folder of images by class.",
    "data_dir": "Folder of the data sets (default: $ZEROONE_DATA, else the platform's cache).",
    "label": "The label column of a .csv file (default: the last).",
    "json": "Write the numbers to this file.",
    "threads": "CPU threads (default: all cores; zeroone train: one for small layers).",
    "quiet": "Show no progress.",
}
ENTRY = re.compile(r"^    (\w+): (.+(?:\n {5,}.+)*)", re.MULTILINE)  # of a list of arguments


class Option(click.Option):
    """An option that ``--help`` lists under the heading ``section``."""

    section = "Options"


class LazyCommand(click.Command):
    """A command whose help and options come from the function at ``module:function``."""

    def __init__(self, name: str, place: str, line: str) -> None:
        super().__init__(name, short_help=line)
        self.place = place

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Import the function and read its parameters; click asks for them before all else."""
        module, _, name = self.place.partition(":")
        try:
            function = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("paper", "benchmarks"):
                raise
            advice = "clone it and run 'make demo' there first"
            raise InputError(f"{ctx.command_path} needs the repository: {advice}.") from None
        if function is not self.callback:
            self.callback, self.params = function, options_of(function)
            self.help = (inspect.getdoc(function) or "").partition("\nArgs:")[0].strip()
        return super().get_params(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for the command's own options and one for each kind of settings."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (line := parameter.get_help_record(ctx)):
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(line)
        for title, lines in sections.items():
            with formatter.section(title):
                formatter.write_dl(lines)


def documented(thing: Any) -> dict[str, str]:
    """Read what a docstring says about each argument, as ``name: text``."""
    found = {}
    for name, text in ENTRY.findall(inspect.getdoc(thing) or ""):
        words = " ".join(text.replace("``", "").split())
        found[name] = f"{words[0].upper()}{words[1:].rstrip('.')}."
    return found


def options_of(function: Callable[..., Any]) -> list[click.Parameter]:
    """Make the click parameters of a command from its function."""
    hints, texts = get_type_hints(function), SHARED | documented(function)
    made: list[click.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            made += setting_options()
            continue
        kind, several = _plain(hints[name])
        if name == "data" and kind is str:
            kind = click.Path()  # or a name; shells complete files
        if parameter.kind is not parameter.KEYWORD_ONLY:
            made.append(
                click.Argument([name], nargs=-1 if several else 1, required=True, type=kind)
            )
            continue
        more: dict[str, Any] = {"required": True}
        if parameter.default is not parameter.empty:
            more = {"default": parameter.default, "show_default": kind is not bool}
        more |= {"is_flag": kind is bool, "multiple": several, "help": texts.get(name)}
        made.append(Option(_spelled(name), type=kind, **more))
    return made


def setting_options() -> Iterator[Option]:
    """Make an option for every setting of a training and its solvers.

    An option that is not given is None: presets and the settings themselves know the defaults.
    """
    from zeroone.training.settings import SOLVER_SETTINGS, TrainSettings

    made: dict[str, Option] = {}
    solvers = {f"--solver {name}": settings for name, settings in SOLVER_SETTINGS.items()}
    for section, settings in ({"Settings": TrainSettings} | solvers).items():
        hints, texts = get_type_hints(settings), documented(settings)
        for field in fields(settings):
            if field.name in SOLVER_SETTINGS:
                continue
            text = texts[field.name].replace("None ", "the default ")
            if field.default is not None:
                text += f" [default: {field.default}]"
            if field.name in made:  # a setting of several solvers
                made[field.name].help = f"{made[field.name].help} With {section}: {text}"
                continue
            kind, several = _plain(hints[field.name])
            spelled = _spelled(field.name, flag=kind is bool)
            option = Option(spelled, type=str if several else kind, default=None, help=text)
            option.section = section
            made[field.name] = option
    yield from made.values()


def _spelled(name: str, *, flag: bool = False) -> list[str]:
    """Write ``--data-dir`` for ``data_dir`` and ``--from`` for ``from_``."""
    word = name.rstrip("_").replace("_", "-")
    return [f"--{word}/--no-{word}" if flag else f"--{word}", name]


def _plain(hint: Any) -> tuple[Any, bool]:
    """Reduce an annotation to click's type and whether there may be several values."""
    inner = [kind for kind in get_args(hint) if kind not in (type(None), ...)]
    if inner:
        kind, several = _plain(inner[0])
        return kind, several or get_origin(hint) is tuple
    return (click.Path(path_type=Path) if hint is Path else hint), False
