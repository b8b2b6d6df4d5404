"""Checks of values: each returns the value or raises ``InputError`` with one clear sentence."""

import math
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from types import ModuleType
from typing import Any


class InputError(ValueError):
    """The user's input cannot be used; the message is one sentence that says why.

    The command line turns it into exit code 2. Any other exception is a bug.
    """


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


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number."""
    try:
        return type(value) is not bool and isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # a whole number beyond all floating point numbers
        return False


def positive(name: str, value: Any) -> float:
    """Require a finite number above 0."""
    if not (is_number(value) and value > 0):
        raise InputError(f"{name} must be a positive number, got {value!r}.")
    return float(value)


def not_negative(name: str, value: Any) -> float:
    """Require a finite number of at least 0."""
    if not (is_number(value) and value >= 0):
        raise InputError(f"{name} must be zero or a positive number, got {value!r}.")
    return float(value)


def share(name: str, value: Any) -> float:
    """Require a number between 0 and 1, both allowed."""
    if not (is_number(value) and 0 <= value <= 1):
        raise InputError(f"{name} must lie between 0 and 1, got {value!r}.")
    return float(value)


def count(name: str, value: Any, *, least: int = 1, most: int = 10**9) -> int:
    """Require a whole number between ``least`` and ``most``."""
    whole = type(value) is not bool and isinstance(value, Integral)
    if not (whole and least <= value <= most):
        limit = f"up to {most}" if whole and value > most else f"of at least {least}"
        raise InputError(f"{name} must be a whole number {limit}, got {value!r}.")
    return int(value)


def byte_count(name: str, value: Any) -> int:
    """Require a number of bytes: a whole number, or one such as '64k' or '1M', 1024-based."""
    found = re.fullmatch(r"(\d+)([kM]?)", str(value).strip())
    if type(value) is bool or found is None or int(found[1]) == 0:
        raise InputError(f"{name} must be a number of bytes such as 65536 or 64k, got {value!r}.")
    return int(found[1]) * {"": 1, "k": 2**10, "M": 2**20}[found[2]]


def one_of(name: str, value: str, allowed: Iterable[str]) -> str:
    """Require one of the allowed words; name the nearest one otherwise."""
    words = list(allowed)
    if value not in words:
        raise InputError(
            f"unknown {name} {value!r}; choose from {', '.join(words)}.{nearest(value, words)}"
        )
    return value


def nearest(value: str, words: Iterable[str]) -> str:
    """Ask whether the user meant the nearest word; an empty string if none is near."""
    near = get_close_matches(str(value), list(words), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def check_file(path: Path, what: str) -> Path:
    """Require a regular file: a pipe keeps its reader waiting, a device never ends."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"there is no {what} {path}.") from None
    except (OSError, ValueError) as error:  # a name may be too long, or hold a NUL
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path}: {reason}.") from None
    if not stat.S_ISREG(mode):
        raise InputError(f"{path} is not a regular file.")
    return path


def first_line(error: BaseException) -> str:
    """Return what an error says first, without the name of torch's file before it."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return re.sub(r"^\[[^]]*\]\s*", "", line).split(". ")[0].rstrip(".")


def printable(text: object) -> str:
    """Escape what a terminal would obey, or could not show: a label may hold anything."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text)
    )


def need_extra(extra: str, module: str) -> ModuleType:
    """Import a module of an optional dependency.

    Raises:
        InputError: the extra is not installed.
    """
    package = module.partition(".")[0]
    try:
        import_module(package)
        return import_module(module)
    except ImportError:
        raise InputError(f"this needs {package}: pip install 'zeroone-nn[{extra}]'.") from None
