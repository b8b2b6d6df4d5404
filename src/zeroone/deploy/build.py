"""Compile the C kernels (``kernels/``) on demand, or say why there are none.

Kernels need Linux, a C compiler and a processor with AVX2. The first use compiles them into the
user's cache folder, under a name that holds the digest of the library: another content is never
loaded. ``ZEROONE_KERNELS=0`` in the environment turns them off.
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
from zeroone.utils.storage import make_folder, replacing

SWITCH = "ZEROONE_KERNELS"
SOURCES = ("common.c", "bytes.c", "planes.c", "tables.c", "sliced.c", "slicing.c", "network.c")
# The sources and Python share these; common.c says what they are.
ROWS, LANES, SPARE, LEAST_OF_TABLES = 256, 16, 8, 16
AVX512 = 2  # the best level
LEVELS = ("plain C", "AVX2", "AVX-512")  # the instructions that a kernel may use
FLAGS = (
    *("-std=gnu11", "-O3", "-fno-strict-aliasing", "-shared", "-fPIC"),
    *(f"-DROWS={ROWS}", f"-DLANES={LANES}", f"-DSPARE={SPARE}"),
    f"-DLEAST_OF_TABLES={LEAST_OF_TABLES}",
)


@dataclass(frozen=True)
class Kernels:
    """The compiled kernels, or the reason why there are none."""

    library: Any = None
    why_not: str = ""

    @property
    def level(self) -> int:
        """The best of LEVELS that this processor has."""
        return 0 if self.library is None else int(self.library.best_level())


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
    if not library.best_level():
        return Kernels(why_not="the processor has no AVX2")
    return Kernels(library)


def _find() -> ctypes.CDLL:
    """Load the library of this source, compiled first if need be."""
    folder = resources.files(__package__) / "kernels"
    source = b"".join((folder / name).read_bytes() for name in SOURCES)
    for cache in _folders():
        library = _load(cache, source)
        if library is None and _compile(cache, source):
            library = _load(cache, source)
        if library is not None:
            return library
    raise InputError("no C compiler made a library that loads")


def _name(source: bytes, library: bytes | None = None) -> str:
    """Name a library by the digests of its source and of its content; without it, any."""
    made_of = hashlib.sha256(source + " ".join(FLAGS).encode()).hexdigest()[:16]
    return f"kernels-{made_of}-{'*' if library is None else hashlib.sha256(library).hexdigest()}.so"


def _folders() -> Iterator[Path]:
    """Give the user's own cache folder, then a temporary one."""
    try:
        folder = make_folder(user_cache_path("zeroone")) / "kernels"
        if folder.exists() and not _is_private(folder):
            shutil.rmtree(folder)  # what others may have written is of no use
        folder.mkdir(mode=0o700, exist_ok=True)  # whatever the umask lets others do
        if _is_private(folder):
            yield folder
    except (InputError, OSError, RuntimeError):  # there is no home, or it is read-only
        pass
    with tempfile.TemporaryDirectory() as spare:
        yield Path(spare)


def _is_private(folder: Path) -> bool:
    """Whether only this user can have changed its files: a library's content is executed."""
    status = folder.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _load(folder: Path, source: bytes) -> ctypes.CDLL | None:
    """Load the library of a source if it is whole: a damaged one crashes, or scores wrongly."""
    for path in folder.glob(_name(source)):
        try:
            if path.name == _name(source, path.read_bytes()):
                return _declared(str(path))
        except OSError:
            continue
    return None


def _declared(path: str) -> ctypes.CDLL:
    """Open a library; ``leading_class`` keeps Python's lock, which takes less time."""
    library: Any = ctypes.CDLL(path)
    pointer = ctypes.c_void_p
    library.run_network.argtypes = pointer, pointer, ctypes.c_ssize_t, pointer, pointer, pointer
    library.run_network.restype = None
    library.memory_bytes.argtypes = pointer, ctypes.c_int
    library.memory_bytes.restype = ctypes.c_ssize_t
    library.leading_class = ctypes.PyDLL(path).leading_class
    library.leading_class.argtypes = pointer, pointer, pointer
    return library  # type: ignore[no-any-return]


def _compile(folder: Path, source: bytes) -> bool:
    """Write the library, all or nothing, in place of others of this source."""
    for compiler in filter(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")):
        with tempfile.TemporaryDirectory() as made_in:
            made = Path(made_in) / "kernels.so"
            command = [compiler, *FLAGS, "-x", "c", "-", "-o", str(made)]
            subprocess.run(command, input=source, check=False, capture_output=True, timeout=120)
            if made.is_file():
                library = made.read_bytes()
                path = folder / _name(source, library)
                with replacing(path) as temporary:
                    temporary.write_bytes(library)
                for damaged in {*folder.glob(_name(source))} - {path}:
                    damaged.unlink(missing_ok=True)
                return True
    return False
