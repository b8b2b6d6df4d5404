"""The command line: arguments and exit codes. What a command does is in ``zeroone.commands``."""

import errno
import io
import os
import sys

import click

from zeroone.cli.options import LazyCommand
from zeroone.utils.allocator import keep_freed_memory
from zeroone.utils.checks import InputError, enough_memory, printable
from zeroone.version import __version__

__all__ = ["app", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def app() -> None:
    """Neural networks with 0/1 activations, trained by block coordinate descent."""


# The line of each command in the list of commands.
COMMANDS = {
    "demo": "Train on embedded handwritten digits and write a page.",
    "data get": "Bring a data set into the cache.",
    "data list": "List the data sets, and which of them are there.",
    "data show": "Count the samples of each class, and draw some of them.",
    "data shard": "Split a data set into files for several processes.",
    "train": "Train a network and write it with its record.",
    "evaluate": "Print the errors and the size of a model.",
    "predict": "Print the class of each sample.",
    "report": "Write an HTML page about training runs.",
    "compress": "Write a smaller model with int8 weights.",
    "export": "Write a model as ONNX, C or an HTML page.",
    "matrix": "Compare methods: train every run of a matrix.",
    "reproduce": "Reproduce a table or figure of the paper.",
    "bench train": "Time an epoch beside STE and ReLU.",
    "bench inference": "Time predictions beside ReLU networks.",
    "bench pareto": "Compare errors, sizes and times with int8 ReLU.",
}
# Their functions, where these are not zeroone.commands.NAME:NAME or zeroone.commands.GROUP:NAME.
# Those of paper/ and benchmarks/ need the repository.
PLACES = {
    "data list": "zeroone.commands.data:list_",
    "matrix": "paper.commands:matrix",
    "reproduce": "paper.commands:reproduce",
    "bench train": "benchmarks.bench_train:bench_train",
    "bench inference": "benchmarks.bench_inference:bench_inference",
    "bench pareto": "benchmarks.pareto:bench_pareto",
}
CONTINUE = {  # an interrupted command, by its name
    "train": "the same command with --resume, without --overwrite, goes on",
    "matrix": "the same command goes on, without the runs that are finished",
    "reproduce": "the same command goes on, without the runs that are finished",
}
OUTPUT_FAILS = (errno.ENOSPC, errno.EPIPE, errno.EIO)
groups = {
    "": app,
    "data": click.Group("data", help="Fetch, list and look at data sets."),
    "bench": click.Group("bench", help="Measure speed, as ratios."),
}
for words, line in COMMANDS.items():
    group, _, name = words.rpartition(" ")
    place = PLACES.get(words, f"zeroone.commands.{group or name}:{name}")
    groups[group].add_command(LazyCommand(name, place, line))
for name in ("data", "bench"):
    app.add_command(groups[name])


def main() -> None:
    """Run a command: exit 0 on success, 2 on wrong input, 130 when interrupted."""
    # A waiting thread spins briefly, then sleeps: spinning for long costs minutes on a busy
    # machine, sleeping at once a factor of three on an idle one.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    keep_freed_memory()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a label may have letters that it cannot print
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with enough_memory():
            app(standalone_mode=False, prog_name="zeroone")
    except (KeyboardInterrupt, click.Abort):  # Abort is a RuntimeError, too
        how = CONTINUE.get("".join(sys.argv[1:2]), "the same command begins again")
        print(f"zeroone: interrupted; {how}.", file=sys.stderr)
        sys.exit(130)
    except click.exceptions.NoArgsIsHelpError as error:  # its message is the help
        print(error.format_message(), file=sys.stderr)
        sys.exit(2)
    except click.ClickException as error:
        sys.exit(_complain(error.format_message()))
    except InputError as error:
        sys.exit(_complain(str(error)))
    except OSError as error:
        if error.filename is None and error.errno not in OUTPUT_FAILS:
            raise
        what = "write the output" if error.filename is None else f"use {error.filename}"
        sys.exit(_complain(f"cannot {what}: {error.strerror}."))
    sys.exit(0)


def _complain(sentence: str) -> int:
    """Print one line on stderr: click lists choices over several."""
    print(f"zeroone: {printable(' '.join(sentence.split()))}", file=sys.stderr)
    return 2
