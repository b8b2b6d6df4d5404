"""The command that makes a shell complete the others."""

import click

from zeroone.cli.group import app
from zeroone.utils.checks import one_of


@app.command()
@click.argument("shell")
def completion(shell: str) -> None:
    """Print what makes a SHELL (bash, zsh or fish) complete commands and options.

    Example: zeroone completion bash > ~/.zeroone-complete.bash, and source that file in ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(one_of("shell", shell, ["bash", "zsh", "fish"]))
    assert kind is not None
    print(kind(app, {}, "zeroone", "_ZEROONE_COMPLETE").source())
