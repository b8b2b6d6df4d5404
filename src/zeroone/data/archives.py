"""Files found by name, in a folder or in a tar archive that is read without unpacking it.

No file is ever written under a name that an archive chose, and no file or archive takes more memory
than the data set can have.
"""

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from zeroone.utils.checks import InputError, check_file

SLACK = 16 * 2**20  # bytes that an archive may hold besides the data: a readme, names of labels
ENDINGS = (".tar", ".tgz", ".tar.gz", ".tar.xz", ".txz", ".tar.bz2")
OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ": lzma.open, b"BZh": bz2.open}
DAMAGED = (tarfile.TarError, ValueError, OverflowError, EOFError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class Files:
    """The files of one folder or archive, by their bare names."""

    source: str  # as messages name it
    found: dict[str, Path | memoryview]

    @classmethod
    def of_folder(cls, folder: Path) -> "Files":
        """Find the files of a folder, without those of its sub-folders."""
        return cls(str(folder), {path.name: path for path in folder.iterdir() if path.is_file()})

    @classmethod
    def of_archive(cls, path: Path, limit: int) -> "Files":
        """Read the regular files of a tar archive, compressed or not, whatever its ending says.

        ``limit`` is the number of bytes that the data set can have.
        """
        with check_file(path, "archive").open("rb") as file:
            magic = file.read(6)
        opener = next((OPENERS[start] for start in OPENERS if magic.startswith(start)), open)
        found: dict[str, Path | memoryview] = {}
        try:
            with opener(path, "rb") as stream:
                content = stream.read(limit + SLACK + 1)
            _refuse_more(content, limit + SLACK, str(path))
            # As a stream: else a member of negative size sends the reader back for ever.
            with tarfile.open(fileobj=io.BytesIO(content), mode="r|") as archive:
                for member in archive:
                    end = member.offset_data + member.size
                    if end > len(content):  # to skip what is not there takes for ever
                        raise tarfile.ReadError("a file in it is cut off")
                    if member.isreg() and not member.issparse():
                        data = memoryview(content)[member.offset_data : end]
                        found.setdefault(PurePosixPath(member.name).name, data)
        except InputError:
            raise
        except (*DAMAGED, OSError) as error:
            raise InputError(
                f"{path} is not a whole tar archive ({error}): get it again."
            ) from None
        return cls(str(path), found)

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def where(self, name: str) -> str:
        """Name a file in a message."""
        return f"{name} in {self.source}"

    def read(self, name: str, limit: int) -> bytes:
        """Read a whole file of at most ``limit`` bytes; unpack it if its name ends with .gz."""
        found = self.found[name]
        try:
            with found.open("rb") if isinstance(found, Path) else io.BytesIO(found) as file:
                content: Any = gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
                data: bytes = content.read(limit + 1)
        except (EOFError, OSError, zlib.error) as error:
            raise InputError(
                f"{self.where(name)} is truncated or damaged ({error}): get it again."
            ) from None
        _refuse_more(data, limit, self.where(name))
        return data


def find_files(path: Path, limit: int) -> Iterator[Files]:
    """Look for files in an archive, or in a folder and its sub-folders two levels down.

    Folders are never mixed, since data sets share file names. Archives in folders come last.
    """
    if not path.is_dir():
        yield Files.of_archive(path, limit)
        return
    below = [*sorted(path.glob("*/")), *sorted(path.glob("*/*/"))]
    hidden = [f for f in below if any(p.startswith(".") for p in f.relative_to(path).parts)]
    folders = [path, *(folder for folder in below if folder not in hidden)]
    yield from map(Files.of_folder, folders)
    for folder in folders:
        for file in sorted(folder.iterdir()):
            if file.is_file() and file.name.endswith(ENDINGS):
                yield Files.of_archive(file, limit)


def _refuse_more(data: bytes, limit: int, where: str) -> None:
    if len(data) > limit:
        raise InputError(f"{where} has more than the {limit:,} bytes it can have: refused.")
