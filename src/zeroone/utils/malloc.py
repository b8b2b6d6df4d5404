"""Settings of the C library's memory allocator."""

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of glibc's mallopt
LARGEST_TRIM, LARGEST_MMAP = 2**31 - 1, 2**25  # the largest values it accepts


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
