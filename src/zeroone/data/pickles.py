"""CIFAR's python batches, read without running a pickle.

A pickle is a program. This reader refuses every opcode that a dictionary of byte arrays, lists,
text and numbers does not need, and answers the few names of numpy with stand-ins that only keep
what they are given.
"""

import io
import pickle
import pickletools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.utils.checks import InputError

# Opcodes of protocol 2, in which CIFAR is published, and of 4, in which Python 3 writes it again.
_OPCODES = """
PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2
BINSTRING SHORT_BINSTRING BINUNICODE SHORT_BINUNICODE BINBYTES SHORT_BINBYTES
EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS
BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD
"""
_ADMITTED = frozenset(_OPCODES.split())


class _StandIn:
    """Keeps the arguments and the state of an array or a dtype, and does nothing with them."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _latin1(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it uses the encoding {encoding!r}")
    return text.encode("latin1")


_NAMES = {
    "numpy.core.multiarray._reconstruct": _StandIn,
    "numpy._core.multiarray._reconstruct": _StandIn,
    "numpy.ndarray": _StandIn,
    "numpy.dtype": _StandIn,
    "_codecs.encode": _latin1,  # Python 3 writes bytes like this in old protocols
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMES[f"{module}.{name}"]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def read_batch(data: bytes, where: str) -> dict[str, Any]:
    """Read a pickled dictionary of byte arrays, lists, text and numbers; refuse anything else."""
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name not in _ADMITTED:
                raise pickle.UnpicklingError(f"it holds the opcode {opcode.name}")
            if opcode.name.endswith("PUT") and int(argument or 0) > len(data):
                raise pickle.UnpicklingError("it asks for more memory than it fills")
        content = _ArraysOnly(io.BytesIO(data), encoding="bytes").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError("it holds no dictionary")
        return {_text(key): _array(value) for key, value in content.items()}
    except Exception as error:  # a hostile pickle can fail in any way at all
        reason = str(error)[:200]
        raise InputError(f"{where} is not a CIFAR batch and was not run: {reason}.") from None


def _text(key: Any) -> str:
    return key.decode("latin1") if isinstance(key, bytes) else str(key)


def _array(value: Any) -> NDArray[np.uint8] | Any:
    """Make a byte array of a stand-in; leave other values alone."""
    if not isinstance(value, _StandIn):
        return value
    _, shape, dtype, is_fortran, raw = value.state
    if _text(dtype.arguments[0]) not in ("u1", "|u1"):
        raise pickle.UnpicklingError("it holds an array that is not made of bytes")
    return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if is_fortran else "C")
