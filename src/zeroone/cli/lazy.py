"""Commands that are imported when they are first used, so that ``zeroone --help`` is fast."""

from collections.abc import Callable
from importlib import import_module

import click

from zeroone.cli.options import help_of, options_of
from zeroone.utils.checks import InputError


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
