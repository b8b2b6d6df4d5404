"""Files that are written all or nothing, checked when they are read, and never unpickled."""

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from zeroone.utils.checks import InputError, check_file

MODEL = "zeroone"  # the key of the header in a safetensors file of that kind
INTEGERS = "zeroone-integers"
STATE = "zeroone-state"
LOCK = ".lock"  # the file in a folder that one process locks
TEMPORARY = ".tmp"
DEEPEST = 50  # levels of JSON; what is written here has fewer
WHAT = {MODEL: "model", INTEGERS: "model of integers", STATE: "training state"}


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; move it to ``path`` if the block succeeds, else remove it.

    A reader sees the old file or the new one, never a half-written one, even if power fails; after
    the block, it is the new one. A link stays, and the file it points to is replaced. A pipe or the
    standard output is written to.
    """
    streams = is_stream(path)
    path = _real(path)
    try:
        # A folder, since some libraries write temporary files of their own beside the path.
        folder = None if streams else path.parent
        made = Path(tempfile.mkdtemp(TEMPORARY, _prefix(path), folder))
        temporary = made / f"new{path.suffix}"
        temporary.touch()
        mode = temporary.stat().st_mode  # which libraries do not keep
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}.") from None
    try:
        yield temporary
        if streams:
            path.write_bytes(temporary.read_bytes())
            return
        flush(temporary)  # else power may fail between the name and the content
        temporary.chmod(mode)
        temporary.replace(path)
        flush(path.parent)
    except (OSError, SafetensorError) as error:  # a full disk, for one
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot write {path}: {reason}.") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)


def flush(path: Path) -> None:
    """Have the disk keep a file's content, or the names in a folder."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:  # not every system can flush a folder
        if error.errno not in (errno.EINVAL, errno.EACCES, errno.ENOTSUP) or not path.is_dir():
            raise


def sha256_of(path: Path) -> str:
    """Return the digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_folder(path: Path) -> bool:
    """Tell whether there is a folder; a name that no folder can have is no error."""
    return os.path.isdir(path)  # noqa: PTH112


def is_stream(path: Path) -> bool:
    """Tell whether there is something that is neither a file nor a folder."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _real(path: Path) -> Path:
    """Follow a link to the file that it names; refuse a path whose folder is missing."""
    if path.is_symlink() and not is_stream(path):
        path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist.")
    return path


def make_folder(folder: Path) -> Path:
    """Make the folder if it is missing, and return it."""
    try:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for path in missing:
            flush(path.parent)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}.") from None
    return folder


def check_writable(path: Path) -> None:
    """Check that a file can be written there, before hours of work."""
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder.")
    if is_stream(path):
        return
    try:
        with tempfile.TemporaryFile(dir=_real(path).parent):
            pass
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}.") from None


def _prefix(path: Path) -> str:
    """Begin the names of temporary folders for a path; a long name leaves them room."""
    return f".{path.name[:60]}."


def remove_leftovers(path: Path) -> None:
    """Remove what a killed ``replacing(path)`` left behind; the caller has locked the folder."""
    for leftover in path.parent.iterdir():
        if leftover.name.startswith(_prefix(path)) and leftover.suffix == TEMPORARY:
            shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder; a block within the block may lock it again.

    The system frees the lock of a process that dies. The file stays: a lock on a file that was
    removed would keep nobody out.

    Raises:
        InputError: another process has the lock.
    """
    lock = FileLock(make_folder(folder).resolve() / LOCK, timeout=0, is_singleton=True)
    try:
        held = lock.acquire()
    except Timeout:
        raise InputError(
            f"another run is at work in {folder}: wait for it, or take another folder."
        ) from None
    except OSError as error:
        raise InputError(f"cannot write in {folder}: {error.strerror or error}.") from None
    with held:
        yield


def parse_json(text: str) -> Any:
    """Parse JSON that is not nested too deeply to work with.

    Raises:
        ValueError: it is, or the text is no JSON.
    """
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [content]
    for _ in range(DEEPEST):
        nested = [item for item in level if isinstance(item, dict | list)]
        level = [x for item in nested for x in (item.values() if isinstance(item, dict) else item)]
    if level:
        raise ValueError("nested too deeply")
    return content


def write_json(path: Path, content: dict[str, Any]) -> Path:
    """Write a JSON file, all or nothing."""
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def write_tensors(
    path: Path, kind: str, header: dict[str, Any], tensors: dict[str, Tensor]
) -> Path:
    """Write tensors, a JSON header and their checksum as one safetensors file, all or nothing."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(header)
    # One key: several would be written in any order, and the same content be other bytes.
    metadata = {kind: f"{checksum(text, contiguous)} {text}"}
    with replacing(path) as temporary:
        save_file(contiguous, temporary, metadata=metadata)
    return path


def read_tensors(path: Path, kind: str, newest: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what ``write_tensors`` wrote; refuse other files, and versions above ``newest``."""
    check_file(path, f"{WHAT[kind]} file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Copied, for torch's own alignment: the last bits of products depend on it.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, ValueError, RuntimeError, OverflowError):
        raise InputError(f"{path} is truncated or not a safetensors file.") from None
    if kind not in metadata:
        raise InputError(f"{path} is a safetensors file, but not a zeroone {WHAT[kind]}.")
    digest, _, text = metadata[kind].partition(" ")
    try:
        header: dict[str, Any] = parse_json(text)
        version = header["version"]
        if not isinstance(version, int) or version < 1:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} has no readable zeroone header.") from None
    if version > newest:
        raise InputError(
            f"{path} has format version {version}, newer than {newest}, the newest this "
            f"zeroone reads: upgrade zeroone."
        )
    if digest != checksum(text, tensors):
        raise InputError(f"{path} is damaged: its content does not have the checksum it names.")
    return header, tensors


def checksum(text: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 of a file's header and of every tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        # Copied, since torch refuses to view the bytes of a single number with an odd stride.
        row = tensor.reshape(-1).clone(memory_format=torch.contiguous_format)
        digest.update(row.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def kind_of(path: Path) -> str | None:
    """Return the kind that a file's header names; None if it is no file of ours."""
    try:
        with safe_open(check_file(path, "file"), framework="pt") as file:
            metadata = file.metadata() or {}
    except (InputError, SafetensorError, OSError):
        return None
    return next((kind for kind in WHAT if kind in metadata), None)


def read_model(path: Path, newest: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a model, all of whose numbers must be finite."""
    header, tensors = read_tensors(path, MODEL, newest)
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{path} holds a tensor {name} that is not made of finite numbers.")
    return header, tensors
