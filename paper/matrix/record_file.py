"""The file of a matrix's records, ``records.jsonl``: one line for each time that a run ended.

A line names the run and says how it ended, when, and how long it took. The last line of a run also
holds its ``record``. The whole file is replaced at once, so that a crash loses no finished run.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paper.matrix.run import KEY
from zeroone.utils.checks import InputError, check_file, is_number
from zeroone.utils.records import fits, is_count, maybe
from zeroone.utils.storage import parse_json, replacing

FILE = "records.jsonl"
# The record itself is checked by the run that it belongs to.
FORM = {
    **dict.fromkeys(("data", "architecture", "method"), str),
    "repetition": is_count,
    **dict.fromkeys(("status", "date"), maybe(str)),
    "seconds": maybe(is_number),
    "iterations": maybe([is_number]),
}
Entry = dict[str, Any]


def read_entries(path: Path, say: Callable[[str], None] = lambda _sentence: None) -> list[Entry]:
    """Read the lines of a file, if it exists; ``say`` names lines that are not readable."""
    entries = []
    if not path.exists():
        return []
    try:
        text = check_file(path, "file").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            entry = parse_json(line)
        except ValueError:
            entry = None
        if fits(entry, FORM):
            entries.append(entry)
        else:
            say(f"{path}, line {number} is not a readable record. It does not count.")
    return entries


def add_entry(path: Path, entry: Entry) -> None:
    """Add a line. Earlier lines of the run lose their records; unreadable lines are dropped."""
    entries = read_entries(path)
    for earlier in entries:
        if key_of(earlier) == key_of(entry):
            earlier.pop("record", None)
    lines = [json.dumps(e, separators=(",", ":"), allow_nan=False) for e in [*entries, entry]]
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def key_of(entry: Entry) -> tuple[Any, ...]:
    """The values that name the run of a line, in the order of ``Run.key``."""
    return tuple(entry[name] for name in KEY)


def as_json(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record as JSON can hold it: a value that is not a finite number becomes null."""
    text = json.dumps(record, default=lambda number: number.item())
    content: dict[str, Any] = json.loads(text, parse_constant=lambda _name: None)
    return content
