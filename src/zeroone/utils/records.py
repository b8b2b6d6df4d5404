"""A run's record as JSON: all that is needed to trust its numbers or to reproduce them."""

import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch

from zeroone.utils.checks import InputError, is_number
from zeroone.utils.storage import parse_json, write_json
from zeroone.version import __version__

SCHEMA = 1


def fits(value: Any, form: Any) -> bool:
    """Tell whether a value that was read has its form.

    A form is a type; a function that accepts a value; ``[form]`` for a list of any length; or
    ``{name: form}`` for a dict with at least these entries, where a missing one counts as None.
    """
    if isinstance(form, dict):
        return isinstance(value, dict) and all(fits(value.get(k), form[k]) for k in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(item, form[0]) for item in value)
    return bool(isinstance(value, form) if isinstance(form, type) else form(value))


def maybe(form: Any) -> Callable[[Any], bool]:
    """Return the form of an entry that may also be None or missing."""
    return lambda value: value is None or fits(value, form)


def is_error(value: Any) -> bool:
    """Tell whether a value is an error: of numbers, 1 - R^2, it may exceed 1."""
    return is_number(value) and value >= 0


def is_count(value: Any) -> bool:
    """Tell whether a value is a whole number that counts something."""
    return type(value) is int and 0 <= value <= 10**15


# What the record of a training holds at least; commands show it.
NUMBER = maybe(is_number)
ERRORS = {f"{part}_error": maybe(is_error) for part in ("train", "validation", "test")}
RESULT = ERRORS | {
    "active_units": [is_count],
    "parameters": is_count,
    "operations": {"macs": is_count, "additions": is_count},
    "seconds": is_number,
}
PRETRAINING = {"settings": dict, "seed": is_count, "n_iter": is_count, "result": RESULT}
ENTRY = ERRORS | {
    "iteration": is_count,
    **dict.fromkeys(("loss", "F", "sparsity", "ridge", "coupling", "activation"), NUMBER),
    "active_units": maybe([is_count]),
    "flipped": maybe([NUMBER]),
}
TRAINING = PRETRAINING | {
    "machine": dict,
    "status": str,
    "reason": str,
    "data": {"name": maybe(str), "samples": dict, "sha256": maybe(dict)},
    "settings": {"validation": NUMBER},
    "plan": maybe(dict),
    "initial": maybe(PRETRAINING),
    "history": [ENTRY],
}


def new_record(kind: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """Begin a record; callers add what they measure under further keys."""
    return {
        "schema": SCHEMA,
        "kind": kind,
        "package": __version__,
        "commit": commit(),
        "code": source(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "seed": seed,
        "settings": settings,
    }


def write_record(path: Path, record: dict[str, Any]) -> Path:
    """Write a record, all or nothing; NaN and infinity become null."""
    text = json.dumps(record, default=lambda number: number.item())  # of numpy or torch
    return write_json(path, json.loads(text, parse_constant=lambda _: None))


def read_record(path: Path) -> dict[str, Any]:
    """Read the record of a training, which anyone may have changed since it was written.

    Raises:
        InputError: it lacks an entry that is needed, or has one that cannot be.
    """
    try:
        record: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"{path} is not a readable record.") from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise InputError(f"{path} is not a record of this version of zeroone.")
    if not (fits(record, TRAINING) and record["history"]):
        raise InputError(f"{path} is not the whole record of a training run.")
    return record


def machine() -> dict[str, Any]:
    """Describe the machine and the versions that numbers depend on."""
    return {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def commit() -> str | None:
    """Name the source tree's commit, with '+' if files differ; None outside a checkout."""
    here = Path(__file__).parents[1]  # the package
    if not _git(here, "log", "-1", "--format=%H", "--", "."):  # in a checkout of something else
        return None
    changed = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return _git(here, "rev-parse", "HEAD") + ("+" if changed else "")


@cache
def source() -> str:
    """Return a fingerprint of the package's own files, which other files do not change."""
    here, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(path for path in here.rglob("*") if path.suffix in (".py", ".c", ".h")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(here).as_posix()} {len(content)} ".encode() + content)
    return digest.hexdigest()


@cache  # the code that this process has loaded does not change with the files
def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _processor() -> str:
    try:
        known = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        known = ""
    found = re.search("^model name.*: (.*)$", known, re.MULTILINE)
    return found[1] if found else platform.processor()
