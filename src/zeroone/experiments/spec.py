"""What a run matrix compares: data x architectures x methods x repetitions, from a TOML file.

data = ["digits", "mnist"]
architectures = ["f3nn:1000-1000"]
methods = ["relu", "ste", "bcd", "ste-fast"]
seeds = 3
noise = [0, 0.1, 0.2]          # perhaps: levels at which the test error is measured as well

[train]                        # perhaps: options of every method's training
epochs = 10
[rivals]                       # perhaps: options of every rival
smoothing = 0.0
[variants.ste-fast]            # perhaps: methods of its own
method = "ste"
learning_rate = 3e-3
"""

import tomllib
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

from zeroone.checks import InputError, count, not_negative, one_of
from zeroone.experiments.cell import Cell
from zeroone.experiments.methods import METHODS, Method, variant


@dataclass(frozen=True)
class Spec:
    """A run matrix."""

    data: tuple[str, ...]
    architectures: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int = 1
    noise: tuple[float, ...] = ()
    train: dict[str, Any] = field(default_factory=dict)
    rivals: dict[str, Any] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Spec":
        """From a TOML file."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not a TOML file: {error}.") from None
        return cls.from_dict(content)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Spec":
        """From what a TOML file holds."""
        for name in content:
            one_of("entry of a run matrix", name, [f.name for f in fields(cls)])
        for name in ("data", "architectures", "methods"):
            value = content.get(name)
            if (
                not isinstance(value, list)
                or not value
                or not all(isinstance(v, str) for v in value)
            ):
                raise InputError(f"a run matrix needs {name}, a list of names.")
        for name in ("train", "rivals", "variants"):
            if not isinstance(content.get(name, {}), dict):
                raise InputError(f"{name} must be a table of a run matrix, [{name}].")
        if not isinstance(content.get("noise", []), list):
            raise InputError("noise must be a list of levels.")
        lists = {k: tuple(dict.fromkeys(v)) for k, v in content.items() if isinstance(v, list)}
        return cls(**content | lists)

    def __post_init__(self) -> None:
        count("seeds", self.seeds)
        for level in self.noise:
            not_negative("every noise level", level)
        for name in self.methods:
            one_of("method", name, self.known_methods)

    @property
    def known_methods(self) -> dict[str, Method]:
        """Those that everybody has, and the spec's own."""
        return METHODS | {name: variant(name, options) for name, options in self.variants.items()}

    def cells(self, data_dir: Path | None = None) -> list[Cell]:
        """All of them, the first repetition of each first; refuses settings that cannot be."""
        cells = [
            self._cell(data, architecture, name, repetition, data_dir)
            for repetition, data, architecture, name in product(
                range(self.seeds), self.data, self.architectures, self.methods
            )
        ]
        for cell in cells:
            cell.describe()
        return cells

    def _cell(
        self, data: str, architecture: str, name: str, repetition: int, data_dir: Path | None
    ) -> Cell:
        method = self.known_methods[name]
        common = self.train | (self.rivals if method.rival else {})
        options = common | method.options
        return Cell(
            data, architecture, name, repetition, method.rival, options, self.noise, data_dir
        )
