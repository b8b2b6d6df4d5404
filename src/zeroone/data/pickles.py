"""CIFAR's python batches, read without running a pickle.

A pickle is a program. This reader knows only the opcodes that a dictionary of byte arrays, lists,
text and numbers needs. It calls nothing that a pickle names and hashes nothing but text, so that
its time and memory are linear in the size of the file.
"""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pickle import UnpicklingError
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.utils.checks import InputError


@dataclass
class _Named:
    """What a pickle names, with the arguments and the state that it gives to it."""

    name: str
    arguments: Any = None
    state: Any = None

    def __post_init__(self) -> None:
        if self.name not in _NAMES:
            raise UnpicklingError(f"it asks for {self.name}")


_BYTES = "_codecs.encode"  # Python 3 writes bytes like this in old protocols
_NAMES = {
    *("numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"),
    *("numpy.ndarray", "numpy.dtype", _BYTES),
}


def _push_tuple(stack: list[Any], items: list[Any]) -> None:
    stack.append(tuple(items))


def _append(stack: list[Any], items: list[Any]) -> None:
    if not isinstance(stack[-1], list):
        raise UnpicklingError("it appends to what is no list")
    stack[-1].extend(items)


def _set_items(stack: list[Any], items: list[Any]) -> None:
    for key, value in zip(items[::2], items[1::2], strict=True):
        stack[-1][_text(key)] = value


def _push_named(stack: list[Any], items: list[Any]) -> None:
    stack.append(_Named(".".join(items)))


def _reduce(stack: list[Any], items: list[Any]) -> None:
    named, arguments = items
    if named.name != _BYTES:
        stack.append(_Named(named.name, arguments))
    elif arguments[1] != "latin1":
        raise UnpicklingError("it uses another encoding than latin1")
    else:
        stack.append(arguments[0].encode("latin1"))


def _build(stack: list[Any], items: list[Any]) -> None:
    stack[-1].state = items[0]


# Opcodes of protocol 2, in which CIFAR is published, and of 4, in which Python 3 writes it again:
# those that push a value, made of their argument; those that remember and recall one; and those
# that take so many values from the stack, None for all above the mark.
_VALUES: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("BININT", "BININT1", "BININT2"), int),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE"), str),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES"), bytes),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), lambda text: text.encode("latin1")),
    **{"NONE": lambda _: None, "NEWTRUE": lambda _: True, "NEWFALSE": lambda _: False},
    **{"EMPTY_TUPLE": lambda _: (), "EMPTY_LIST": lambda _: [], "EMPTY_DICT": lambda _: {}},
    "GLOBAL": lambda name: _Named(name.replace(" ", ".")),
}
_PUTS, _GETS = ("BINPUT", "LONG_BINPUT", "MEMOIZE"), ("BINGET", "LONG_BINGET")
_STEPS: dict[str, tuple[int | None, Callable[[list[Any], list[Any]], None]]] = {
    "TUPLE": (None, _push_tuple),
    "TUPLE1": (1, _push_tuple),
    "TUPLE2": (2, _push_tuple),
    "TUPLE3": (3, _push_tuple),
    "APPEND": (1, _append),
    "APPENDS": (None, _append),
    "SETITEM": (2, _set_items),
    "SETITEMS": (None, _set_items),
    "STACK_GLOBAL": (2, _push_named),
    "REDUCE": (2, _reduce),
    "BUILD": (1, _build),
}
_ADMITTED = {"PROTO", "FRAME", "MARK", "STOP", *_VALUES, *_PUTS, *_GETS, *_STEPS}


def _run(data: bytes) -> Any:
    """Do what the opcodes say, and return what is left on the stack."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[int, Any] = {}
    for opcode, argument, _ in pickletools.genops(data):
        name = opcode.name
        if name not in _ADMITTED:
            raise UnpicklingError(f"it holds the opcode {name}")
        if name in _VALUES:
            stack.append(_VALUES[name](argument))
        elif name in _PUTS:
            memo[len(memo) if argument is None else int(argument)] = stack[-1]
        elif name in _GETS:
            stack.append(memo[int(argument or 0)])
        elif name == "MARK":
            marks.append(len(stack))
        elif name in _STEPS:
            size, step = _STEPS[name]
            first = marks.pop() if size is None else len(stack) - size
            items = stack[first:]
            del stack[first:]
            step(stack, items)
    return stack.pop()


def read_batch(data: bytes, where: str) -> dict[str, Any]:
    """Read a pickled dictionary of byte arrays, lists, text and numbers; refuse anything else."""
    try:
        content = _run(data)
        if not isinstance(content, dict):
            raise UnpicklingError("it holds no dictionary")
        return {key: _array(value) for key, value in content.items()}
    except Exception as error:  # a hostile pickle can fail in any way at all
        reason = str(error)[:200]
        raise InputError(f"{where} is not a CIFAR batch and was not run: {reason}.") from None


def _text(key: Any) -> str:
    if not isinstance(key, str | bytes):
        raise UnpicklingError("it has a key that is no text")
    return key.decode("latin1") if isinstance(key, bytes) else key


def _array(value: Any) -> NDArray[np.uint8] | Any:
    """Make a byte array of what names one; leave other values alone."""
    if not isinstance(value, _Named):
        return value
    _, shape, dtype, is_fortran, raw = value.state
    if _text(dtype.arguments[0]) not in ("u1", "|u1"):
        raise UnpicklingError("it holds an array that is not made of bytes")
    return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if is_fortran else "C")
