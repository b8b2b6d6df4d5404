"""Checks and preparations that commands share."""

from pathlib import Path
from typing import TypeVar

from zeroone.utils.checks import InputError, count
from zeroone.utils.storage import check_writable

Number = TypeVar("Number", int, float)


def check_output(path: Path | None, *inputs: Path | str | None, ending: str | None = None) -> None:
    """Refuse a file that cannot be written, or that is among what the command reads."""
    if path is None:
        return
    if ending is not None and path.suffix != ending:
        raise InputError(f"{path} should be a {ending} file.")
    for given in (Path(given) for given in inputs if given is not None):
        records = (given / "record.json", given.parent / "record.json")
        read = (given, given / "model.safetensors", *records)  # if it is the folder of a run
        if path.resolve() in {file.resolve() for file in read}:
            raise InputError(f"{path} is read by this command: write to another file.")
    check_writable(path)


def numbers(option: str, text: str, wanted: str, kind: type[Number]) -> tuple[Number, ...]:
    """Read numbers that commas separate; ``wanted`` describes them, as 'widths such as 8,8'."""
    try:
        return tuple(kind(number) for number in text.split(","))
    except ValueError:
        raise InputError(f"{option} takes {wanted}, got {text!r}.") from None


def set_threads(threads: int | None) -> None:
    """Set the number of CPU threads; None keeps torch's choice."""
    if threads is not None:
        import torch

        torch.set_num_threads(count("threads", threads, most=1024))
