"""Small data sets in the layouts in which the real ones are published."""

import gzip
import json
import struct
import tarfile
from dataclasses import replace

import numpy as np
from PIL import Image

from zeroone.data.cifar import CIFAR10, CIFAR100
from zeroone.data.mnist import MNIST

TINY_MNIST = replace(MNIST, n_train=20, n_test=10, shape=(1, 4, 3), counts={})
TINY_CIFAR10 = replace(CIFAR10, n_train=50, n_test=10, shape=(3, 2, 2))
TINY_CIFAR100 = replace(CIFAR100, n_train=200, n_test=100, shape=(3, 2, 2))


def samples(spec, part):
    """Random images, labels in order."""
    n = spec.samples(part)
    rng = np.random.default_rng(n)
    images = rng.integers(0, 256, size=(n, spec.n_features), dtype=np.uint8)
    return images, np.arange(n, dtype=np.uint8) % len(spec.classes)


def idx_bytes(array):
    return (
        bytes((0, 0, 8, array.ndim))
        + struct.pack(f">{array.ndim}I", *array.shape)
        + (array.tobytes())
    )


def write_idx(folder, spec, packed):
    for part, prefix in (("train", "train"), ("test", "t10k")):
        images, labels = samples(spec, part)
        for kind, array in (("images-idx3", images.reshape(-1, 4, 3)), ("labels-idx1", labels)):
            data = idx_bytes(array)
            if packed:
                data = gzip.compress(data)
            (folder / f"{prefix}-{kind}-ubyte{'.gz' if packed else ''}").write_bytes(data)


def batches(spec, part):
    """(file stem, images, labels) of each of a part's files."""
    images, labels = samples(spec, part)
    if spec.name == "cifar100":
        return [(part, images, labels)]
    if part == "test":
        return [("test_batch", images, labels)]
    return [
        (f"data_batch_{k + 1}", images[10 * k : 10 * k + 10], labels[10 * k : 10 * k + 10])
        for k in range(5)
    ]


def write_binary(folder, spec):
    for part in ("train", "test"):
        for name, images, labels in batches(spec, part):
            columns = [labels[:, None], images]
            if spec.name == "cifar100":
                columns.insert(0, labels[:, None] // 5)
            (folder / f"{name}.bin").write_bytes(np.hstack(columns).astype(np.uint8).tobytes())


def write_png_rows(folder, spec):
    for part in ("train", "test"):
        for name, images, _ in batches(spec, part):
            pixels = images.reshape(len(images), 3, 4).transpose(0, 2, 1)
            Image.fromarray(np.ascontiguousarray(pixels)).save(folder / f"{name}.png")
        labels = samples(spec, part)[1]
        (folder / f"{part}_lables.json").write_text(json.dumps(labels.tolist()))


def pack(folder, path, mode):
    with tarfile.open(path, mode) as archive:
        archive.add(folder, "package")
    return path
