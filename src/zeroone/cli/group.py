"""The command that holds all others."""

import click

from zeroone.utils.checks import one_of
from zeroone.version import __version__


class Commands(click.Group):
    """Names the nearest command if there is none of a name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, or a refusal that helps."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            one_of("command", args[0], self.list_commands(ctx))
            raise


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def app() -> None:
    """Neural networks with 0/1 activations, trained by block coordinate descent."""
