"""Files on disk: written all or nothing, read with suspicion, never unpickled."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from zeroone.utils.checks import InputError

MODEL = "zeroone"  # the key under which a safetensors file of that kind keeps its header
INTEGERS = "zeroone-integers"
STATE = "zeroone-state"
WHAT = {MODEL: "model", INTEGERS: "model of integers", STATE: "training state"}


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; move it there if the block succeeds, else remove it.

    A reader sees the old file or the new one, never a half-written one. Of a link, what it points
    to is replaced; what is no file (a pipe, the standard output) is written into.
    """
    if is_stream(path):
        yield from _streaming(path)
        return
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist.")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}.") from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _flush(temporary)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}.") from None
    finally:
        temporary.unlink(missing_ok=True)


def is_stream(path: Path) -> bool:
    """Whether it is there and neither a file nor a folder."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _streaming(path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / "content"
        temporary.touch()
        yield temporary
        try:
            with path.open("wb") as stream:
                stream.write(temporary.read_bytes())
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}.") from None


def _flush(path: Path) -> None:
    """Have the content on the disk before the name points to it: power may fail too."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def make_folder(folder: Path) -> Path:
    """The folder, made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}.") from None
    return folder


def check_writable(path: Path) -> Path:
    """Find out before hours of work whether a file can be written there."""
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a folder.")
    if is_stream(path):
        return path
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    probe = path.with_name(f".{path.name}.probe")
    with replacing(probe):
        pass
    probe.unlink()
    return path


def remove_leftovers(path: Path) -> None:
    """Remove what a killed process left of an unfinished ``replacing(path)``."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        leftover.unlink(missing_ok=True)


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
    # One key, since several would be written in any order: the same content, the same bytes.
    metadata = {kind: f"{checksum(text, contiguous)} {text}"}
    with replacing(path) as temporary:
        try:
            save_file(contiguous, temporary, metadata=metadata)
        except SafetensorError as error:  # a full disk, for one
            raise InputError(f"cannot write {path}: {error}.") from None
    return path


def read_tensors(path: Path, kind: str, newest: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what ``write_tensors`` wrote; refuse other files, and versions above ``newest``."""
    if not path.is_file():
        raise InputError(f"there is no {WHAT[kind]} file {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            digest, text = _split_metadata(path, kind, file.metadata() or {})
            header = _read_header(path, text, newest)
            # Copied into memory of torch's own: products depend, in the last bit, on alignment.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except InputError:
        raise
    # Torch's own, of shapes that no tensor can have: they are many lines long.
    except (SafetensorError, OSError, TypeError, ValueError, RuntimeError, OverflowError):
        raise InputError(f"{path} is truncated or not a safetensors file.") from None
    if digest != checksum(text, tensors):
        raise InputError(f"{path} is damaged: its content does not have the checksum it names.")
    return header, tensors


def checksum(text: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 of a file's header and of every tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        # A copy: a single number may have any stride, with which torch refuses to view its bytes.
        row = tensor.reshape(-1).clone(memory_format=torch.contiguous_format)
        digest.update(row.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def kind_of(path: Path) -> str | None:
    """Which of the kinds a file says it is."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError):
        return None
    return next((kind for kind in WHAT if kind in metadata), None)


def read_model(path: Path, newest: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a model: only finite floating point numbers can be one."""
    header, tensors = read_tensors(path, MODEL, newest)
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{path} holds a tensor {name} that is not made of finite numbers.")
    return header, tensors


def _split_metadata(path: Path, kind: str, metadata: dict[str, str]) -> tuple[str, str]:
    """The checksum and the header, still as text."""
    if kind not in metadata:
        raise InputError(f"{path} is a safetensors file, but not a zeroone {WHAT[kind]}.")
    digest, _, text = metadata[kind].partition(" ")
    if len(digest) != hashlib.sha256().digest_size * 2:
        raise InputError(f"{path} has no checksum: it is damaged, or older than zeroone's first.")
    return digest, text


def _read_header(path: Path, text: str, newest: int) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads(text)
        version = header["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f"{path} has no readable zeroone header.") from None
    if not isinstance(version, int) or version < 1:
        raise InputError(f"{path} has no valid format version (found {version!r}).")
    if version > newest:
        raise InputError(
            f"{path} has format version {version}, newer than {newest}, the newest this "
            f"zeroone reads: upgrade zeroone."
        )
    return header
