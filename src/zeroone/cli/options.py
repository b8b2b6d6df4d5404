"""Commands from signatures: a parameter's annotation, default and docstring become a click option.

Positional parameters of a command's function are arguments, keyword-only ones are options, and
``**settings`` stands for one option per setting of a training. A function is imported when its
command is first used, so that ``zeroone --help`` is fast.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

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
ENTRY = re.compile(r"(\w+(?:, \w+)*)(?: \([^)]*\))?: (.*)")


class SettingOption(click.Option):
    """An option for a setting; help lists it under the heading ``section``."""

    section = "Options"


class LazyCommand(click.Command):
    """A command whose help and options come from the function that runs it.

    Args:
        name: what a user types.
        place: where the function is, as ``module:function``.
        line: the command's line in the list of commands.
    """

    def __init__(self, name: str, place: str, line: str) -> None:
        super().__init__(name, short_help=line)
        self.place = place

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Import the function and read its parameters; click asks for them before all else."""
        function = self._load(ctx)
        if function is not self.callback:
            self.callback, self.help = function, help_of(function)
            self.params = options_of(function)
        return super().get_params(ctx)

    def _load(self, ctx: click.Context) -> Callable[..., None]:
        module, _, name = self.place.partition(":")
        try:
            function: Callable[..., None] = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("paper", "benchmarks"):
                raise
            advice = "clone it and run 'make demo' there first"
            raise InputError(f"{ctx.command_path} needs the repository: {advice}.") from None
        return function

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for the command's own options and one for each kind of settings."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            line = parameter.get_help_record(ctx)
            if line is not None and isinstance(parameter, click.Option):
                title = getattr(parameter, "section", "Options")
                sections.setdefault(title, []).append(line)
        for title, lines in sections.items():
            with formatter.section(title):
                formatter.write_dl(lines)


def help_of(function: Callable[..., Any]) -> str:
    """Return the docstring without its list of arguments."""
    return (inspect.getdoc(function) or "").partition("\nArgs:")[0].strip()


def documented(thing: Any) -> dict[str, str]:
    """Read what a docstring says about each argument, as ``name: text`` or ``a, b: text``."""
    found: dict[str, str] = {}
    names: list[str] = []
    indent = 0
    for line in (inspect.getdoc(thing) or "").splitlines()[1:]:
        depth = len(line) - len(line.lstrip())
        entry = ENTRY.fullmatch(line.strip())
        if entry and (not names or depth <= indent):
            names, indent = entry[1].split(", "), depth
            found |= dict.fromkeys(names, entry[2])
        elif names and depth > indent:
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return {name: _sentence(text) for name, text in found.items()}


def _sentence(text: str) -> str:
    text = text.replace("``", "").strip()
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


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
        more: dict[str, Any] = {"type": kind}
        if parameter.kind is not parameter.KEYWORD_ONLY:
            made.append(click.Argument([name], nargs=-1 if several else 1, required=True, **more))
            continue
        if parameter.default is parameter.empty:
            more["required"] = True
        else:
            more |= {"default": parameter.default, "show_default": True}
        if kind is bool:
            more |= {"is_flag": True, "show_default": False}
        made.append(click.Option(_spelled(name), multiple=several, help=texts.get(name), **more))
    return made


def setting_options() -> Iterator[click.Option]:
    """Make an option for every setting of a training and its solvers.

    An option that is not given is None: presets and the settings themselves know the defaults.
    """
    from zeroone.training.settings import SOLVER_SETTINGS, TrainSettings

    made: dict[str, SettingOption] = {}
    solvers = {f"--solver {name}": settings for name, settings in SOLVER_SETTINGS.items()}
    kinds = {"Settings": TrainSettings} | solvers
    for section, settings in kinds.items():
        hints, texts = get_type_hints(settings), documented(settings)
        for field in fields(settings):
            if field.name in SOLVER_SETTINGS:
                continue
            text = texts.get(field.name, "").replace("None ", "the default ")
            text = f"{text}{_shown_default(field)}"
            if field.name in made:  # a setting of several solvers
                made[field.name].help = f"{made[field.name].help} With {section}: {text}"
                continue
            kind, several = _plain(hints[field.name])
            option = SettingOption(
                _spelled(field.name, flag=kind is bool),
                type=str if several else kind,
                default=None,
                help=text,
            )
            option.section = section
            made[field.name] = option
    yield from made.values()


def _shown_default(field: Field[Any]) -> str:
    value = field.default
    if value is None or value is MISSING:
        return ""
    return f" [default: {','.join(map(str, value)) if isinstance(value, tuple) else value}]"


def _spelled(name: str, *, flag: bool = False) -> list[str]:
    """Write ``--data-dir`` for ``data_dir`` and ``--from`` for ``from_``."""
    word = name.rstrip("_").replace("_", "-")
    return [f"--{word}/--no-{word}" if flag else f"--{word}", name]


def _plain(hint: Any) -> tuple[Any, bool]:
    """Reduce an annotation to click's type and whether there may be several values."""
    if isinstance(hint, type) and issubclass(hint, Path):
        return click.Path(path_type=Path), False
    inner = [kind for kind in get_args(hint) if kind not in (type(None), ...)]
    if getattr(hint, "__origin__", None) is tuple:
        return _plain(inner[0])[0], True
    return _plain(inner[0]) if inner else (hint, False)
