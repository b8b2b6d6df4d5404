"""One file from the web: resumed where it was cut, checked by its digest, all or nothing."""

import hashlib
import http.client
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from zeroone.checks import InputError
from zeroone.data.registry import Remote

Report = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all
BLOCK = 2**18
TRIES = 4
FIRST_PAUSE = 0.5  # seconds; doubled after each failure
TIMEOUT = 30.0


class UnreachableError(InputError):
    """The site does not answer."""


def fetch(remote: Remote, folder: Path, limit: int, report: Report | None = None) -> Path:
    """Download a file into the folder and give its path; what was cut is taken up again.

    A part that has been read stays as ``NAME.part`` for the next call. A wrong digest, a web page
    in place of data or too many bytes remove it.
    """
    target, part = folder / remote.name, folder / f"{remote.name}.part"
    if target.is_file() and _sha256(target) == remote.sha256:
        return target
    tries = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            _receive(remote, part, limit, report)
            break
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            tries = _next_try(error, remote, part, tries, before)
    found = _sha256(part)
    if found != remote.sha256:
        part.unlink()
        raise InputError(
            f"{remote.name} from {remote.url} has the wrong checksum ({found[:12]}...): it was "
            f"deleted; try again, or give your own copy with --from FILE."
        )
    part.replace(target)
    return target


def _next_try(error: Exception, remote: Remote, part: Path, tries: int, before: int) -> int:
    """Wait and count a failure, or give up with a sentence. Progress starts the count anew."""
    if isinstance(error, urllib.error.HTTPError):
        if error.code == 416:  # the part is longer than the file
            part.unlink(missing_ok=True)
        elif error.code < 500:
            raise UnreachableError(f"{remote.url} answers {error.code} {error.reason}.") from None
    reason = getattr(error, "reason", error)
    if isinstance(reason, OSError) and reason.errno == 28:
        part.unlink(missing_ok=True)
        raise InputError(
            f"no space left on the device for {remote.name}: free some, or choose another "
            f"--data-dir."
        ) from None
    if isinstance(reason, PermissionError | IsADirectoryError):
        raise InputError(f"cannot write {part}: {reason.strerror}.") from None
    if part.exists() and part.stat().st_size > before:
        tries = 0
    if tries + 1 >= TRIES or isinstance(reason, socket.gaierror):
        raise UnreachableError(f"{remote.url} cannot be reached ({reason}).") from None
    time.sleep(FIRST_PAUSE * 2**tries)
    return tries + 1


def _receive(remote: Remote, part: Path, limit: int, report: Report | None) -> None:
    done = part.stat().st_size if part.exists() else 0
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
        if response.status != 206:  # the whole file comes, whatever was asked
            done = 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        with part.open("ab" if done else "wb") as file:
            while block := response.read(BLOCK):
                done += len(block)
                if done > limit:
                    file.close()
                    part.unlink()
                    raise InputError(f"{remote.url} sends more than {limit:,} bytes: refused.")
                file.write(block)
                if report:
                    report(remote.name, done, total)
    if total is not None and done < total:
        raise http.client.IncompleteRead(b"", total - done)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
