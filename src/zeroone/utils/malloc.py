"""Memory: settings of the C library's allocator, and what to say when there is not enough."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from zeroone.utils.checks import InputError

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of glibc's mallopt
LARGEST_TRIM, LARGEST_MMAP = 2**31 - 1, 2**25  # the largest values it accepts


class NotEnoughMemoryError(InputError):
    """The data or the network do not fit into memory."""


@contextmanager
def enough_memory() -> Iterator[None]:
    """Raise ``NotEnoughMemoryError`` in place of what numpy and torch raise."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        words = ("can't allocate memory", "out of memory")  # torch's, on the CPU and on a GPU
        if isinstance(error, RuntimeError) and not any(some in str(error) for some in words):
            raise
        raise NotEnoughMemoryError(
            "there is not enough memory for a network of this size."
        ) from None


def keep_freed_memory() -> None:
    """Keep the memory that one batch frees for the next one, if the C library is glibc.

    By default glibc returns large blocks to the system, which clears their pages for the next
    batch: a fifth of the time of a convolutional network. Only commands call this, since a library
    must not change the process of its user.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(MMAP_THRESHOLD, LARGEST_MMAP)
    mallopt(TRIM_THRESHOLD, LARGEST_TRIM)
