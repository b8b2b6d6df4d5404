"""Pickles that are programs to waste time or memory."""

import time
import tracemalloc
from contextlib import suppress

import pytest

from zeroone.data.pickles import read_batch
from zeroone.utils.checks import InputError


def nested(n):
    """Nest tuples of two equal tuples: to hash or print one takes 2^n steps."""
    return b")q\0" + b"h\0\x86q\0" * n


HOSTILE = {
    "keys": b"}" + nested(1000) + b"Ns.",
    "names": nested(1000) + b"\x8c\x01a\x93.",
    "dtype": b"}U\x01a" + b"cnumpy\nndarray\n)R(K\x01K\x01cnumpy\ndtype\n"
    + nested(1000) + b"\x85R\x89U\x01xtbs.",
    "shape": b"}U\x01a" + b"cnumpy\nndarray\n)R(K\x01" + nested(1000)
    + b"cnumpy\ndtype\nU\x02u1\x85R\x89U\x01xtbs.",
    "a dictionary of itself": b"}q\0h\0h\0s.",
    "a list of itself": b"}U\x01a]q\0h\0as.",
    "the memo": b"}" + b"r\xff\xff\xff\xff" * 1000 + b"j\xff\xff\xff\x7f.",
    "bytes": b"}B\xff\xff\xff\xffa.",
    "text": b"}X\xff\xff\xff\x7fa.",
    "marks": b"}" + b"(" * 10_000 + b"t" * 10_000 + b".",
    "an empty stack": b"\x87.",
    "no mark": b"}e.",
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_pickle_takes_neither_time_nor_memory(case):
    before = time.process_time()
    tracemalloc.start()
    with suppress(InputError):
        assert set(read_batch(b"\x80\x02" + HOSTILE[case], "batch")) == {"a"}
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**23
    assert time.process_time() - before < 2
