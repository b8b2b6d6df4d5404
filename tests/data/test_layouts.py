"""Canonical file layouts and hostile archives, on small files that these tests write."""

import gzip
import io
import os
import pickle
import pickletools
import struct
import tarfile
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from data_files import (
    TINY_CIFAR10,
    TINY_CIFAR100,
    TINY_MNIST,
    pack,
    samples,
    write_binary,
    write_idx,
    write_png_rows,
    write_python,
)
from zeroone.data import pickles
from zeroone.data.archives import SLACK, ArchiveFiles, FolderFiles, find_files, gunzip
from zeroone.data.cifar import read_png_part, read_python_part
from zeroone.data.published import PublishedImages, read_part
from zeroone.data.registry import REGISTRY
from zeroone.utils.checks import InputError

WRITERS = {
    "idx": (TINY_MNIST, lambda f, s: write_idx(f, s, packed=False)),
    "idx.gz": (TINY_MNIST, lambda f, s: write_idx(f, s, packed=True)),
    "cifar10 binary": (TINY_CIFAR10, write_binary),
    "cifar100 binary": (TINY_CIFAR100, write_binary),
    "cifar10 python 2": (TINY_CIFAR10, write_python),
    "cifar100 python 4": (TINY_CIFAR100, lambda f, s: write_python(f, s, 4)),
    "cifar10 png rows": (TINY_CIFAR10, write_png_rows),
}


@pytest.mark.parametrize("container", ["folder", "w:gz", "w:xz", "w"])
@pytest.mark.parametrize("layout", WRITERS)
def test_every_layout_in_every_container(tmp_path, layout, container):
    spec, write = WRITERS[layout]
    folder = tmp_path / "files"
    folder.mkdir()
    write(folder, spec)
    path = folder if container == "folder" else pack(folder, tmp_path / "a.tar.gz", container)
    files = next(find_files(path, 10**6))
    for part in ("train", "test"):
        images, labels = read_part(spec, files, part)
        expected_images, expected_labels = samples(spec, part)
        assert np.array_equal(images, expected_images)
        assert np.array_equal(labels, expected_labels)


def test_published_facts():
    published = [spec for spec in REGISTRY.values() if isinstance(spec, PublishedImages)]
    sizes = {s.name: (s.n_train, s.n_test, len(s.classes), s.shape) for s in published}
    assert sizes == {
        "mnist": (60_000, 10_000, 10, (1, 28, 28)),
        "fashion-mnist": (60_000, 10_000, 10, (1, 28, 28)),
        "cifar10": (50_000, 10_000, 10, (3, 32, 32)),
        "cifar100": (50_000, 10_000, 100, (3, 32, 32)),
    }
    for spec in published:
        for part in ("train", "test"):
            assert sum(spec.class_counts(part)) == spec.samples(part)
        assert all(len(remote.sha256) == 64 for remote in spec.remotes)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda data: gzip.compress(data)[:-9], "truncated or damaged"),
        (lambda data: gzip.compress(b"\x00\x00\x08\x02" + data[4:]), "magic number is 00000802"),
        (lambda data: gzip.compress(data[:-1]), "truncated or too long"),
        (lambda data: gzip.compress(data + b"x"), "truncated or too long"),
        (lambda data: gzip.compress(b"<html>Not found</html>"), "a web page in place of data"),
        (lambda data: b"<html>Not found</html>", "truncated or damaged"),
        (lambda data: gzip.compress(bytes(10**7)), "more than the"),
        (lambda data: b"", "not an idx"),
        (lambda data: gzip.compress(data[:4] + struct.pack(">3I", 0, 4, 3)), "has 0 images"),
    ],
)
def test_damaged_idx_files_are_named(tmp_path, damage, sentence):
    write_idx(tmp_path, TINY_MNIST, packed=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(gzip.decompress(path.read_bytes())))
    with pytest.raises(InputError, match=sentence) as error:
        read_part(TINY_MNIST, FolderFiles(tmp_path), "train")
    assert "train-images-idx3-ubyte.gz" in str(error.value) or sentence == "has 0 images"


def test_another_data_set_of_the_same_shape_is_refused(tmp_path):
    """MNIST and Fashion-MNIST share file names and sizes: the counts a class tell them apart."""
    write_idx(tmp_path, TINY_MNIST, packed=False)
    other = replace(TINY_MNIST, name="other", counts={"train": (3, 1, *[2] * 8)})
    with pytest.raises(InputError, match="is not other: its train part has other numbers"):
        read_part(other, FolderFiles(tmp_path), "train")
    with pytest.raises(InputError, match="has 20 images of 12 bytes and 20 labels, published"):
        read_part(replace(TINY_MNIST, n_train=30), FolderFiles(tmp_path), "train")


