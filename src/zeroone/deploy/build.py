"""Compile the C kernels (``kernels/``) on demand, or say why there are none.

Kernels need Linux, a C compiler and a processor with AVX2. The first use compiles them into the
user's cache folder. ``ZEROONE_KERNELS=0`` in the environment turns them off.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from zeroone.utils.checks import InputError
from zeroone.utils.storage import make_folder

SWITCH = "ZEROONE_KERNELS"
SOURCES = ("kernels.c", "single.c")
FUNCTIONS = ("can_run", "pays", "workspace_bytes", "add_bytes", "add_bits", "score_one")
# The sources and Python share these: the samples of a block, the units of a tile, and so on.
SAMPLES, UNITS_OF_BYTES, UNITS_OF_BITS, GROUPS = 256, 32, 64, 10
ROWS, UNITS_OF_ROWS = 8, 32
FLAGS = (
    *("-std=gnu11", "-O3", "-mavx2", "-shared", "-fPIC"),
    *(f"-DSAMPLES={SAMPLES}", f"-DUNITS_OF_BYTES={UNITS_OF_BYTES}"),
    *(f"-DUNITS={UNITS_OF_BITS}", f"-DGROUPS={GROUPS}"),
    *(f"-DROWS={ROWS}", f"-DUNITS_OF_ROWS={UNITS_OF_ROWS}"),
)


@dataclass(frozen=True)
class Kernels:
    """The compiled kernels, or the reason why there are none."""

    library: Any = None
    why_not: str = ""

    @property
    def pay(self) -> bool:
        """Whether they beat ONNX Runtime on blocks of samples on this processor."""
        return self.library is not None and bool(self.library.pays())


@lru_cache(maxsize=1)
def kernels() -> Kernels:
    """Load the kernels from the cache folder, or compile them."""
    if os.environ.get(SWITCH) == "0":
        return Kernels(why_not=f"{SWITCH}=0")
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return Kernels(why_not="they are for Linux on x86-64")
    try:
        library = _find()
    except (OSError, subprocess.SubprocessError, InputError, RuntimeError) as error:
        return Kernels(why_not=" ".join(str(error).split()) or type(error).__name__)
    if not library.can_run():
        return Kernels(why_not="the processor has no AVX2")
    return Kernels(library)


def are_there() -> bool:
    """Whether the kernels exist already, so that ``kernels`` takes no time."""
    return bool(kernels.cache_info().currsize) or _are_in_cache()


@lru_cache(maxsize=1)
def _are_in_cache() -> bool:
    return os.environ.get(SWITCH) != "0" and _load(next(_folders()) / _name(_source())) is not None


def _source() -> bytes:
    folder = resources.files(__package__) / "kernels"
    return b"".join((folder / name).read_bytes() for name in SOURCES)


def _name(source: bytes) -> str:
    return f"kernels-{hashlib.sha256(source + ' '.join(FLAGS).encode()).hexdigest()[:16]}.so"


def _find() -> ctypes.CDLL:
    """Load the library of this source, compiled first if need be."""
    source = _source()
    for folder in _folders():
        path = folder / _name(source)
        found = _load(path)
        if found is None and _compile(source, path):
            found = _load(path)
        if found is not None:
            return found
    raise InputError("no C compiler made a library that loads")


def _folders() -> Iterator[Path]:
    """Give the user's own cache folder, then a temporary one."""
    try:
        folder = make_folder(user_cache_path("zeroone"))
        if _is_private(folder):
            yield folder
    except (InputError, OSError, RuntimeError):  # there is no home, or it is read-only
        pass
    with tempfile.TemporaryDirectory() as spare:
        yield Path(spare)


def _is_private(path: Path) -> bool:
    """Whether only this user can have changed it: a library's content is executed."""
    status = path.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _load(path: Path) -> ctypes.CDLL | None:
    if not path.is_file() or not _is_private(path):
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    return library if all(hasattr(library, name) for name in FUNCTIONS) else None


def _compile(source: bytes, path: Path) -> bool:
    """Write the library, all or nothing, and remove those of other versions."""
    for compiler in filter(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")):
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".kernels-") as folder:
            made = Path(folder) / path.name
            command = [compiler, *FLAGS, "-x", "c", "-", "-o", str(made)]
            subprocess.run(command, input=source, check=False, capture_output=True, timeout=120)
            if made.is_file():
                made.chmod(0o700)
                for old in path.parent.glob("kernels-*.so"):
                    old.unlink(missing_ok=True)
                made.replace(path)
                return True
    return False
