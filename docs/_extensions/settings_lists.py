"""Docstrings list settings as ``name: what it does``, a line each; the site shows lists."""

import re
from typing import Any

from griffe import Extension, Object

ITEM = re.compile(r"^(?P<names>``?\w+``?|\w+(?:, \w+)*): (?P<text>.*)$")


class SettingsLists(Extension):
    """Turn such lines, and what is indented below them, into items of a list."""

    def on_object(self, *, obj: Object, **_kwargs: Any) -> None:
        """Called for every class and function."""
        if obj.docstring is not None:
            obj.docstring.value = as_list(obj.docstring.value)


def as_list(text: str) -> str:
    """The same text with its settings as a Markdown list."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        found = ITEM.match(line)
        if found:
            if not inside:
                lines.append("")
            lines.append(f"- **{found['names'].strip('`')}**: {found['text']}")
            inside = True
        elif inside and line.startswith("    "):
            lines[-1] += " " + line.strip()
        else:
            if inside and line.strip():
                lines.append("")
            lines.append(line)
            inside = False
    return "\n".join(lines)
