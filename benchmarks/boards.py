"""Networks in C on a microcontroller that QEMU imitates: see examples/microcontroller."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PROJECT = Path(__file__).parents[1] / "examples" / "microcontroller"
PROGRAMS = ("make", "arm-none-eabi-gcc", "qemu-system-arm")
CPUS = ("cortex-m3", "cortex-m4")


@dataclass(frozen=True)
class Answers:
    """What a board says, and what the network takes on it."""

    labels: list[str]
    scores: NDArray[np.int32]
    flash: int  # bytes of the network's code, constants and labels
    ram: int  # bytes of its variables
    stack: int  # bytes that a prediction takes of the stack
    instructions: int  # that a prediction executes, on average

    @property
    def sizes(self) -> dict[str, int]:
        names = ("flash", "ram", "stack", "instructions")
        return {name: getattr(self, name) for name in names}


def why_not() -> str | None:
    """Say what is missing here."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def run_on_board(
    folder: Path, X: NDArray[Any], cpu: str = CPUS[-1], optimise: str = "-Os"
) -> Answers:
    """Build network.c of the folder for a processor and classify the rows of X."""
    np.ascontiguousarray(X).tofile(folder / "samples.bin")
    choices = {"FROM": folder, "CPU": cpu, "OPTIMISE": optimise}
    choices["OUT"] = folder / f"{cpu}{optimise}"
    words = [f"{name}={value}" for name, value in choices.items()]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "-s", "-C", str(PROJECT), *words, "run"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{cpu} {optimise}: {done.stderr}")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    found = dict(re.findall(r"^(stack|instructions) (\d+)", done.stderr, re.MULTILINE))
    sizes = re.search(r"^\s*(\d+)\s+(\d+)\s+(\d+).*network\.o$", done.stderr, re.MULTILINE)
    assert sizes is not None, done.stderr
    text, data, bss = map(int, sizes.groups())
    return Answers(
        labels=[row[0] for row in rows],
        scores=np.array([row[1:] for row in rows], dtype=np.int32),
        flash=text + data,
        ram=data + bss,
        stack=int(found["stack"]),
        instructions=int(found["instructions"]),
    )
