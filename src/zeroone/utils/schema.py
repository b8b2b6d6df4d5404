"""Schemas: what a file that anyone may have changed must hold, stated as data."""

import json
from dataclasses import dataclass
from typing import Any

from zeroone.utils.checks import is_number

DEEPEST = 50  # levels of JSON; what is written here has fewer


@dataclass(frozen=True)
class Maybe:
    """The form of an entry that may also be None or missing."""

    form: Any


def find_fault(value: Any, form: Any, place: str = "") -> str | None:
    """Return the place of the first entry that does not have its form, None if all have it.

    Args:
        value: what was read.
        form: a type; a function that accepts a value; ``[form]`` for a list of any length;
            ``{name: form}`` for a dict with at least these entries, where ``...`` stands for all
            others; or ``Maybe(form)``.
        place: where the value is, such as ``history.3``.
    """
    if isinstance(form, Maybe):
        return None if value is None else find_fault(value, form.form, place)
    if isinstance(form, dict | list):
        return _fault_inside(value, form, place) if isinstance(value, type(form)) else place
    if isinstance(form, type):
        fits = isinstance(value, form) and (form is bool or type(value) is not bool)
    else:
        fits = form(value)
    return None if fits else place


def _fault_inside(value: Any, form: Any, place: str) -> str | None:
    """Find the first fault among the entries of a list or dict."""
    named = dict(enumerate(value)) if isinstance(value, list) else value
    forms = {...: form[0]} if isinstance(form, list) else form
    for name in dict.fromkeys((*forms, *named) if ... in forms else forms):
        wanted, where = forms.get(name, forms.get(...)), f"{place}.{name}".lstrip(".")
        if name is ... or (name not in named and isinstance(wanted, Maybe)):
            continue
        fault = find_fault(named[name], wanted, where) if name in named else where
        if fault is not None:
            return fault
    return None


def nothing(_value: Any) -> bool:
    """Refuse every value."""
    return False


def is_share(value: Any) -> bool:
    """Tell whether a value is a number between 0 and 1."""
    return is_number(value) and 0 <= value <= 1


def is_error(value: Any) -> bool:
    """Tell whether a value is an error: of numbers, 1 - R^2, it may exceed 1."""
    return is_number(value) and value >= 0


def is_count(value: Any) -> bool:
    """Tell whether a value is a whole number that counts something."""
    return type(value) is int and 0 <= value <= 10**15


def parse_json(text: str) -> Any:
    """Parse JSON that is not nested too deeply to work with.

    Raises:
        ValueError: it is, or the text is no JSON.
    """
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [content]
    for _ in range(DEEPEST):
        nested = [item for item in level if isinstance(item, dict | list)]
        level = [x for item in nested for x in (item.values() if isinstance(item, dict) else item)]
    if level:
        raise ValueError("nested too deeply")
    return content
