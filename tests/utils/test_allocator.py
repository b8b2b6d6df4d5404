"""Freed memory stays with the process."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from zeroone.utils.allocator import keep_freed_memory

{call}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for k in range(3):
    before = faults()
    some = np.ones(2**26, np.uint8)
    del some
print(faults() - before)
"""


def before_2_35():
    name, version = platform.libc_ver()
    return name != "glibc" or tuple(map(int, version.split(".")[:2])) < (2, 35)


@pytest.mark.skipif(before_2_35(), reason="the C library returns arrays of more than 32 MB")
def test_freed_arrays_are_used_again():
    """64 MB are up to 16384 pages."""
    pages = {}
    for call in ("", "keep_freed_memory()"):
        code = [sys.executable, "-c", FAULTS.format(call=call)]
        pages[call] = int(subprocess.run(code, capture_output=True, check=True, text=True).stdout)
    assert pages["keep_freed_memory()"] < 10 < pages[""]
