"""The numbers that the paper prints, to stand beside ours."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any

# Of what we train, the column that the paper prints; STE in its other form stands for the same row.
_COLUMN = {
    ("mnist", "convnet"): ("table1", "mnist"),
    ("fashion-mnist", "convnet"): ("table1", "fashion-mnist"),
    ("cifar10", "resnet18"): ("table1", "cifar10"),
    ("cifar100", "resnet18"): ("table2", "cifar100"),
}


def printed(table: str, column: str, method: str) -> dict[str, float]:
    """What a table of the paper says of a method: errors in %, parameters in thousands, FLOPs in M.

    Nothing, if it does not say anything.
    """
    content = _numbers()[table]
    return dict(zip(content["measures"], content[column].get(method, ()), strict=False))


def paper_flops(data: str, architecture: str, method: str) -> float | None:
    """In millions, if the paper prints some for such a network.

    They follow no single way of counting (erratum E9), and the paper's CIFAR-100 network has other
    widths than ours: they stand beside our counts and are compared with nothing.
    """
    name = architecture.partition("@")[0] if ":" not in architecture else architecture
    if (data, name) not in _COLUMN:
        return None
    return printed(*_COLUMN[data, name], method.removesuffix("-sign")).get("flops")


@cache
def _numbers() -> dict[str, Any]:
    return tomllib.loads(
        resources.files(__package__).joinpath("printed_numbers.toml").read_text("utf-8")
    )
