"""The model zoo: integer networks that come with the package, as ``zeroone.load("zoo/mnist")``.

Each has a card with its data, its error and the commands that made it. ``benchmarks/zoo.py`` writes
both.
"""

import json
from pathlib import Path
from typing import Any

from zeroone.utils.checks import one_of

FOLDER = Path(__file__).parent
CARDS = FOLDER / "cards.json"


def cards() -> dict[str, dict[str, Any]]:
    """Return the card of each model, by its name without ``zoo/``."""
    found: dict[str, dict[str, Any]] = json.loads(CARDS.read_text(encoding="utf-8"))
    return found


def find(path: Path) -> Path | None:
    """Return the file of ``zoo/NAME``; None for all other paths, and for files of that name."""
    if path.parts[:1] != ("zoo",) or len(path.parts) != 2 or path.exists():
        return None
    return FOLDER / f"{one_of('model of the zoo', path.name, cards())}.safetensors"
