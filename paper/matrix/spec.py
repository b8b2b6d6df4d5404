"""What a run matrix compares: data x architectures x methods x repetitions, from a TOML file.

data = ["digits", "mnist"]
architectures = ["f3nn:1000-1000"]
methods = ["relu", "ste", "bcd", "ste-fast"]
seeds = 3
noise = [0, 0.1, 0.2]          # perhaps: levels at which the test error is measured as well
images = [0, 7]                # perhaps: test samples whose class probabilities are kept, in noise
paired = true                  # perhaps: repetition k of every method has the seed k

[train]                        # perhaps: options of every method's training
epochs = 10
[rivals]                       # perhaps: options of every rival
smoothing = 0.0
[bcd]                          # perhaps: options of every 0/1 network that BCD trains
keep = 0.9
[initial]                      # perhaps: options of initial processes
batch = 64
[variants.ste-fast]            # perhaps: methods of its own
method = "ste"
learning_rate = 3e-3
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Any

from paper.matrix.methods import METHODS, Method, variant
from paper.matrix.run import SHARED, Cell, check_initial
from zeroone.utils.checks import InputError, count, not_negative, one_of

LISTS = ("data", "architectures", "methods")
NAMED = {
    "hidden": "the architecture",
    "body": "the architecture",
    "activation": "the method",
    "seed": "the seed that comes from the cell",
}


@dataclass(frozen=True)
class Spec:
    """A run matrix."""

    data: tuple[str, ...]
    architectures: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int = 1
    noise: tuple[float, ...] = ()
    images: tuple[int, ...] = ()
    paired: bool = False
    label: str | None = None
    train: dict[str, Any] = field(default_factory=dict)
    rivals: dict[str, Any] = field(default_factory=dict)
    bcd: dict[str, Any] = field(default_factory=dict)
    initial: dict[str, Any] = field(default_factory=dict)
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
        for name, value in content.items():
            _check_entry(name, value)
        for name in LISTS:
            if not content.get(name):
                raise InputError(f"a run matrix needs {name}, a list of names.")
        several = [name for name in (*LISTS, "noise", "images") if name in content]
        lists = {name: tuple(dict.fromkeys(content[name])) for name in several}
        return cls(**content | lists)

    def __post_init__(self) -> None:
        count("seeds", self.seeds)
        for level in self.noise:
            not_negative("every noise level", level)
        for row in self.images:
            count("every test sample of images", row, least=0)
        if self.images and not self.noise:
            raise InputError("images are looked at in noise: give its levels, noise = [...].")
        tables = {"train": self.train, "rivals": self.rivals, "bcd": self.bcd, **self.variants}
        tables["initial"] = self.initial
        for table, options in tables.items():
            _refuse_named(table, options)
        check_initial(self.initial)
        for name in self.methods:
            one_of("method", name, self.known_methods)

    @cached_property
    def known_methods(self) -> dict[str, Method]:
        """Those that everybody has, and the spec's own."""
        return METHODS | {name: variant(name, options) for name, options in self.variants.items()}

    def cells(self, data_dir: Path | None = None) -> list[Cell]:
        """All of them, the first repetition of each first; refuses settings that cannot be.

        The cell of an initial process comes before those on its body.
        """
        for name in ("bcd", "relu", *self.variants):  # also what no row uses
            self._cell(self.data[0], "f3nn", name, 0, data_dir).describe()
        cells = [
            self._cell(data, architecture, name, repetition, data_dir)
            for repetition, data, architecture, name in product(
                range(self.seeds), self.data, self.architectures, self.methods
            )
        ]
        for cell in cells:
            cell.describe()
        return with_bodies(cells)

    def _cell(
        self, data: str, architecture: str, name: str, repetition: int, data_dir: Path | None
    ) -> Cell:
        method = self.known_methods[name]
        options = self.train | (self.rivals if method.rival else self.bcd) | method.options
        if self.paired:
            options = {"seed": repetition} | options
        return Cell(
            data,
            architecture,
            name,
            repetition,
            method.rival,
            options,
            self.initial,
            noise=self.noise,
            images=self.images,
            data_dir=data_dir,
            label=self.label,
        )


def with_bodies(cells: Iterable[Cell]) -> list[Cell]:
    """The cells, each body's before the first one on it."""
    both = [[cell] if cell.below is None else [cell.below, cell] for cell in cells]
    distinct = list(dict.fromkeys(chain.from_iterable(both)))
    if len({cell.path for cell in distinct}) < len(distinct):
        raise InputError(
            f"methods on one body share its {', '.join(SHARED)}: give these in [train] only."
        )
    return distinct


def _check_entry(name: str, value: Any) -> None:
    one_of("entry of a run matrix", name, [f.name for f in fields(Spec)])
    if name in LISTS and not (isinstance(value, list) and all(isinstance(v, str) for v in value)):
        raise InputError(f"a run matrix needs {name}, a list of names.")
    if name in ("noise", "images") and not (
        isinstance(value, list) and all(isinstance(v, int | float) for v in value)
    ):
        example = "levels, such as [0, 0.1]" if name == "noise" else "test samples, such as [0, 7]"
        raise InputError(f"{name} must be a list of {example}.")
    if name == "paired" and not isinstance(value, bool):
        raise InputError("paired must be true or false.")
    if name == "label" and not isinstance(value, str):
        raise InputError("label must be the name of a column.")
    if name in ("train", "rivals", "bcd", "initial", "variants") and not isinstance(value, dict):
        raise InputError(f"{name} must be a table of a run matrix, [{name}].")


def _refuse_named(table: str, options: Any) -> None:
    """What the names of a cell already say must not be said otherwise."""
    for name in options if isinstance(options, dict) else ():
        if name in NAMED:
            raise InputError(f"{name} in [{table}] would contradict {NAMED[name]}: leave it out.")
