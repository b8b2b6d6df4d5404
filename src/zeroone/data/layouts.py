"""The canonical file layouts, each read into (images, labels) of uint8, one part at a time.

Images come as one row a sample, channel by channel (C, H, W flattened), as CIFAR's binary files
have them. Every fault names the file.
"""

import io
import json
import math
import struct
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from zeroone.data.archives import Bag, gunzip
from zeroone.data.pickles import read_batch
from zeroone.data.registry import DataSpec
from zeroone.utils.checks import InputError

Bytes = NDArray[np.uint8]
Part = tuple[Bytes, Bytes]
PARTS = ("train", "test")


def read_part(spec: DataSpec, bag: Bag, part: str) -> Part | None:
    """One part in the first layout that the bag has; None if it has none of them."""
    for layout in spec.layouts:
        found = LAYOUTS[layout](spec, bag, part)
        if found is not None:
            images, labels = found
            _check_part(spec, part, images, labels, bag.source)
            return images, labels
    return None


def _check_part(spec: DataSpec, part: str, images: Bytes, labels: Bytes, source: str) -> None:
    n = spec.samples(part)
    if images.shape != (n, spec.n_features) or labels.shape != (n,):
        raise InputError(
            f"{source} is not {spec.name}: its {part} part has {len(images):,} images of "
            f"{images.shape[1]:,} bytes and {len(labels):,} labels, published are {n:,} of "
            f"{spec.n_features:,}."
        )
    if tuple(np.bincount(labels, minlength=len(spec.classes))) != spec.class_counts(part):
        raise InputError(
            f"{source} is not {spec.name}: its {part} part has other numbers of samples a class."
        )


# --- idx: MNIST and Fashion-MNIST ---------------------------------------------------------------


def _idx_part(spec: DataSpec, bag: Bag, part: str) -> Part | None:
    prefix = "train" if part == "train" else "t10k"
    arrays = []
    for kind, dims in (("images", 3), ("labels", 1)):
        stem = f"{prefix}-{kind}-idx{dims}-ubyte"
        names = (stem, f"{stem}.gz", stem.replace("-idx", ".idx"))
        name = next((name for name in names if name in bag), None)
        if name is None:
            return None
        arrays.append(read_idx(bag, name, dims, spec.n_bytes))
    images, labels = arrays
    return images.reshape(len(images), math.prod(images.shape[1:])), labels


def read_idx(bag: Bag, name: str, dims: int, limit: int) -> Bytes:
    """An idx file of unsigned bytes: magic number, sizes, data, and not a byte more or less."""
    where, data = bag.where(name), bag.read(name, limit)
    if name.endswith(".gz"):
        data = gunzip(data, limit, where)
    if data[:1] == b"<":
        raise InputError(f"{where} is a web page in place of data: get it again.")
    header = 4 + 4 * dims
    if len(data) < header or data[:4] != bytes((0, 0, 8, dims)):
        raise InputError(f"{where} is not an idx{dims} file: its magic number is {data[:4].hex()}.")
    sizes = struct.unpack(f">{dims}I", data[4:header])
    if len(data) - header != math.prod(sizes):
        raise InputError(
            f"{where} is truncated or too long: {len(data) - header:,} bytes for "
            f"{' x '.join(map(str, sizes))}; get it again."
        )
    return np.frombuffer(data, dtype=np.uint8, offset=header).reshape(sizes)


# --- CIFAR: binary records ----------------------------------------------------------------------


def _batch_names(spec: DataSpec, part: str, ending: str) -> list[str]:
    if spec.name == "cifar100":
        return [f"{part}{ending}"]
    names = [f"data_batch_{k}" for k in range(1, 6)] if part == "train" else ["test_batch"]
    return [name + ending for name in names]


