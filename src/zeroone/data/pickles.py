"""CIFAR's python layout without running a pickle: arrays, lists, text and numbers only.

A pickle is a program. This reader lets it name three things of numpy and answers each with a
stand-in of ours that only keeps what it is given; any other name ends the reading.
"""

import io
import math
import pickle
import pickletools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.utils.checks import InputError


class _Dtype:
    """Stands in for numpy.dtype: keeps its code."""

    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code.decode() if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Byte order and the like: nothing that a byte array needs."""


class _Array:
    """Stands in for numpy.ndarray: keeps shape, dtype and bytes."""

    def __init__(self) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r}")
    return text.encode("latin1")


_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _latin1,  # how Python 3 writes bytes in old protocols
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def read_batch(data: bytes, where: str) -> dict[str, Any]:
    """A pickled dictionary of byte arrays and plain values; its keys as text."""
    try:
        _scan(data)
        content = _ArraysOnly(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a hostile pickle can fail in any way at all
        reason = str(error)[:200]
        raise InputError(f"{where} is not a CIFAR batch and was not run: {reason}.") from None
    if not isinstance(content, dict):
        raise InputError(f"{where} is not a CIFAR batch: it holds no dictionary.")
    return {_text(key): _plain(value, where) for key, value in content.items()}


def _scan(data: bytes) -> None:
    """Refuse, before anything is built, what makes a short pickle take much memory or time."""
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name in ("PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4"):
            raise pickle.UnpicklingError("it asks for an outside object")
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > len(data):
            raise pickle.UnpicklingError("it asks for more memory than it fills")


def _text(key: Any) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _plain(value: Any, where: str) -> Any:
    return _to_numpy(value, where) if isinstance(value, _Array) else value


def _to_numpy(array: _Array, where: str) -> NDArray[np.uint8]:
    try:
        _, shape, dtype, fortran, raw = array.state
        sizes = tuple(int(size) for size in shape)
        if dtype.code not in ("u1", "|u1") or math.prod(sizes) != len(raw) or min(sizes) < 0:
            raise ValueError
        data = np.frombuffer(raw, dtype=np.uint8)
        return data.reshape(sizes[::-1]).T if fortran else data.reshape(sizes)
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise InputError(f"{where} holds an array that is not made of bytes.") from None
