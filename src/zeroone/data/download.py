"""One file from the web: resumed where it was cut, checked by its digest, all or nothing."""

import hashlib
import http.client
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

from zeroone.data.published import Remote
from zeroone.data.registry import Report
from zeroone.utils.checks import InputError

BLOCK = 2**18
TRIES = 4  # in a row, without a byte received
FIRST_PAUSE = 0.5  # seconds; doubled after each failure
TIMEOUT = 30.0


def download(remote: Remote, folder: Path, limit: int, report: Report | None = None) -> Path:
    """Download a file, or the rest of it.

    What was received stays as ``NAME.part`` for the next call. A file that was put together from
    pieces and has the wrong digest is fetched once more from the start.
    """
    target, part = folder / remote.name, folder / f"{remote.name}.part"
    if target.is_file() and _sha256(target) == remote.sha256:
        return target
    resumed = part.exists()
    resumed |= _receive_all(remote, part, limit, report)
    if resumed and _sha256(part) != remote.sha256:
        part.unlink()
        _receive_all(remote, part, limit, report)
    found = _sha256(part)
    if found != remote.sha256:
        part.unlink()
        raise InputError(
            f"{remote.name} from {remote.url} has the wrong checksum ({found[:12]}...): it was "
            f"deleted; try again, or give your own copy with --from FILE."
        )
    return part.replace(target)


def _receive_all(remote: Remote, part: Path, limit: int, report: Report | None) -> bool:
    """Receive until the file is whole; tell whether it came in more than one piece."""
    failures = pieces = 0
    while True:
        before = _size(part)
        pieces += 1
        try:
            _receive(remote, part, limit, report)
            return pieces > 1
        except InputError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            failures = 1 if _size(part) > before else failures + 1
            _give_up_or_wait(error, remote, part, failures)


def _give_up_or_wait(error: Exception, remote: Remote, part: Path, failures: int) -> None:
    if isinstance(error, urllib.error.HTTPError):
        if error.code == 416:  # the part is longer than the file
            part.unlink(missing_ok=True)
        elif error.code < 500 and error.code != 429:
            raise InputError(f"{remote.url} answers {error.code} {error.reason}.") from None
    reason = getattr(error, "reason", error)
    if failures >= TRIES or isinstance(reason, socket.gaierror):
        raise InputError(f"{remote.url} cannot be reached ({reason}).") from None
    time.sleep(FIRST_PAUSE * 2 ** (failures - 1))


def _receive(remote: Remote, part: Path, limit: int, report: Report | None) -> None:
    done = _size(part)
    headers = {"User-Agent": "zeroone", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    request = urllib.request.Request(remote.url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        if response.headers.get_content_type() == "text/html":
            raise InputError(
                f"{remote.url} answers with a web page in place of {remote.name}: try again "
                f"later, or give your own copy with --from FILE."
            )
        if response.status != 206:
            done = 0  # the whole file comes, whatever was asked
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdigit() else None
        for block in iter(lambda: response.read(BLOCK), b""):
            _append(part, block, done)
            done += len(block)
            if done > limit:
                part.unlink()
                raise InputError(f"{remote.url} sends more than {limit:,} bytes: refused.")
            if report:
                report(remote.name, done, total)
    if total is not None and done < total:
        raise http.client.IncompleteRead(b"", total - done)


def _append(part: Path, block: bytes, done: int) -> None:
    try:
        with part.open("ab" if done else "wb") as file:
            file.write(block)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(
            f"cannot write {part}: {error.strerror or error}; free some space, or choose another "
            f"--data-dir."
        ) from None


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
