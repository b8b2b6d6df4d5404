"""Files that wait for ever, claim to be huge, or are broken in every way a reader knows."""

import io
import os
import struct
import time
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from paper.matrix.record_file import read_entries
from paper.matrix.spec import Spec
from zeroone import load, train
from zeroone.data.archives import Files
from zeroone.data.load import find_columns, load_data, load_inputs
from zeroone.data.mnist import MNIST
from zeroone.data.shards import write_shards
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.network import Network
from zeroone.utils.checks import InputError
from zeroone.utils.memmap import map_file

READERS = {
    ".csv": load_data,
    ".npz": load_data,
    ".npz of inputs": load_inputs,
    ".safetensors": load,
    ".toml": Spec.read,
    ".tar": lambda path: Files.of_archive(path, 100),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "name",
    ["pipe", "x" * 300, "a\0b", "folder", "missing", "file/below"],
    ids=["pipe", "long", "nul", "folder", "missing", "below a file"],
)
def test_only_regular_files_are_opened(name, reader, tmp_path):
    """To open a pipe would wait for ever."""
    os.mkfifo(tmp_path / f"pipe{reader.split()[0]}")
    (tmp_path / f"folder{reader.split()[0]}").mkdir()
    (tmp_path / "file").touch()
    path = tmp_path / f"{name}{reader.split()[0]}"
    given = str(path) if READERS[reader] is load_data else path
    with pytest.raises(InputError, match=r"regular file|cannot read|there is no|at least two"):
        READERS[reader](given)