def _joined(spec: DataSpec, part: str, names: list[str], read: Callable[[str], Part]) -> Part:
    """The batches of a part, put one after the other without holding them twice."""
    n = spec.samples(part)
    images = np.empty((n, spec.n_features), dtype=np.uint8)
    labels = np.empty(n, dtype=np.uint8)
    done = 0
    for name in names:
        more, its_labels = read(name)
        if (
            more.shape[1:] != images.shape[1:]
            or done + len(more) > n
            or len(more) != len(its_labels)
        ):
            raise InputError(f"{name} does not hold what {spec.name} should have there.")
        images[done : done + len(more)] = more
        labels[done : done + len(more)] = its_labels
        done += len(more)
    return images[:done], labels[:done]


def _binary_part(spec: DataSpec, bag: Bag, part: str) -> Part | None:
    names = _batch_names(spec, part, ".bin")
    if not all(name in bag for name in names):
        return None
    n_labels = 2 if spec.name == "cifar100" else 1  # CIFAR-100: coarse, then fine

    def read(name: str) -> Part:
        data = np.frombuffer(bag.read(name, spec.n_bytes), dtype=np.uint8)
        record = n_labels + spec.n_features
        if len(data) == 0 or len(data) % record:
            raise InputError(
                f"{bag.where(name)} is truncated or not in CIFAR's binary layout: its "
                f"{len(data):,} bytes are no whole number of {record}-byte records."
            )
        records = data.reshape(-1, record)
        return records[:, n_labels:], records[:, n_labels - 1]

    return _joined(spec, part, names, read)


# --- CIFAR: python batches ----------------------------------------------------------------------


def _python_part(spec: DataSpec, bag: Bag, part: str) -> Part | None:
    names = _batch_names(spec, part, "")
    if not all(name in bag for name in names):
        return None
    key = "fine_labels" if spec.name == "cifar100" else "labels"

    def read(name: str) -> Part:
        batch = read_batch(bag.read(name, spec.n_bytes * 2), bag.where(name))
        images = batch.get("data")
        if not isinstance(images, np.ndarray) or images.ndim != 2:
            raise InputError(f"{bag.where(name)} has no matrix 'data'.")
        return images, _labels(batch.get(key), len(spec.classes), bag.where(name))

    return _joined(spec, part, names, read)


def _labels(values: object, n_classes: int, where: str) -> Bytes:
    if not isinstance(values, list) or not all(
        type(value) is int and 0 <= value < n_classes for value in values
    ):
        raise InputError(f"{where} has no list of labels from 0 to {n_classes - 1}.")
    return np.array(values, dtype=np.uint8)


# --- CIFAR-10: one PNG a batch, one image a row of pixels ---------------------------------------


def _png_part(spec: DataSpec, bag: Bag, part: str) -> Part | None:
    names = _batch_names(spec, part, ".png")
    label_name = f"{part}_lables.json"  # so spelt in the package
    if label_name not in bag or not all(name in bag for name in names):
        return None
    try:
        listed = json.loads(bag.read(label_name, 2**22))
    except (ValueError, RecursionError):
        raise InputError(f"{bag.where(label_name)} is not JSON.") from None
    labels = _labels(listed, len(spec.classes), bag.where(label_name))
    images, _ = _joined(spec, part, names, lambda name: _png_rows(spec, bag, name))
    return images, labels


def _png_rows(spec: DataSpec, bag: Bag, name: str) -> Part:
    from PIL import Image

    channels, height, width = spec.shape
    try:
        with Image.open(io.BytesIO(bag.read(name, 2 * spec.n_bytes)), formats=["PNG"]) as image:
            if image.size[0] != height * width or image.size[1] > spec.n_train:
                raise InputError(f"{bag.where(name)} is {image.size[0]} pixels wide.")
            pixels = np.asarray(image.convert("RGB"))
    except InputError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{bag.where(name)} is not a whole PNG file ({error}).") from None
    rows = pixels.transpose(0, 2, 1).reshape(len(pixels), channels * height * width)
    return rows, np.zeros(len(rows), dtype=np.uint8)


LAYOUTS: dict[str, Callable[[DataSpec, Bag, str], Part | None]] = {
    "idx": _idx_part,
    "cifar-binary": _binary_part,
    "cifar-python": _python_part,
    "png-rows": _png_part,
}
