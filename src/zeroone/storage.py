"""Files on disk: written all or nothing, read with suspicion, never unpickled."""

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

from zeroone.checks import InputError

FORMAT_NAME = "zeroone"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; move it there if the block succeeds, else remove it.

    A reader sees the old file or the new one, never a half-written one.
    """
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
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}.") from None
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: dict[str, Any]) -> Path:
    """Write a JSON file, all or nothing."""
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def write_model(path: Path, header: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    """Write tensors and a JSON header as one safetensors file, all or nothing."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {FORMAT_NAME: json.dumps(header)}  # one key: the same network, the same bytes
    with replacing(path) as temporary:
        save_file(contiguous, temporary, metadata=metadata)
    return path


def read_model(path: Path, newest: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what ``write_model`` wrote; refuse any other file, and versions above ``newest``."""
    if not path.is_file():
        raise InputError(f"there is no model file {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            header = _read_header(path, metadata, newest)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError):
        raise InputError(f"{path} is truncated or not a safetensors file.") from None
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{path} holds a tensor {name} that is not made of finite numbers.")
    return header, tensors


def _read_header(path: Path, metadata: dict[str, str], newest: int) -> dict[str, Any]:
    if FORMAT_NAME not in metadata:
        raise InputError(f"{path} is a safetensors file, but not a zeroone model.")
    try:
        header: dict[str, Any] = json.loads(metadata[FORMAT_NAME])
        version = header["version"]
    except (json.JSONDecodeError, KeyError, TypeError):
        raise InputError(f"{path} has no readable zeroone header.") from None
    if not isinstance(version, int) or version < 1:
        raise InputError(f"{path} has no valid format version (found {version!r}).")
    if version > newest:
        raise InputError(
            f"{path} has format version {version}, newer than {newest}, the newest this "
            f"zeroone reads: upgrade zeroone."
        )
    return header
