"""Files found by name, in a folder or in a tar archive that is read without unpacking it.

All of an archive is checked before any of it is used: a path that leaves the archive, a link, a
device or more bytes than the data set can have, and the archive is refused. No file is ever written
under a name that an archive chose.
"""

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, cast

from zeroone.utils.checks import InputError, check_file

SLACK = 16 * 2**20  # bytes that an archive may hold besides the data: a readme, names of labels
ENDINGS = (".tar", ".tgz", ".tar.gz", ".tar.xz", ".txz", ".tar.bz2")
_TAR_ERRORS = (tarfile.TarError, ValueError, OverflowError)
_DAMAGED = (*_TAR_ERRORS, EOFError, zlib.error, lzma.LZMAError, OSError)


class Files(ABC):
    """The files of one folder or archive, by their bare names."""

    source: str  # the folder or archive, as messages name it

    @abstractmethod
    def __contains__(self, name: str) -> bool: ...

    @abstractmethod
    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading."""

    def where(self, name: str) -> str:
        """Name a file in a message."""
        return f"{name} in {self.source}"

    def read(self, name: str, limit: int) -> bytes:
        """Read a whole file of at most ``limit`` bytes."""
        try:
            with self.open(name) as file:
                data = file.read(limit + 1)
        except _DAMAGED as error:
            raise InputError(f"cannot read {self.where(name)}: {error}.") from None
        return _at_most(data, limit, self.where(name))


class FolderFiles(Files):
    """The files of one folder, without those of its sub-folders."""

    def __init__(self, folder: Path) -> None:
        self.source, self._folder = str(folder), folder

    def __contains__(self, name: str) -> bool:
        return (self._folder / name).is_file()

    def open(self, name: str) -> IO[bytes]:
        """Open a file of the folder."""
        return (self._folder / name).open("rb")


class ArchiveFiles(Files):
    """The regular files of a tar archive: plain, gz, bz2 or xz, whatever its ending says.

    ``limit`` is the number of bytes that the data set can have.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.source = str(check_file(path, "archive"))
        self._members: dict[str, memoryview] = {}
        try:
            with _decompressed(path) as stream:
                content = stream.read(limit + SLACK + 1)
            if len(content) > limit + SLACK:
                raise InputError(
                    f"{path} unpacks to more than the {limit + SLACK:,} bytes that the data set "
                    f"can have: refused."
                )
            # As a stream: else a member of negative size sends the reader back for ever.
            with tarfile.open(fileobj=io.BytesIO(content), mode="r|") as archive:
                for member in archive:
                    self._check(member)
                    if member.isreg():
                        end = member.offset_data + member.size
                        data = memoryview(content)[member.offset_data : end]
                        self._members.setdefault(PurePosixPath(member.name).name, data)
        except InputError:
            raise
        except _DAMAGED as error:
            raise InputError(
                f"{path} is not a whole tar archive ({error}): get it again."
            ) from None

    def _check(self, member: tarfile.TarInfo) -> None:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            what = "path that leaves it"
        elif not (member.isreg() or member.isdir()):
            what = "link or a device"
        elif member.sparse is not None:
            what = "sparse file"
        else:
            return
        raise InputError(f"{self.source} holds a {what} ({member.name!r}): refused.")

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def open(self, name: str) -> IO[bytes]:
        """Open a member of the archive."""
        return io.BytesIO(self._members[name])


def _decompressed(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        magic = file.read(6)
    for start, opener in ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ", lzma.open), (b"BZh", bz2.open)):
        if magic.startswith(start):
            return cast(IO[bytes], opener(path, "rb"))
    return path.open("rb")


def find_files(path: Path, limit: int, archives: str = "*") -> Iterator[Files]:
    """Look for files in an archive, or in a folder and its sub-folders two levels down.

    Folders are never mixed, since data sets share file names. Archives in folders come last, if
    their names match the pattern ``archives``.
    """
    if not path.is_dir():
        yield ArchiveFiles(path, limit)
        return
    found = [path, *sorted(path.glob("*/")), *sorted(path.glob("*/*/"))]
    hidden = [any(part.startswith(".") for part in f.relative_to(path).parts) for f in found]
    folders = [f for f, hide in zip(found, hidden, strict=True) if f.is_dir() and not hide]
    yield from map(FolderFiles, folders)
    for folder in folders:
        for file in sorted(folder.glob(archives)):
            if file.is_file() and file.name.endswith(ENDINGS):
                yield ArchiveFiles(file, limit)


def gunzip(data: bytes, limit: int, where: str) -> bytes:
    """Decompress gzip data of at most ``limit`` bytes."""
    try:
        with gzip.open(io.BytesIO(data)) as file:
            unpacked = file.read(limit + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{where} is truncated or damaged ({error}): get it again.") from None
    return _at_most(unpacked, limit, where)


def _at_most(data: bytes, limit: int, where: str) -> bytes:
    if len(data) > limit:
        raise InputError(f"{where} has more than the {limit:,} bytes it can have: refused.")
    return data
