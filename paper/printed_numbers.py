"""The numbers that the paper prints."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any

# The table and column of the paper for what we train.
_COLUMN = {
    ("mnist", "convnet"): ("table1", "mnist"),
    ("fashion-mnist", "convnet"): ("table1", "fashion-mnist"),
    ("cifar10", "resnet18"): ("table1", "cifar10"),
    ("cifar100", "resnet18"): ("table2", "cifar100"),
}


def printed(table: str, column: str, method: str) -> dict[str, float]:
    """Look up a method in a table of the paper, where it may be missing.

    Returns:
        Errors in %, parameters in thousands and FLOPs in millions, by the measure's name.

    """
    content = _numbers()[table]
    return dict(zip(content["measures"], content[column].get(method, ()), strict=False))


def paper_flops(data: str, architecture: str, method: str) -> float | None:
    """Look up the FLOPs, in millions, that the paper prints for such a network, if any.

    They follow no single way of counting (erratum E9), and the paper's CIFAR-100 network has other
    widths than ours: we show them beside our counts and compare them with nothing.
    """
    name = architecture.partition("@")[0] if ":" not in architecture else architecture
    if (data, name) not in _COLUMN:
        return None
    # The paper has one row for both forms of STE.
    return printed(*_COLUMN[data, name], method.removesuffix("-sign")).get("flops")


@cache
def _numbers() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("printed_numbers.toml").read_text("utf-8")
    return tomllib.loads(text)
