"""How the C library hands memory back to the system."""

import ctypes
import platform

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # options of mallopt
LARGEST, LARGEST_BEFORE_2_35 = 2**31 - 1, 2**25


def keep_freed_memory() -> None:
    """Have glibc reuse freed arrays instead of returning them to the system at once.

    It returns arrays of more than 32 MB, such as a layer's bits of a batch of images. Fetching
    memory anew, page by page, takes a tenth of a training of convolutions. Memory between arrays in
    use stays taken, too. This is a process's own choice: commands make it, the library does not.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    # The first call that succeeds ends glibc's own choice of the other threshold.
    if any(libc.mallopt(MMAP_THRESHOLD, size) for size in (LARGEST, LARGEST_BEFORE_2_35)):
        libc.mallopt(TRIM_THRESHOLD, LARGEST)
