"""Protocols: the run matrices behind the paper's tables and figures, each a small TOML file.

title = "MNIST, batches of 256"
paper = ["table1", "mnist-256"]     # perhaps: whose printed numbers stand beside ours
caveat = "..."                      # perhaps: what a reader of a verdict on it has to know
[differs]                           # why a measure differs from the printed one
error = "..."
[matrix]                            # a run matrix, see paper.matrix.spec
[quick]                             # what of it is otherwise with --quick: minutes, no download
"""

import tomllib
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from paper.matrix.spec import Spec

FOLDER = resources.files(__package__) / "protocols"
COMMON = "common"
SIZES = ("units", "papers_units", "parameters", "papers_parameters")
QUICK_SIZES = dict.fromkeys(SIZES, "a tiny network in place of the paper's")


@dataclass(frozen=True)
class Protocol:
    """A run matrix and what it is compared with."""

    name: str
    title: str
    spec: Spec
    paper: tuple[str, str] | None
    differs: dict[str, str]
    caveat: str = ""

    @classmethod
    def read(cls, name: str, *, quick: bool = False, seeds: int | None = None) -> "Protocol":
        """From its file; ``seeds`` in place of the file's number of repetitions."""
        content = _merge(_load(COMMON), _load(name))
        matrix = content["matrix"]
        if quick:
            matrix = _merge(matrix, content["quick"])
        # Of the variants that are there for all, only those that this one has rows of.
        variants = {k: v for k, v in matrix["variants"].items() if k in matrix["methods"]}
        spec = Spec.from_dict(matrix | {"variants": variants})
        if seeds is not None:
            spec = replace(spec, seeds=seeds)
        paper = content.get("paper")
        title = content["title"]
        if quick:
            title = f"{spec.data[0]} in place of {title}"
        caveat = "" if quick else content.get("caveat", "")
        differs = content["differs"] | (QUICK_SIZES if quick else {})
        return cls(name, title, spec, tuple(paper) if paper else None, differs, caveat)


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables entry by entry, everything else as the one above has it."""
    merged = below | above
    for name in below.keys() & above.keys():
        if isinstance(below[name], dict) and isinstance(above[name], dict):
            merged[name] = _merge(below[name], above[name])
    return merged
