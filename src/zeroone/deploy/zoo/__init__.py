"""The model zoo: integer networks that come with the package, as ``zeroone.load("zoo/mnist")``.

Each has a card with its data, its error and the commands that made it. ``benchmarks/zoo.py`` writes
both.
"""

import json
import os
from pathlib import Path
from typing import Any

from zeroone.utils.checks import InputError, nearest

FOLDER = Path(__file__).parent
CARDS = FOLDER / "cards.json"


def cards() -> dict[str, dict[str, Any]]:
    """Return the card of each model, by its name without ``zoo/``."""
    found: dict[str, dict[str, Any]] = json.loads(CARDS.read_text(encoding="utf-8"))
    return found


def find(path: Path) -> Path | None:
    """Return the file of ``zoo/NAME``; None for all other paths, and for files of that name."""
    if path.parts[:1] != ("zoo",) or len(path.parts) != 2 or os.path.lexists(path):
        return None
    known, name = cards(), path.name.removesuffix(".safetensors")
    if name not in known:
        raise InputError(
            f"there is no file {path}, and the model zoo has {', '.join(known)}."
            f"{nearest(name, known)}"
        )
    return FOLDER / f"{name}.safetensors"
