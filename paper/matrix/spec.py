"""What a run matrix compares: data x architectures x methods x repetitions, from a TOML file.

data = ["digits", "mnist"]
architectures = ["f3nn:1000-1000"]
methods = ["relu", "ste", "bcd", "ste-fast"]
seeds = 3

All other entries are optional:

noise = [0, 0.1, 0.2]          # levels at which the test error is measured as well
images = [0, 7]                # test samples whose class probabilities are kept, in noise
paired = true                  # repetition k of every method has the seed k
label = "kind"                 # the label column of .csv files

[train]                        # options of training, for every method
epochs = 10
[baselines]                    # options of every baseline
smoothing = 0.0
[bcd]                          # options of every 0/1 network that BCD trains
keep = 0.9
[pretraining]                  # options of the pretraining of backbones
batch = 64
[variants.ste-fast]            # a method of its own
method = "ste"
learning_rate = 3e-3
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from paper.matrix.methods import METHODS, Method, variant
from paper.matrix.run import PRETRAINING_OPTIONS, SHARED, Run
from zeroone.pretraining import PretrainingSettings
from zeroone.utils.checks import InputError, check_file, count, not_negative, one_of

MOST_RUNS = 10**4
LISTS = ("data", "architectures", "methods")
TABLES = ("train", "baselines", "bcd", "pretraining", "variants")
NAMED = {
    "hidden": "the architecture",
    "backbone": "the architecture",
    "activation": "the method",
    "seed": "the seed that comes from the run",
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
    baselines: dict[str, Any] = field(default_factory=dict)
    bcd: dict[str, Any] = field(default_factory=dict)
    pretraining: dict[str, Any] = field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Spec":
        """Read a TOML file."""
        try:
            content = tomllib.loads(check_file(path, "file").read_text(encoding="utf-8"))
        except InputError:
            raise
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}.") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is not a TOML file: {error}.") from None
        return cls.from_dict(content)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Spec":
        """Check and take the content of a TOML file."""
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
        n = self.seeds * len(self.data) * len(self.architectures) * len(self.methods)
        if n > MOST_RUNS:
            raise InputError(f"a run matrix has at most {MOST_RUNS:,} runs, not {n:,}.")
        for level in self.noise:
            not_negative("every noise level", level)
        for row in self.images:
            count("every test sample of images", row, least=0)
        if self.images and not self.noise:
            raise InputError("images are looked at in noise: give its levels, noise = [...].")
        tables = {name: getattr(self, name) for name in TABLES} | self.variants
        for table, options in tables.items():
            for name in NAMED.keys() & (options if isinstance(options, dict) else {}):
                raise InputError(
                    f"{name} in [{table}] would contradict {NAMED[name]}: leave it out."
                )
        for name in self.pretraining:
            one_of("option of pretraining", name, PRETRAINING_OPTIONS)
        PretrainingSettings("small", 1, **self.pretraining)
        for name in self.methods:
            one_of("method", name, self.known_methods)

    @cached_property
    def known_methods(self) -> dict[str, Method]:
        """All methods by name, with the spec's own."""
        return METHODS | {name: variant(name, options) for name, options in self.variants.items()}

    def runs(self, data_dir: Path | None = None) -> list[Run]:
        """List all runs, repetition by repetition, and each backbone's before those on it.

        Raises:
            InputError: Settings are not valid.

        """
        for name in ("bcd", "relu", *self.variants):  # check also what no row uses
            self._run(0, self.data[0], "f3nn", name, data_dir).describe()
        names = product(range(self.seeds), self.data, self.architectures, self.methods)
        runs = [self._run(*each, data_dir) for each in names]
        for run in runs:
            run.describe()
        return with_backbones(runs)

    def _run(
        self, repetition: int, data: str, architecture: str, name: str, data_dir: Path | None
    ) -> Run:
        method = self.known_methods[name]
        options = self.train | (self.baselines if method.baseline else self.bcd) | method.options
        if self.paired:
            options = {"seed": repetition} | options
        return Run(
            data,
            architecture,
            name,
            repetition,
            method.baseline,
            options,
            self.pretraining,
            noise=self.noise,
            images=self.images,
            data_dir=data_dir,
            label=self.label,
        )


def with_backbones(runs: Iterable[Run]) -> list[Run]:
    """Put the run of each backbone before the first one on it."""
    distinct: dict[Run, None] = {}
    for run in runs:
        if run.backbone_run is not None:
            distinct.setdefault(run.backbone_run)
        distinct.setdefault(run)
    if len({tuple(run.key.values()) for run in distinct}) < len(distinct):
        raise InputError(
            f"methods on one backbone share its {', '.join(SHARED)}: give these in [train] only."
        )
    return list(distinct)


def _check_entry(name: str, value: Any) -> None:
    """Refuse an entry of a TOML file that has an unknown name or the wrong type."""
    one_of("entry of a run matrix", name, [f.name for f in fields(Spec)])
    if name in LISTS and not _is_list(value, str):
        raise InputError(f"a run matrix needs {name}, a list of names.")
    if name in ("noise", "images") and not _is_list(value, int | float):
        example = "levels, such as [0, 0.1]" if name == "noise" else "test samples, such as [0, 7]"
        raise InputError(f"{name} must be a list of {example}.")
    if name == "paired" and not isinstance(value, bool):
        raise InputError("paired must be true or false.")
    if name == "label" and not isinstance(value, str):
        raise InputError("label must be the name of a column.")
    if name in TABLES and not isinstance(value, dict):
        raise InputError(f"{name} must be a table of a run matrix, [{name}].")
    named = [value] if name == "label" else value if name in (*LISTS, "variants") else ()
    for word in named:
        if not word.isprintable():
            raise InputError(f"{word!r} in {name} of a run matrix cannot be printed.")


def _is_list(value: Any, kind: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)
