"""The command line: argument parsing only. Wrong input ends with one sentence and exit code 2."""

import errno
import os
import sys
from itertools import pairwise
from pathlib import Path

import click

from zeroone.cli import compare, completion, data, learn, models, ship
from zeroone.cli.group import app
from zeroone.utils.checks import InputError
from zeroone.utils.malloc import keep_freed_memory

__all__ = ["app", "compare", "completion", "data", "learn", "main", "models", "ship"]


def main() -> None:
    """Run a command: exit 0 on success, 2 on wrong input, 130 when interrupted."""
    # A waiting thread spins a little, then sleeps: spinning for long costs minutes on a busy
    # machine, sleeping at once a factor of three on an idle one.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    keep_freed_memory()
    try:
        app(standalone_mode=False, prog_name="zeroone")
    except (KeyboardInterrupt, click.Abort):  # Abort is a RuntimeError, too
        print(f"zeroone: interrupted{_hint(sys.argv[1:])}.", file=sys.stderr)
        sys.exit(130)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help() if error.ctx else error.format_message(), file=sys.stderr)
        sys.exit(2)
    except click.ClickException as error:
        sys.exit(_complain(error.format_message()))
    except InputError as error:
        sys.exit(_complain(str(error)))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EPIPE, errno.EIO):
            raise
        sys.exit(_complain(f"cannot write the output: {error.strerror}."))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "can't allocate memory" not in str(error):
            raise
        sys.exit(_complain("there is not enough memory for a network of this size."))
    sys.exit(0)


def _hint(words: list[str]) -> str:
    """How an interrupted command is taken up again."""
    joined = [word.removeprefix("--out=") for word in words if word.startswith("--out=")]
    following = [after for word, after in pairwise(words) if word == "--out"]
    if words[:1] == ["train"] and (following or joined):
        out = Path([*following, *joined][-1])
        kept = any(out.rglob("state.safetensors"))
        return f"; the same command {'with --resume goes on' if kept else 'begins again'}"
    if words[:1] in (["matrix"], ["reproduce"]):
        return "; the same command goes on, without the cells that are finished"
    return "; the same command begins again"


def _complain(sentence: str) -> int:
    """One line on stderr; click lists choices over several."""
    print(f"zeroone: {' '.join(sentence.split())}", file=sys.stderr)
    return 2
