"""From the data that a user names to arrays.

Data are a registered set, a ``.npz`` file with X and y, a ``.csv`` file with a label column, or a
folder of images or of shards.
"""

import csv
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zeroone.data.registry import REGISTRY
from zeroone.data.shards import INDEX, load_shards
from zeroone.data.splits import Split
from zeroone.nn.labels import is_text, refuse_continuous
from zeroone.nn.operators import Shape
from zeroone.utils.checks import InputError, check_file, nearest, need_extra
from zeroone.utils.storage import is_folder

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
IMAGE_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP")
GREY = ("1", "L", "LA")
MOST_PIXELS = 2**22  # of an image
ARRAYS = ("X", "y", "X_test", "y_test")
TRUTHS = {"true": "1", "false": "0"}


def load_data(
    name: str,
    *,
    data_dir: Path | None = None,
    label: str | None = None,
    numbers: bool = False,
) -> Split:
    """Load a registered data set, a ``.npz`` or ``.csv`` file, or a folder of images or shards.

    Args:
        name: The data set's name, or a path.
        data_dir: Where registered data sets are kept; None for the default cache.
        label: The label column of a ``.csv`` file; None for the last one.
        numbers: Whether labels are the numbers of a regression, and not names of classes.
    """
    if name in REGISTRY:
        return REGISTRY[name].load(data_dir)
    path = Path(name)
    if is_folder(path):
        return load_shards(path) if (path / INDEX).is_file() else load_image_folder(path)
    if path.suffix not in (".npz", ".csv"):
        raise InputError(
            f"unknown data {name!r}; give {', '.join(REGISTRY)}, a .npz or .csv file, or a folder "
            f"of images.{nearest(name, REGISTRY)}"
        )
    return load_npz(path) if path.suffix == ".npz" else load_csv(path, label, numbers=numbers)


def in_order(split: Split, wanted: Sequence[str] | None) -> Split:
    """Pick the columns that a network takes, by their names if both sides have them."""
    if wanted is None or split.feature_names is None or tuple(wanted) == split.feature_names:
        return split
    columns = find_columns(split.name, split.feature_names, wanted)
    X_test = None if split.X_test is None else split.X_test[:, columns]
    return replace(split, X=split.X[:, columns], X_test=X_test, feature_names=tuple(wanted))


def load_inputs(
    path: Path, label: str | None = None, wanted: Sequence[str] | None = None
) -> NDArray[Any]:
    """Load X of a ``.npz`` file, or the columns ``wanted`` of a ``.csv`` file, in that order.

    Without a header, or without ``wanted``, load all columns but the label's.
    """
    if path.suffix == ".npz":
        X = read_npz(path, needed=("X",))["X"]
        return X if X.ndim <= 2 else _rows(X)
    if path.suffix != ".csv":
        raise InputError(f"{path} is neither a .npz nor a .csv file.")
    names, rows, has_header = _read_table(path, label, wanted)
    if has_header and wanted is not None:
        return _numbers(path, names, rows, find_columns(path, names, wanted))
    return _numbers(path, names, rows, [i for i, name in enumerate(names) if name != label])


def load_npz(path: Path) -> Split:
    """Load X, y and perhaps X_test, y_test.

    X is a matrix, or images: (N, height, width) or (N, channels, height, width). y is a vector, or
    a matrix: probabilities of classes, several labels or several numbers, as the head takes them.
    """
    arrays = read_npz(path, needed=("X", "y"))
    if ("X_test" in arrays) != ("y_test" in arrays):
        raise InputError(f"{path} has only one of X_test and y_test.")
    for name, array in arrays.items():
        if array.ndim not in ((2, 3, 4) if name.startswith("X") else (1, 2)):
            raise InputError(
                f"{path}: {name} has shape {array.shape}; X must be a matrix with one sample a "
                f"row, or images, and y a vector or a matrix."
            )
    X, X_test = arrays["X"], arrays.get("X_test")
    if X_test is not None and X_test.shape[1:] != X.shape[1:]:
        raise InputError(
            f"{path}: samples of X have shape {X.shape[1:]}, of X_test {X_test.shape[1:]}."
        )
    if X.ndim == 4 and X.shape[3] in (1, 3, 4) and X.shape[1] > 4:
        raise InputError(
            f"{path}: images of shape {X.shape[1:]} seem to have their channels last; they must "
            f"come first: X.transpose(0, 3, 1, 2)."
        )
    image = None if X.ndim == 2 else (1, *X.shape[1:])[-3:]
    return Split(path.stem, _rows(X), arrays["y"], _rows(X_test), arrays.get("y_test"), image)


def _rows(X: Any) -> Any:
    return None if X is None else X.reshape(len(X), math.prod(X.shape[1:]))


