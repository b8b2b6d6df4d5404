"""Canonical file layouts and hostile archives, on small files that these tests write."""

import gzip
import io
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
)
from zeroone.data.archives import SLACK, Files, find_files
from zeroone.data.cifar import read_png_part
from zeroone.data.published import PublishedImages
from zeroone.data.registry import REGISTRY
from zeroone.utils.checks import InputError

WRITERS = {
    "idx": (TINY_MNIST, lambda f, s: write_idx(f, s, packed=False)),
    "idx.gz": (TINY_MNIST, lambda f, s: write_idx(f, s, packed=True)),
    "cifar10 binary": (TINY_CIFAR10, write_binary),
    "cifar100 binary": (TINY_CIFAR100, write_binary),
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
        images, labels = spec.read_part(files, part)
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
        assert all(len(digest) == 64 for digest in spec.remotes.values())


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
        TINY_MNIST.read_part(Files.of_folder(tmp_path), "train")
    assert "train-images-idx3-ubyte.gz" in str(error.value) or sentence == "has 0 images"


def test_another_data_set_of_the_same_shape_is_refused(tmp_path):
    """MNIST and Fashion-MNIST share file names and sizes: the counts a class tell them apart."""
    write_idx(tmp_path, TINY_MNIST, packed=False)
    other = replace(TINY_MNIST, name="other", counts={"train": (3, 1, *[2] * 8)})
    with pytest.raises(InputError, match="is not other: its train part has other numbers"):
        other.read_part(Files.of_folder(tmp_path), "train")
    with pytest.raises(InputError, match="has 20 images of 12 bytes and 20 labels, published"):
        replace(TINY_MNIST, n_train=30).read_part(Files.of_folder(tmp_path), "train")


def test_damaged_cifar_files_are_named(tmp_path):
    write_binary(tmp_path, TINY_CIFAR10)
    path = tmp_path / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"data_batch_3\.bin .* no whole number of 13-byte"):
        TINY_CIFAR10.read_part(Files.of_folder(tmp_path), "train")
    path.write_bytes(bytes(13))
    with pytest.raises(InputError, match="has 41 images"):
        TINY_CIFAR10.read_part(Files.of_folder(tmp_path), "train")
    write_png_rows(tmp_path, TINY_CIFAR10)
    png = replace(TINY_CIFAR10, layouts={"png-rows": read_png_part})
    for damage in (lambda data: data[: len(data) // 2], lambda data: b"GIF89a" + data):
        name = tmp_path / "data_batch_1.png"
        name.write_bytes(damage(name.read_bytes()))
        with pytest.raises(InputError, match=r"data_batch_1\.png .* not a whole PNG"):
            png.read_part(Files.of_folder(tmp_path), "train")
    (tmp_path / "test_lables.json").write_text("[1, 2, 99]")
    with pytest.raises(
        InputError, match=r"is not cifar10: its test part has 10 images .* and 3 labels"
    ):
        png.read_part(Files.of_folder(tmp_path), "test")
    for text in ("[1, 2", "[" * 200_000):
        (tmp_path / "test_lables.json").write_text(text)
        with pytest.raises(InputError, match="is not a list of labels"):
            png.read_part(Files.of_folder(tmp_path), "test")


def member(name, kind=tarfile.REGTYPE, size=0, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info


HOSTILE = {
    "climbs out": member("../../evil", size=3),
    "absolute": member("/etc/evil", size=3),
    "symbolic link": member("a", tarfile.SYMTYPE, link="/etc/passwd"),
    "hard link": member("a", tarfile.LNKTYPE, link="b"),
    "device": member("a", tarfile.CHRTYPE),
    "fifo": member("a", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_members_do_nothing(tmp_path, case, mode):
    """A path counts by its last part, in memory; what is no file is not there."""
    info = HOSTILE[case]
    path = tmp_path / "a.tar"
    with tarfile.open(path, mode) as archive:
        archive.addfile(member("good.bin", size=3), io.BytesIO(b"abc"))
        archive.addfile(info, io.BytesIO(bytes(info.size)))
    files = Files.of_archive(path, 1000)
    assert files.read("good.bin", 3) == b"abc"
    assert ("evil" in files, "a" in files) == (info.isreg(), False)
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar"]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_an_archive_that_is_too_large_is_refused(tmp_path, mode):
    with tarfile.open(tmp_path / "a.tar", mode) as archive:
        archive.addfile(member("test.bin", size=SLACK + 10**6), io.BytesIO(bytes(SLACK + 10**6)))
    with pytest.raises(InputError, match=r"a\.tar has more than the"):
        Files.of_archive(tmp_path / "a.tar", 1000)


def test_damaged_archives_are_named(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    write_binary(folder, TINY_CIFAR10)
    whole = pack(folder, tmp_path / "whole.tar.gz", "w:gz").read_bytes()
    path = tmp_path / "cut.tar.gz"
    for data in (whole[: len(whole) // 2], whole[:-20], b"<html>", whole[:50] + b"xx" + whole[52:]):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"cut\.tar\.gz"):
            TINY_CIFAR10.read_part(Files.of_archive(path, 10**6), "train")


def test_a_gzip_bomb_is_stopped_before_it_takes_memory(tmp_path):
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(50 * 2**20)))
    tracemalloc.start()
    with pytest.raises(InputError, match="more than the 1,000 bytes"):
        Files.of_folder(tmp_path).read("bomb.gz", 1000)
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
        with pytest.raises(InputError, match="has more than the"):
            Files.of_archive(path, 1000)


def test_a_sparse_member_is_refused(tmp_path):
    path = tmp_path / "sparse.tar"
    info = member("a")
    info.pax_headers = {"GNU.sparse.map": "0,10", "GNU.sparse.size": str(10**12)}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    with pytest.raises(InputError, match=r"sparse\.tar"):
        Files.of_archive(path, 1000)
    info.pax_headers = {"GNU.sparse.map": "a,b"}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info)
    with pytest.raises(InputError, match=r"sparse\.tar"):
        Files.of_archive(path, 1000)


def test_a_member_of_negative_size_is_refused(tmp_path):
    """It would send a reader back to the header that it has just read."""
    header = bytearray(member("a").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 10 + b"\xfc\x00"  # -1024
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(bytes(header) + bytes(10240))
    with pytest.raises(InputError, match=r"a\.tar is not a whole tar archive"):
        Files.of_archive(tmp_path / "a.tar", 10**6)


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
        with pytest.raises(InputError, match="a file in it is cut off"):
            Files.of_archive(tmp_path / "a.tar", 10**6)


def test_a_member_beyond_its_limit_is_refused(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        archive.addfile(member("big", size=100), io.BytesIO(bytes(100)))
    with pytest.raises(InputError, match="more than the 99 bytes"):
        Files.of_archive(path, 1000).read("big", 99)


def test_files_of_different_folders_are_never_mixed(tmp_path):
    """MNIST and Fashion-MNIST share file names: images of one must not meet labels of the other."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_idx(tmp_path / name, TINY_MNIST, packed=False)
    (tmp_path / "one" / "train-labels-idx1-ubyte").unlink()
    found = [f for f in find_files(tmp_path, 10**6) if TINY_MNIST.read_part(f, "train")]
    assert [files.source for files in found] == [str(tmp_path / "two")]
    (tmp_path / "two").rename(tmp_path / ".two")  # hidden: not for us
    assert not any(TINY_MNIST.read_part(f, "train") for f in find_files(tmp_path, 10**6))