def test_damaged_cifar_files_are_named(tmp_path):
    write_binary(tmp_path, TINY_CIFAR10)
    path = tmp_path / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"data_batch_3\.bin .* no whole number of 13-byte"):
        read_part(TINY_CIFAR10, FolderFiles(tmp_path), "train")
    path.write_bytes(bytes(13))
    with pytest.raises(InputError, match="has 41 images"):
        read_part(TINY_CIFAR10, FolderFiles(tmp_path), "train")
    write_png_rows(tmp_path, TINY_CIFAR10)
    png = replace(TINY_CIFAR10, layouts={"png-rows": read_png_part})
    for damage in (lambda data: data[: len(data) // 2], lambda data: b"GIF89a" + data):
        name = tmp_path / "data_batch_1.png"
        name.write_bytes(damage(name.read_bytes()))
        with pytest.raises(InputError, match=r"data_batch_1\.png .* not a whole PNG"):
            read_part(png, FolderFiles(tmp_path), "train")
    (tmp_path / "test_lables.json").write_text("[1, 2, 99]")
    with pytest.raises(InputError, match="no list of labels from 0 to 9"):
        read_part(png, FolderFiles(tmp_path), "test")
    for text in ("[1, 2", "[" * 200_000):
        (tmp_path / "test_lables.json").write_text(text)
        with pytest.raises(InputError, match="is not JSON"):
            read_part(png, FolderFiles(tmp_path), "test")


class Attack:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


class Allocation:
    """A numpy array that would be far larger than its file."""

    def __reduce__(self):
        from numpy._core.multiarray import _reconstruct

        return _reconstruct, (np.ndarray, (10**13,), b"b")


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_calls_a_function_is_not_run(tmp_path, protocol):
    target = tmp_path / "was-here"
    python = replace(TINY_CIFAR10, layouts={"cifar-python": read_python_part})
    attacks = (
        {b"data": Attack(target), b"labels": []},
        {b"data": Allocation(), b"labels": [0]},
        {b"data": np.zeros((10, 12)), b"labels": [0] * 10},
        {b"data": np.array([print]), b"labels": [0]},
        {b"data": b"text", b"labels": [0]},
        [1, 2],
    )
    for content in attacks:
        (tmp_path / "test_batch").write_bytes(pickle.dumps(content, protocol=protocol))
        with pytest.raises(InputError, match="test_batch"):
            read_part(python, FolderFiles(tmp_path), "test")
        assert not target.exists()
    bombs = (
        b"\x80\x02Nr\x00\x00\x00\x04.",  # a memo of 2^26 places
        b"\x80\x02Pname\n.",  # an outside object
        b"\x80\x02c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00utf-8tR.",
    )
    for data in (*bombs, b"", b"\x80", b"cos\nsystem\n(S'true'\ntR.", bytes(range(100, 200))):
        (tmp_path / "test_batch").write_bytes(data)
        with pytest.raises(InputError, match="test_batch"):
            read_part(python, FolderFiles(tmp_path), "test")


REFUSED = sorted({opcode.name for opcode in pickletools.opcodes} - pickles._ADMITTED)


@pytest.mark.parametrize("name", REFUSED)
def test_opcodes_that_cifar_does_not_need_are_refused(name):
    (opcode,) = (o for o in pickletools.opcodes if o.name == name)
    data = b"\x80\x02" + opcode.code.encode("latin1") + bytes(8) + b"\n\n."
    with pytest.raises(InputError, match="was not run"):
        pickles.read_batch(data, "batch")


def test_opcodes_that_build_objects_are_among_the_refused():
    assert {"INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"} <= set(REFUSED)
    assert {"PERSID", "BINPERSID", "NEXT_BUFFER", "BYTEARRAY8"} <= set(REFUSED)


def test_a_batch_as_python_2_wrote_it(tmp_path):
    """The opcodes of the published files."""
    images, labels = samples(TINY_CIFAR10, "test")
    (tmp_path / "test_batch").write_bytes(
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03"
        b"cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05(K\x01K\x0aK\x0c\x86"
        b"cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07(K\x03U\x01|NNN"
        b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<I", images.nbytes)
        + images.tobytes()
        + b"tbU\x06labelsq\x08]q\x09("
        + b"".join(b"K" + bytes([label]) for label in labels)
        + b"eu."
    )
    found = read_part(TINY_CIFAR10, FolderFiles(tmp_path), "test")
    assert np.array_equal(found[0], images)
    assert np.array_equal(found[1], labels)


def member(name, kind=tarfile.REGTYPE, size=0, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info


HOSTILE = {
    "climbs out": (member("../../evil"), "a path that leaves it"),
    "absolute": (member("/etc/evil"), "a path that leaves it"),
    "symbolic link": (member("a", tarfile.SYMTYPE, link="/etc/passwd"), "a link or a device"),
    "hard link": (member("a", tarfile.LNKTYPE, link="b"), "a link or a device"),
    "device": (member("a", tarfile.CHRTYPE), "a link or a device"),
    "fifo": (member("a", tarfile.FIFOTYPE), "a link or a device"),
    "bomb": (member("test.bin", size=SLACK + 10**6), "unpacks to more than"),
}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives_are_refused_before_anything_is_used(tmp_path, case, mode):
    info, sentence = HOSTILE[case]
    path = tmp_path / "a.tar"
    with tarfile.open(path, mode) as archive:
        archive.addfile(member("good.bin", size=3), io.BytesIO(b"abc"))
        archive.addfile(info, io.BytesIO(bytes(info.size)))
    with pytest.raises(InputError, match=sentence):
        ArchiveFiles(path, 1000)
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar"]


def test_damaged_archives_are_named(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    write_binary(folder, TINY_CIFAR10)
    whole = pack(folder, tmp_path / "whole.tar.gz", "w:gz").read_bytes()
    path = tmp_path / "cut.tar.gz"
    for data in (whole[: len(whole) // 2], whole[:-20], b"<html>", whole[:50] + b"xx" + whole[52:]):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"cut\.tar\.gz"):
            read_part(TINY_CIFAR10, ArchiveFiles(path, 10**6), "train")


def test_a_gzip_bomb_is_stopped_before_it_takes_memory():
    bomb = gzip.compress(bytes(50 * 2**20))
    tracemalloc.start()
    with pytest.raises(InputError, match="more than the 1,000 bytes"):
        gunzip(bomb, 1000, "bomb.gz")
    assert tracemalloc.get_traced_memory()[1] < 5 * 2**20
    tracemalloc.stop()


def test_long_names_and_many_members_count_as_well(tmp_path):
    long_name, many = tmp_path / "long.tar.gz", tmp_path / "many.tar.gz"
    with tarfile.open(long_name, "w:gz", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(member("a" * (SLACK + 2000)))
    with tarfile.open(many, "w:gz") as archive:
        for _ in range(SLACK // 512 + 100):
            archive.addfile(member("a"))
    for path in (long_name, many):
        with pytest.raises(InputError, match="unpacks to more than"):
            ArchiveFiles(path, 1000)


def test_a_sparse_member_is_refused(tmp_path):
    path = tmp_path / "sparse.tar"
    info = member("a")
    info.pax_headers = {"GNU.sparse.map": "0,10", "GNU.sparse.size": str(10**12)}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    with pytest.raises(InputError, match=r"sparse|unpacks to more"):
        ArchiveFiles(path, 1000)
    info.pax_headers = {"GNU.sparse.map": "a,b"}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    with pytest.raises(InputError, match=r"sparse\.tar"):
        ArchiveFiles(path, 1000)


def test_a_member_of_negative_size_is_refused(tmp_path):
    """It would send a reader back to the header that it has just read."""
    header = bytearray(member("a").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 10 + b"\xfc\x00"  # -1024
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(bytes(header) + bytes(10240))
    with pytest.raises(InputError, match=r"a\.tar is not a whole tar archive"):
        ArchiveFiles(tmp_path / "a.tar", 10**6)


def test_a_member_that_is_not_there_is_refused_at_once(tmp_path):
    """To skip it, block by block, would take years."""
    huge = bytearray(member("a").tobuf(tarfile.GNU_FORMAT))
    huge[124:136] = b"\x80" + (2**60).to_bytes(11, "big")
    huge[148:156] = b" " * 8
    huge[148:156] = b"%06o\0 " % sum(huge)
    pax = member("a")
    pax.pax_headers = {"size": str(2**60)}
    for header in (bytes(huge), pax.tobuf(tarfile.PAX_FORMAT)):
        (tmp_path / "a.tar").write_bytes(header + bytes(10240))
        with pytest.raises(InputError, match="holds a file that is cut off"):
            ArchiveFiles(tmp_path / "a.tar", 10**6)


def test_a_member_beyond_its_limit_is_refused(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        archive.addfile(member("big", size=100), io.BytesIO(bytes(100)))
    with pytest.raises(InputError, match="more than the 99 bytes"):
        ArchiveFiles(path, 1000).read("big", 99)


def test_files_of_different_folders_are_never_mixed(tmp_path):
    """MNIST and Fashion-MNIST share file names: images of one must not meet labels of the other."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_idx(tmp_path / name, TINY_MNIST, packed=False)
    (tmp_path / "one" / "train-labels-idx1-ubyte").unlink()
    found = [f for f in find_files(tmp_path, 10**6) if read_part(TINY_MNIST, f, "train")]
    assert [files.source for files in found] == [str(tmp_path / "two")]
    (tmp_path / "two").rename(tmp_path / ".two")  # hidden: not for us
    assert not any(read_part(TINY_MNIST, f, "train") for f in find_files(tmp_path, 10**6))