def read_npz(path: Path, needed: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Read the arrays of a ``.npz`` file that we know; it must have the needed ones."""
    check_file(path, "data file")
    try:
        with np.load(path, allow_pickle=False) as file:
            names = list(file.files)
            arrays = {key: file[key] for key in ARRAYS if key in names}
        if not all(isinstance(A, np.ndarray) and is_text(A) for A in arrays.values()):
            raise ValueError
    except Exception:  # a damaged zip file or header can fail in any way at all
        raise InputError(
            f"{path} cannot be read as .npz: it is something else, damaged, or holds Python "
            f"objects in place of plain arrays."
        ) from None
    for key in needed:
        if key not in arrays:
            raise InputError(f"{path} has no array {key!r} (found: {', '.join(names) or 'none'}).")
    return arrays


def load_csv(path: Path, label: str | None = None, *, numbers: bool = False) -> Split:
    """Load numbers and labels; the label column is the one named, else the last."""
    names, rows, has_header = _read_table(path, label)
    if label is not None and label not in names:
        raise InputError(
            f"{path} has no column {label!r} (found: {', '.join(names)}).{nearest(label, names)}"
        )
    column = len(names) - 1 if label is None else names.index(label)
    if has_header and names[0] == "":
        raise InputError(
            f"{path}: the first column has no name; if it numbers the rows, leave it out (with "
            f"pandas to_csv(index=False))."
        )
    if len(names) < 2:
        raise InputError(f"{path} has one column only: it needs features and a label.")
    labels = _label_array(path, [row[column] for row in rows], names[column], numbers=numbers)
    inputs = [i for i in range(len(names)) if i != column]
    X, known = _numbers(path, names, rows, inputs), tuple(names[i] for i in inputs)
    unique = has_header and len(set(known)) == len(known)
    return Split(path.stem, X, labels, feature_names=known if unique else None)


def find_columns(source: Path | str, found: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Find the columns that a network takes by their names."""
    places = {name: i for i, name in reversed(list(enumerate(found)))}
    missing = [name for name in wanted if name not in places]
    if missing:
        raise InputError(
            f"{source} lacks {len(missing)} of the {len(wanted)} columns that the network takes, "
            f"such as {missing[0]!r}.{nearest(missing[0], found)}"
        )
    return [places[name] for name in wanted]


def _read_table(
    path: Path, label: str | None, wanted: Sequence[str] | None = None
) -> tuple[list[str], list[list[str]], bool]:
    """Return the names of the columns, made up if there is no header, the rows, and if there is."""
    cells: list[list[str]] = []
    try:
        with check_file(path, "data file").open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            for row in filter(None, reader):  # without empty lines
                width = len(cells[0]) if cells else len(row)
                if len(row) != width:
                    raise InputError(
                        f"{path}, line {reader.line_num}: {len(row)} cells, the first has {width}."
                    )
                cells.append([cell.strip() for cell in row])
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{path} is not a text file of comma-separated values.") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from None
    if not cells:
        raise InputError(f"{path} is empty.")
    has_header = _is_header(cells, label, wanted)
    names = cells[0] if has_header else [f"column {i + 1}" for i in range(len(cells[0]))]
    if has_header and len(cells) == 1:
        raise InputError(f"{path} has a header but no samples.")
    return names, cells[1:] if has_header else cells, has_header


def _is_header(cells: list[list[str]], label: str | None, wanted: Sequence[str] | None) -> bool:
    """Tell whether the first line is a header.

    It is if it holds no number, or a name that is known, or text above a last column of numbers, or
    the numbers of the columns, as pandas writes them.
    """
    first, rows = cells[0], cells[1:]
    if label in first or not any(map(_is_number, first)):
        return True
    if wanted is not None and set(wanted) <= set(first):
        return True
    if len(first) > 2 and first[:-1] == [str(k) for k in range(len(first) - 1)]:
        return not _is_number(first[-1]) or first[-1] == str(len(first) - 1)
    return bool(rows) and not _is_number(first[-1]) and all(_is_number(row[-1]) for row in rows)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(
    path: Path, names: list[str], rows: list[list[str]], columns: list[int]
) -> NDArray[np.float64]:
    """Read some columns as numbers; True and False are 1 and 0, as pandas writes them."""
    cells = [[row[c] for c in columns] for row in rows]
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        cells = [[TRUTHS.get(cell.lower(), cell) for cell in row] for row in cells]
    for k, row in enumerate(cells, start=1):
        for column, cell in zip(columns, row, strict=True):
            if not _is_number(cell):
                what = f"is not a number ({cell!r})" if cell else "is empty"
                raise InputError(
                    f"{path}, sample {k}: {names[column]!r} {what}; features must be numbers."
                )
    return np.array(cells, dtype=np.float64)


def _label_array(path: Path, cells: list[str], name: str, *, numbers: bool) -> NDArray[Any]:
    missing = [k + 1 for k, cell in enumerate(cells) if cell == ""]
    if missing:
        raise InputError(
            f"{path}: {len(missing)} samples have no label in {name!r}, the first is sample "
            f"{missing[0]}."
        )
    if all(map(_is_plain_integer, cells)):
        return np.array([int(cell) for cell in cells])
    if all(map(_is_number, cells)):
        values = np.array([float(cell) for cell in cells])
        if numbers:
            return values
        refuse_continuous(values, f"{path}: the label column {name!r}")
    return np.array(cells)


def _is_plain_integer(cell: str) -> bool:
    """Tell whether an integer of 64 bits is written as Python does: "007" is a class of its own."""
    try:
        return str(int(cell)) == cell and abs(int(cell)) < 2**63
    except ValueError:
        return False


def load_image_folder(folder: Path) -> Split:
    """Load images of one size, grey or in colour, from one sub-folder a class."""
    classes = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
    files = [p for c in sorted(classes) for p in sorted(c.iterdir()) if _is_image(p)]
    labels = np.array([path.parent.name for path in files])
    if len(set(labels)) < 2:
        raise InputError(
            f"{folder} needs a sub-folder of images for each of at least two classes (found "
            f"{len(set(labels))} with images)."
        )
    first, _ = _open_image(files[0])
    images = [_open_image(path, first.shape) for path in files]
    planes = 1 if all(grey for _, grey in images) else 3
    X = np.stack([pixels[:planes] for pixels, _ in images])
    return Split(folder.resolve().name, X.reshape(len(X), -1), labels, shape=X.shape[1:])


def find_images(path: Path) -> list[Path]:
    """Return an image file, or all image files below a folder in the order of their names.

    Anything else gives an empty list.
    """
    if not is_folder(path):
        return [path] if _is_image(path) else []
    below = sorted(file.relative_to(path) for file in path.rglob("*") if _is_image(file))
    files = [path / file for file in below if not any(p.startswith(".") for p in file.parts)]
    if not files:
        raise InputError(f"{path} holds no images ({', '.join(IMAGE_ENDINGS)}).")
    return files


def load_images(files: Sequence[Path], shape: Shape) -> NDArray[np.uint8]:
    """Load images for a network, one a row, grey or in colour as it takes them.

    ``shape`` is that of a sample: channels, height and width, or the number of pixels alone.
    """
    Image = need_extra("images", "PIL.Image")
    rows = []
    for path in files:
        pixels, _ = _open_image(path)
        _, height, width = pixels.shape
        channels = math.prod(shape) // (height * width)
        if channels not in (1, 3) or shape not in (
            (channels, height, width),
            (channels * height * width,),
        ):
            takes = f"{shape[2]} x {shape[1]}" if len(shape) == 3 else f"{shape[0]} numbers"
            raise InputError(f"{path} is {width} x {height} pixels, the network takes {takes}.")
        if channels == 1:
            pixels = np.asarray(Image.fromarray(pixels.transpose(1, 2, 0)).convert("L"))
        rows.append(pixels.ravel())
    return np.stack(rows)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_ENDINGS


def _open_image(path: Path, wanted: Shape | None = None) -> tuple[NDArray[np.uint8], bool]:
    """Return the planes of red, green and blue, and whether the file is grey.

    An image of another size than ``wanted``, or of too many pixels, is not decoded.
    """
    Image = need_extra("images", "PIL.Image")
    try:
        with (
            warnings.catch_warnings(action="ignore"),  # of many pixels: they are an error below
            Image.open(check_file(path, "image"), formats=IMAGE_FORMATS) as image,
        ):
            width, height = image.size
            size = f"{path} is {width} x {height} pixels"
            if wanted not in (None, (3, height, width)):
                _, first_height, first_width = wanted
                raise InputError(
                    f"{size}, the first image is {first_width} x {first_height}: all must have "
                    f"one size."
                )
            if width * height > MOST_PIXELS:
                raise InputError(f"{size}, more than {MOST_PIXELS:,} in all: make it smaller.")
            mode, pixels = image.mode, np.asarray(image.convert("RGB"))
    except InputError:
        raise
    except Exception as error:  # decoders of damaged images can fail in any way at all
        raise InputError(f"{path} cannot be read as an image ({error}).") from None
    if mode not in (*GREY, "P", "RGB", "RGBA", "CMYK", "YCbCr"):
        raise InputError(f"{path} has pixels of more than 8 bits ({mode}): convert it.")
    return pixels.transpose(2, 0, 1), mode in GREY
