"""A bag of files, by name: a folder or a tar archive, read without unpacking.

An archive is looked through before anything in it is used: a path that climbs out, a link, a
device or more bytes than the data set can have, and all of it is refused. Nothing from an archive
is ever written to the disk under a name that the archive chose.
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
from typing import IO, Protocol, cast

from zeroone.utils.checks import InputError

SLACK = 16 * 2**20  # bytes that an archive may hold besides the data: readme, labels' names

ENDINGS = (".tar", ".tgz", ".tar.gz", ".tar.xz", ".txz", ".tar.bz2")
_DAMAGED = (
    tarfile.TarError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    OSError,
    ValueError,
    OverflowError,
)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Bag(ABC):
    """Files found by their bare name."""

    source: str

    @abstractmethod
    def __contains__(self, name: str) -> bool: ...

    @abstractmethod
    def read(self, name: str, limit: int) -> bytes:
        """The whole file; more than ``limit`` bytes are refused."""

    def where(self, name: str) -> str:
        """The file as a message names it."""
        return f"{name} in {self.source}"


class FolderBag(Bag):
    """The files of one folder; what lies in its sub-folders belongs to others."""

    def __init__(self, folder: Path) -> None:
        self.source, self._folder = str(folder), folder

    def __contains__(self, name: str) -> bool:
        return (self._folder / name).is_file()

    def read(self, name: str, limit: int) -> bytes:
        """The file's bytes."""
        try:
            with (self._folder / name).open("rb") as file:
                return _read_at_most(file, limit, self.where(name))
        except OSError as error:
            raise InputError(f"cannot read {self.where(name)}: {error.strerror}.") from None


class _Bounded:
    """A stream that refuses to give more than a number of bytes, headers and names included."""

    def __init__(self, stream: IO[bytes], limit: int, where: str) -> None:
        self._stream, self._limit, self._where, self._given = stream, limit, where, 0

    def expect(self, size: int) -> None:
        """Refuse before reading what would be too much."""
        if self._given + size > self._limit:
            raise InputError(
                f"{self._where} unpacks to more than the {self._limit:,} bytes that the data set "
                f"can have: refused."
            )

    def read(self, size: int) -> bytes:
        self.expect(size)
        data = self._stream.read(size)
        self._given += len(data)
        return data


class ArchiveBag(Bag):
    """The regular files of a tar archive (plain, gz, bz2 or xz).

    The first pass checks every member and notes where each begins; members that are then read in
    the archive's order cost one more pass in all.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.source, self._path = str(path), path
        self._places: dict[str, tuple[int, int]] = {}
        self._stream: IO[bytes] | None = None
        try:
            with _decompressed(path) as stream:
                bounded = _Bounded(stream, limit + SLACK, str(path))
                with tarfile.open(fileobj=bounded, mode="r|") as archive:  # type: ignore[call-overload]
                    for member in archive:
                        self._check(member)
                        bounded.expect(member.size)
                        if member.isreg():
                            name = PurePosixPath(member.name).name
                            self._places.setdefault(name, (member.offset_data, member.size))
        except InputError:
            raise
        except _DAMAGED as error:
            raise InputError(
                f"{path} is not a whole tar archive ({error}): get it again."
            ) from None

    def _check(self, member: tarfile.TarInfo) -> None:
        path = PurePosixPath(member.name)
        if path.is_absolute() or ".." in path.parts:
            raise InputError(
                f"{self._path} holds a path that leaves it ({member.name!r}): refused."
            )
        if not (member.isreg() or member.isdir()):
            raise InputError(f"{self._path} holds a link or a device ({member.name!r}): refused.")
        if member.sparse is not None:
            raise InputError(f"{self._path} holds a sparse file ({member.name!r}): refused.")

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def read(self, name: str, limit: int) -> bytes:
        """The member's bytes."""
        offset, size = self._places[name]
        if size > limit:
            raise _too_long(self.where(name), limit)
        try:
            if self._stream is None:
                self._stream = _decompressed(self._path)
            self._stream.seek(offset)
            data = self._stream.read(size)
        except _DAMAGED as error:
            raise InputError(f"{self.where(name)} cannot be read ({error}).") from None
        if len(data) < size:
            raise InputError(f"{self.where(name)} is cut short: get it again.")
        return data

    def __del__(self) -> None:
        if stream := getattr(self, "_stream", None):
            stream.close()


def _decompressed(path: Path) -> IO[bytes]:
    """The archive's plain bytes, whatever its ending says."""
    with path.open("rb") as file:
        magic = file.read(6)
    for start, opener in ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ", lzma.open), (b"BZh", bz2.open)):
        if magic.startswith(start):
            return cast(IO[bytes], opener(path, "rb"))
    return path.open("rb")


def bags_in(path: Path, limit: int, archives: str = "*") -> Iterator[Bag]:
    """A file as an archive; a folder and its sub-folders two levels down, one bag each.

    Files of different folders are never mixed: data sets share file names. Archives in those
    folders whose names match ``archives`` come after them.
    """
    if not path.is_dir():
        yield ArchiveBag(path, limit)
        return
    found = [path, *sorted(path.glob("*/")), *sorted(path.glob("*/*/"))]
    folders = [f for f in found if f.is_dir() and not _is_hidden(f, path)]
    for folder in folders:
        yield FolderBag(folder)
    for folder in folders:
        for file in sorted(folder.glob(archives)):
            if file.is_file() and file.name.endswith(ENDINGS):
                yield ArchiveBag(file, limit)


def _is_hidden(folder: Path, top: Path) -> bool:
    return any(part.startswith(".") for part in folder.relative_to(top).parts)


def gunzip(data: bytes, limit: int, where: str) -> bytes:
    """Decompress at most ``limit`` bytes; a truncated or damaged stream is refused."""
    try:
        with gzip.open(io.BytesIO(data)) as file:
            return _read_at_most(file, limit, where)
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{where} is truncated or damaged ({error}): get it again.") from None


def _read_at_most(file: _Readable, limit: int, where: str) -> bytes:
    data = file.read(limit + 1)
    if len(data) > limit:
        raise _too_long(where, limit)
    return data


def _too_long(where: str, limit: int) -> InputError:
    return InputError(f"{where} has more than the {limit:,} bytes it can have: refused.")
