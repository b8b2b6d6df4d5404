"""Where numbers are: the processor, or a GPU."""

import torch

from zeroone.utils.checks import InputError


def find_device(name: str) -> torch.device:
    """The device of that name, if it is here."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InputError(f"unknown device {name!r}: 'cpu', 'cuda' or 'cuda:1', say.") from None
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(f"there is no device {name!r} here: {why}.") from None
    return device
