"""The devices that torch can compute on."""

import torch

from zeroone.utils.checks import InputError


def find_device(name: str) -> torch.device:
    """Return the device of that name, after trying it."""
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
