"""How the C library deals with memory that was freed."""

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of glibc's mallopt
LARGEST_TRIM, LARGEST_MMAP = 2**31 - 1, 2**25  # what it accepts


def keep_freed_memory() -> None:
    """Keep what a batch freed for the next one, where the C library is glibc.

    It would give large blocks back to the system, which then clears their pages for the next batch:
    on a convolutional network a fifth of the processor's time. A process of our own may choose;
    a library must not, so this is called by commands only.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(MMAP_THRESHOLD, LARGEST_MMAP)
    mallopt(TRIM_THRESHOLD, LARGEST_TRIM)
