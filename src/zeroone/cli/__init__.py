"""The command line: arguments and exit codes. What a command does is in ``zeroone.commands``."""

import errno
import os
import sys
from itertools import pairwise
from pathlib import Path

import click

from zeroone.cli.lazy import Group, LazyCommand
from zeroone.utils.checks import InputError
from zeroone.utils.malloc import keep_freed_memory
from zeroone.version import __version__

__all__ = ["app", "main"]


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def app() -> None:
    """Neural networks with 0/1 activations, trained by block coordinate descent."""


# The function of each command, and its line in the list of commands. Those of paper/ and
# benchmarks/ need the repository.
COMMANDS = {
    "demo": (
        "zeroone.commands.demo:demo",
        "Train on embedded handwritten digits and write a page.",
    ),
    "data get": ("zeroone.commands.data:get", "Bring a data set into the cache."),
    "data list": (
        "zeroone.commands.data:list_",
        "List the data sets, and which of them are there.",
    ),
    "data show": (
        "zeroone.commands.data:show",
        "Count the samples of each class, draw some of them.",
    ),
    "data shard": (
        "zeroone.commands.data:shard",
        "Split a data set into files for several processes.",
    ),
    "train": ("zeroone.commands.train:train", "Train a network and write it with its record."),
    "evaluate": ("zeroone.commands.evaluate:evaluate", "Print the errors and the size of a model."),
    "predict": ("zeroone.commands.predict:predict", "Print the class of each sample."),
    "report": ("zeroone.commands.report.command:report", "Write an HTML page about training runs."),
    "compress": ("zeroone.commands.compress:compress", "Write a smaller model with int8 weights."),
    "export": ("zeroone.commands.export:export", "Write a model as ONNX, C or an HTML page."),
    "matrix": ("paper.commands:matrix", "Compare methods: train every run of a matrix."),
    "reproduce": ("paper.commands:reproduce", "Reproduce a table or figure of the paper."),
    "bench train": ("benchmarks.bench_train:bench_train", "Time an epoch beside STE and ReLU."),
    "bench inference": (
        "benchmarks.bench_inference:bench_inference",
        "Time predictions beside ReLU networks.",
    ),
    "completion": ("zeroone.cli.completion:completion", "Print a completion script for a shell."),
}
GROUPS = {"data": "Fetch, list and look at data sets.", "bench": "Measure speed, as ratios."}

for _name, _help in GROUPS.items():
    app.add_command(Group(_name, help=_help))
for _name, (_place, _line) in COMMANDS.items():
    _group, _, _last = _name.rpartition(" ")
    _parent = app.commands[_group] if _group else app
    assert isinstance(_parent, click.Group)
    _parent.add_command(LazyCommand(_last, _place, _line))


def main() -> None:
    """Run a command: exit 0 on success, 2 on wrong input, 130 when interrupted."""
    # A waiting thread spins briefly, then sleeps: spinning for long costs minutes on a busy
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
    """Say how to continue an interrupted command."""
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
    """Print one line on stderr: click lists choices over several."""
    print(f"zeroone: {' '.join(sentence.split())}", file=sys.stderr)
    return 2