def test_a_pipe_among_images_shards_or_cached_arrays(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        os.mkfifo(tmp_path / "images" / name / "1.png")
    with pytest.raises(InputError, match=r"1\.png is not a regular file"):
        load_data(str(tmp_path / "images"))
    write_shards([(np.ones((2, 3)), [0, 1])], tmp_path / "shards")
    (tmp_path / "shards" / "y-0.npy").unlink()
    os.mkfifo(tmp_path / "shards" / "y-0.npy")
    with pytest.raises(InputError, match=r"y-0\.npy is missing or damaged"):
        load_data(str(tmp_path / "shards"))
    MNIST.home(tmp_path).mkdir(parents=True)
    os.mkfifo(MNIST.home(tmp_path) / "train_images.npy")
    assert MNIST.cached(tmp_path) is None


def npy(header, version=1, data=b""):
    text = header.encode("latin1") + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def zipped(content, **changes):
    """Write a .npz with X of this content; ``changes`` are made to its entries."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("X.npy", content)
        file.writestr("y.npy", npy("{'descr': '<i8', 'fortran_order': False, 'shape': (0,)}"))
    data = bytearray(out.getvalue())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.index(signature) + offset
        for k, name in enumerate(("flags", "method")):
            if name in changes:
                data[place + 2 * k : place + 2 * k + 2] = struct.pack("<H", changes[name])
    return bytes(data)


PLAIN = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2)}"
BROKEN_NPZ = {
    "encrypted": zipped(npy(PLAIN, data=bytes(32)), flags=1),
    "unknown compression": zipped(npy(PLAIN, data=bytes(32)), method=77),
    "patched data": zipped(npy(PLAIN, data=bytes(32)), flags=0x20),
    "a huge shape": zipped(npy(PLAIN.replace("(2, 2)", f"({10**15}, 9)"))),
    "a shape beyond all numbers": zipped(npy(PLAIN.replace("2, 2", f"{10**30}, {10**30}"))),
    "a negative shape": zipped(npy(PLAIN.replace("2, 2", "-2, -2"), data=bytes(32))),
    "a huge item": zipped(npy(PLAIN.replace("<f8", "<U999999999"))),
    "no header": zipped(b"\x93NUMPY\x01\x00"),
    "no length": zipped(b"\x93NUMPY\x02\x00\x10"),
    "a header that does not end": zipped(npy("{'descr': (((((", version=2)),
    "a header that is no Python": zipped(npy("  {'a' 'b'")),
    "a header in tabs": zipped(npy("\tif x:\n  y\n z")),
    "a deep header": zipped(npy("(" * 9000)),
    "a header of unknown words": zipped(npy("{'descr': __import__('os')}")),
    "a type that is none": zipped(npy(PLAIN.replace("'<f8'", "[('a', 'b', 'c', 'd')]"))),
    "no array": zipped(b"text"),
    "text that is none": zipped(npy(PLAIN.replace("<f8", "<U2"), data=b"\xff" * 32)),
    "half a character": zipped(npy(PLAIN.replace("<f8", "<U1"), data=b"\0\xd8\0\0" * 4)),
    "no members": b"PK\x05\x06" + bytes(18),
}


@pytest.mark.parametrize("case", BROKEN_NPZ)
def test_broken_npz_files(case, tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(BROKEN_NPZ[case])
    for read in (lambda: load_data(str(path)), lambda: load_inputs(path)):
        with pytest.raises(InputError, match=r"cannot be read as \.npz|has no array"):
            read()


def test_arrays_that_nobody_asks_for_are_not_read(tmp_path):
    objects = np.array([{}], dtype=object)
    np.savez(tmp_path / "a.npz", X=np.ones((2, 2)), y=[0, 1], objects=objects)
    assert load_data(str(tmp_path / "a.npz")).X.shape == (2, 2)


def png(width, height):
    """Write a grey PNG of zeros, which deflate a thousandfold."""
    packer = zlib.compressobj(9)
    parts = [packer.compress(bytes(width + 1)) for _ in range(height)]
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", b"".join(parts) + packer.flush()),
        (b"IEND", b""),
    )
    body = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("where", ["first", "later"])
@pytest.mark.parametrize(("width", "height"), [(3000, 3000), (10_000, 10_000), (20_000, 9_000)])
def test_an_image_is_measured_before_it_is_decoded(where, width, height, tmp_path):
    bomb = png(width, min(height, 3000))
    bomb = bomb[:20] + struct.pack(">I", height) + bomb[24:]
    bomb = bomb[:29] + struct.pack(">I", zlib.crc32(bomb[12:29])) + bomb[33:]
    for k, name in enumerate("ab"):
        (tmp_path / name).mkdir()
        is_bomb = (where == "first") == (k == 0)
        (tmp_path / name / "1.png").write_bytes(bomb if is_bomb else png(4, 4))
    tracemalloc.start()
    with pytest.raises(InputError, match=r"x \d+ pixels|exceeds limit"):
        load_data(str(tmp_path))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**22


def test_decoders_may_fail_in_any_way(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("L", (4, 4)).save(tmp_path / name / "1.png")

    def fail(*_arguments, **_options):
        raise struct.error("unpack requires a buffer")

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(InputError, match=r"1\.png cannot be read as an image"):
        load_data(str(tmp_path))


def test_thousands_of_columns_are_found_at_once():
    names = [f"column {k}" for k in range(20_000)]
    before = time.process_time()
    assert find_columns("a.csv", names, names[::-1]) == list(range(20_000))[::-1]
    assert time.process_time() - before < 2
    assert find_columns("a.csv", ["b", "a", "a"], ["a", "b"]) == [1, 0]
    with pytest.raises(InputError, match=r"lacks 1 of the 2 columns .* 'c'"):
        find_columns("a.csv", ["b", "a"], ["a", "c"])


@pytest.mark.parametrize("text", ["[" * 200_000, "[]", "", '{"checksum": [1]}'])
def test_an_index_of_shards_that_is_none(text, tmp_path):
    folder = write_shards([(np.ones((2, 3)), [0, 1])], tmp_path / "shards")
    (folder / "shards.json").write_text(text)
    with pytest.raises(InputError, match=r"shards\.json is damaged"):
        load_data(str(folder))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("X-0", np.ones((2, 3), order="F", dtype=np.float32)),
        ("X-0", np.ones((2, 3), dtype=">f4")),
        ("X-0", np.ones((2, 3), dtype="f4,f4")),
        ("X-0", np.array(["a" * 9] * 6).reshape(2, 3)),
        ("y-0", np.zeros(2, dtype="datetime64[s]")),
        ("y-0", np.zeros(2, dtype="f4,f4")),
        ("y-0", np.full(2, 2**31, np.uint32).view("<U1")),
    ],
)
def test_shards_of_other_kinds_are_refused(name, array, tmp_path):
    folder = write_shards([(np.ones((2, 3)), [0, 1])], tmp_path / "shards")
    np.save(folder / f"{name}.npy", array)
    with pytest.raises(InputError, match=f"{name}.npy"):
        np.asarray(load_data(str(folder)).X)


def test_a_toml_file_of_brackets(tmp_path):
    for text in ("a = " + "[" * 200_000, "a = " + "9" * 5000, 'data = ["\\u001b[2J"]'):
        (tmp_path / "a.toml").write_text(text)
        with pytest.raises(InputError, match=r"not a TOML file|cannot be printed|unknown entry"):
            Spec.read(tmp_path / "a.toml")


def test_labels_that_no_file_can_hold(tmp_path):
    """Half a character comes from folders whose names are not UTF-8."""
    for name in ("caf\udce9", "tea"):
        (tmp_path / name).mkdir()
        Image.new("L", (4, 4)).save(tmp_path / name / "1.png")
    split = load_data(str(tmp_path))
    with pytest.raises(InputError, match="not text that a file can hold"):
        train(split.X, split.y)
    with pytest.raises(InputError, match="distinct strings"):
        Network.build((2,), [], 2, SoftmaxCE()).name_features(["a", "\ud800"])


def test_lines_of_a_record_file_that_are_too_deep(tmp_path):
    (tmp_path / "records.jsonl").write_text("[" * 200_000 + "\n")
    said = []
    assert read_entries(tmp_path / "records.jsonl", said.append) == []
    assert len(said) == 1
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is not a regular file"):
        read_entries(tmp_path / "pipe")


@pytest.mark.parametrize("shape", ["-1,", "0,", "2,", "", f"{2**32}, {2**32}", "-2, -1"])
@pytest.mark.parametrize("kind", ["<U0", "<f8", "|O", "<U-0"])
def test_headers_of_arrays_that_crash_numpy(kind, shape, tmp_path):
    """Text of length 0 and a shape of -1 make it divide by 0."""
    path = tmp_path / "a.npy"
    header = PLAIN.replace("<f8", kind).replace("2, 2", shape)
    path.write_bytes(npy(header, data=bytes(8)))
    if kind == "<f8" and shape == "0,":
        assert map_file(path).shape == (0,)
        return
    with pytest.raises(InputError, match="is missing or damaged"):
        map_file(path)
