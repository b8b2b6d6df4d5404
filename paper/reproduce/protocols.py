"""Protocols: the run matrices behind the paper's tables and figures, each a small TOML file.

title = "MNIST, batches of 256"
paper = ["table1", "mnist-256"]     # optional: the printed numbers to compare with
caveat = "..."                      # optional: what a reader of a verdict on it has to know
[differs]                           # why a measure differs from the printed one
error = "..."
[matrix]                            # a run matrix, see paper.matrix.spec
[quick]                             # what --quick changes in it: minutes, no download
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
        """Read a protocol's file; ``seeds`` replaces its number of repetitions."""
        content = _merge(_load(COMMON), _load(name))
        matrix, title, caveat = content["matrix"], content["title"], content.get("caveat", "")
        differs = content["differs"]
        if quick:
            matrix = _merge(matrix, content["quick"])
            title, caveat = f"{matrix['data'][0]} in place of {title}", ""
            differs |= QUICK_SIZES
        # The common file has variants that this protocol may not use.
        variants = {k: v for k, v in matrix["variants"].items() if k in matrix["methods"]}
        spec = Spec.from_dict(matrix | {"variants": variants})
        if seeds is not None:
            spec = replace(spec, seeds=seeds)
        paper = tuple(content["paper"]) if "paper" in content else None
        return cls(name, title, spec, paper, differs, caveat)


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge tables entry by entry; of everything else, take the one above."""
    merged = below | above
    for name in below.keys() & above.keys():
        if isinstance(below[name], dict) and isinstance(above[name], dict):
            merged[name] = _merge(below[name], above[name])
    return merged
