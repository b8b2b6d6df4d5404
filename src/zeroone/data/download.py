"""One file from the web: resumed where it was cut, and checked by its digest."""

import time
import urllib.request
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from ssl import SSLError
from urllib.error import HTTPError, URLError

from zeroone.data.registry import Report
from zeroone.utils.checks import InputError
from zeroone.utils.storage import sha256_of

BLOCK = 2**18
PAUSES = (0.5, 1.0, 2.0, 0.0)  # seconds after each try
TIMEOUT = 30.0


def download(url: str, sha256: str, folder: Path, limit: int, report: Report) -> None:
    """Download a file of that digest, or the rest of it.

    What was received stays as ``NAME.part`` for the next try or call. If it turns out to be no part
    of the file, the download starts again.
    """
    name = url.rsplit("/", 1)[-1]
    target, part = folder / name, folder / f"{name}.part"
    if target.is_file():
        return
    reason: object = None
    for pause in PAUSES:
        resumed = part.exists()
        try:
            _receive(url, part, limit, report)
            found = sha256_of(part)
            if found == sha256:
                part.replace(target)
                return
            part.unlink()
            reason = f"wrong checksum {found[:12]}..."
            if not resumed:
                break
        except HTTPError as error:
            reason = f"it answers {error.code} {error.reason}"
            if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.unlink(missing_ok=True)
            elif error.code < 500 and error.code != HTTPStatus.TOO_MANY_REQUESTS:
                break
        except (URLError, HTTPException, ConnectionError, TimeoutError, SSLError) as error:
            reason = getattr(error, "reason", error)
        time.sleep(pause)
    raise InputError(f"{url} cannot be had ({reason}).")


def _receive(url: str, part: Path, limit: int, report: Report) -> None:
    done = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "zeroone", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        if response.headers.get_content_type() == "text/html":
            raise InputError(f"{url} answers with a web page in place of {part.stem}.")
        if response.status != 206:
            done = 0  # the whole file comes, whatever was asked
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdigit() else None
        with part.open("ab" if done else "wb") as file:
            for block in iter(lambda: response.read(BLOCK), b""):
                file.write(block)
                done += len(block)
                if done > limit:
                    part.unlink()
                    raise InputError(f"{url} sends more than {limit:,} bytes: refused.")
                report(part.stem, done, total)
    if total is not None and done < total:
        raise IncompleteRead(b"", total - done)
