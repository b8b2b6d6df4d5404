"""The devices and threads that torch can compute on."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from zeroone.utils.checks import InputError, count, first_line


def find_device(name: str) -> torch.device:
    """Return the device of that name, after trying it."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InputError(f"unknown device {name!r}: 'cpu', 'cuda' or 'cuda:1', say.") from None
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"there is no device {name!r} here: {first_line(error)}.") from None
    return device


@contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Have torch use so many CPU threads for a while; None keeps its choice."""
    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(count("threads", threads, most=1024))
    try:
        yield
    finally:
        if threads is not None:
            torch.set_num_threads(before)
