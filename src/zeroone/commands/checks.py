"""Checks and preparations that commands share."""

from pathlib import Path
from typing import TypeVar

from zeroone.utils.checks import InputError, count
from zeroone.utils.storage import check_writable

Number = TypeVar("Number", int, float)


def check_output(path: Path | None, *inputs: Path | str | None, ending: str | None = None) -> None:
    """Refuse a file that cannot be written.

    Args:
        path: the file; None passes.
        inputs: files, run folders and data that the command reads, which it must not overwrite.
        ending: the only file name ending that is allowed.
    """
    if path is None:
        return
    if ending is not None and path.suffix != ending:
        raise InputError(f"{path} should be a {ending} file.")
    taken = {file.resolve() for given in inputs if given is not None for file in _files(given)}
    if path.resolve() in taken:
        raise InputError(f"{path} is read by this command: write to another file.")
    check_writable(path)


def _files(given: Path | str) -> list[Path]:
    """List the files that a command may read: a file itself, or the files of a run's folder."""
    path = Path(given)
    return [path, path / "model.safetensors", path / "record.json", path.parent / "record.json"]


def numbers(option: str, text: str, wanted: str, kind: type[Number]) -> tuple[Number, ...]:
    """Read numbers that commas separate; ``wanted`` describes them, such as 'widths such as 8,8'.

    Raises:
        InputError: a part is not a number.
    """
    try:
        return tuple(kind(number) for number in text.split(","))
    except ValueError:
        raise InputError(f"{option} takes {wanted}, got {text!r}.") from None


def set_threads(threads: int | None) -> None:
    """Set the number of CPU threads; None keeps torch's choice."""
    if threads is not None:
        import torch

        torch.set_num_threads(count("threads", threads, most=1024))
