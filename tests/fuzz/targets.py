"""One fuzz target for every reader of files: seeds that it reads, how to vary them, how to read.

A target's function makes its folder and returns a ``Target``. Inputs are damaged bytes, or, with
``vary``, files whose outer layer is intact (checksums and all) and whose content is not.

Mutations know the formats; they are not guided by coverage.
"""

import bz2
import gzip
import io
import json
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import torch
from PIL import Image

from data_files import TINY_MNIST, write_idx
from fuzz.mutations import MOST, altered, damaged, vary_tensors
from integer_networks import random_network, whole_network
from paper.matrix.spec import Spec
from zeroone import IntegerModel, load, quantise
from zeroone.data.archives import Files
from zeroone.data.load import load_data
from zeroone.data.splits import Split
from zeroone.nn.backbones import Backbone, make_backbone
from zeroone.nn.heads import SoftmaxCE
from zeroone.nn.inputs import check_rows
from zeroone.nn.labels import encode_labels
from zeroone.nn.network import Network
from zeroone.nn.scaling import Scaling
from zeroone.utils import storage
from zeroone.utils.memmap import map_file
from zeroone.utils.records import SCHEMA, read_record, write_record

Vary = Callable[[Random, list[bytes]], bytes]


@dataclass(frozen=True)
class Target:
    """A reader: the file that it reads, inputs that it accepts, and a call that reads the file."""

    path: Path
    seeds: list[bytes]
    read: Callable[[], object]
    vary: Vary | None = None

    def make(self, rng: Random) -> bytes:
        """Make an input."""
        if self.vary is not None and rng.random() < 0.7:
            made = self.vary(rng, self.seeds)
            if len(made) <= MOST:
                return made
        return damaged(rng, rng.choice(self.seeds), self.seeds)


def model(folder: Path) -> Target:
    """Networks of floating point numbers: dense, residual, convolutional, on a backbone."""
    path = folder / "m.safetensors"
    networks = [whole_network(name) for name in ("dense", "dense stream", "images", "stream")]
    networks[0].name_features([f"column {k}" for k in range(9)])
    scaling = Scaling.identity(128)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = make_backbone("tiny", (1, 8, 8), lambda _units: torch.nn.ReLU())
    backbone = Backbone("tiny", (1, 8, 8), layers, scaling)
    networks.append(
        Network.build((128,), [4], 2, SoftmaxCE()).on_backbone(backbone, Scaling.identity(64))
    )
    seeds = [network.save(path).read_bytes() for network in networks]
    return Target(path, seeds, lambda: load(path), vary_tensors(storage.MODEL, seeds))


def integers(folder: Path) -> Target:
    """Integer models, dense and of images."""
    path = folder / "m.safetensors"
    networks = [quantise(whole_network(name)) for name in ("dense", "images", "stream")]
    networks += [random_network(np.random.default_rng(seed)) for seed in range(5)]
    seeds = [IntegerModel(network).save(path).read_bytes() for network in networks]
    return Target(path, seeds, lambda: load(path), vary_tensors(storage.INTEGERS, seeds))


def _vary_json(rng: Random, seeds: list[bytes]) -> bytes:
    value = json.loads(rng.choice(seeds))
    for _ in range(rng.choice((1, 2, 3))):
        value = altered(rng, value)
    return (json.dumps(value) if rng.random() < 0.98 else "[" * 10_000).encode()


def record(folder: Path) -> Target:
    """The record of a run."""
    path = folder / "record.json"
    sizes = {"active_units": [4], "parameters": 30, "operations": {"macs": 8, "additions": 8}}
    stage = {"settings": {"hidden": [4], "validation": 0.1}, "seed": 0, "n_iter": 1}
    stage["result"] = sizes | {"test_error": 0.1, "seconds": 0.5}
    content = stage | {
        **{"schema": SCHEMA, "kind": "training", "package": "0.2.0", "machine": {"cores": 2}},
        **{"status": "done", "reason": "all epochs", "plan": {"epochs": 1}, "initial": stage},
        "data": {"name": "digits", "samples": {"train": 9, "test": 5}, "sha256": {"train": "ab"}},
        "history": [{"iteration": k, "loss": 1.0, "flipped": [0.1]} for k in range(2)],
    }
    seeds = [write_record(path, content).read_bytes()]
    return Target(path, seeds, lambda: read_record(path), _vary_json)


def _use(split: Split) -> None:
    """Take data as a training does first of all."""
    check_rows(np.asarray(split.X), torch.float32)
    encode_labels(split.y, len(split.X))
    if split.test is not None:
        check_rows(split.X_test, torch.float32)


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def _zipped(members: dict[str, bytes], kind: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", kind) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content, kind)  # of 1980, in every run
    return out.getvalue()


def npz(folder: Path) -> Target:
    """Arrays X and y, zipped."""
    path = folder / "a.npz"
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 4)), np.arange(6) % 2
    seeds = [
        _zipped({name: _npy(array) for name, array in arrays.items()}, kind)
        for arrays, kind in (
            ({"X.npy": X, "y.npy": y}, zipfile.ZIP_STORED),
            ({"X.npy": X.astype(np.float32), "y.npy": y.astype(str)}, zipfile.ZIP_DEFLATED),
            ({"X.npy": X.astype(np.uint8).reshape(6, 2, 2), "y.npy": y}, zipfile.ZIP_DEFLATED),
            ({"X.npy": X, "y.npy": y, "X_test.npy": X, "y_test.npy": y}, zipfile.ZIP_STORED),
        )
    ]

    def vary(random: Random, seeds: list[bytes]) -> bytes:
        with zipfile.ZipFile(io.BytesIO(random.choice(seeds))) as file:
            members = {name: file.read(name) for name in file.namelist()}
        name = random.choice(list(members))
        members[name] = damaged(random, members[name], list(members.values()))
        return _zipped(members, random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))

    return Target(path, seeds, lambda: _use(load_data(str(path))), vary)


def csv(folder: Path) -> Target:
    """Comma-separated values."""
    path = folder / "a.csv"
    seeds = [
        b"width,height,kind\n1,2.5,owl\n 3 ,4,cat\n5,-6e1,owl\n",
        b"1,2,0\n3,4,1\n\n",
        b'\xef\xbb\xbf"a ""b""",b\r\n"1",x\r\n2,y\r\n',
        b"0,1,2,label\n5,6,7,0\n8,9,10,1\n",
    ]
    return Target(path, seeds, lambda: _use(load_data(str(path))))


def image(folder: Path) -> Target:
    """A folder of images, one of which is damaged."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    for name in "ab":
        (folder / "images" / name).mkdir(parents=True)
    Image.fromarray(pixels).save(folder / "images" / "a" / "1.png")
    seeds = []
    for kind in ("PNG", "JPEG", "BMP", "GIF", "WEBP"):
        for picture in (Image.fromarray(pixels), Image.fromarray(pixels[..., 0])):
            out = io.BytesIO()
            picture.save(out, kind)
            seeds.append(out.getvalue())

    def vary(rng: Random, seeds: list[bytes]) -> bytes:
        """Damage the chunks of a PNG, and give them the right checksums."""
        data, out, place = rng.choice(seeds[:2]), b"", 8
        while place < len(data):
            (length,) = struct.unpack(">I", data[place : place + 4])
            chunk = data[place + 4 : place + 8 + length]
            if rng.random() < 0.4:
                content = damaged(rng, chunk[4:] or b"\0", seeds)
                if chunk.startswith(b"IDAT") and rng.random() < 0.5:
                    content = zlib.compress(damaged(rng, zlib.decompress(chunk[4:]), seeds))
                chunk = chunk[:4] + content
            checksum = struct.pack(">I", zlib.crc32(chunk))
            out += struct.pack(">I", len(chunk) - 4) + chunk + checksum
            place += 12 + length
        return data[:8] + out

    path = folder / "images" / "b" / "1.png"
    return Target(path, seeds, lambda: _use(load_data(str(folder / "images"))), vary)


def archive(folder: Path) -> Target:
    """MNIST in a tar archive, plain and compressed."""
    path = folder / "mnist.tar"
    (folder / "files").mkdir()
    write_idx(folder / "files", TINY_MNIST, packed=False)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for k, file in enumerate(sorted((folder / "files").iterdir())):
            packed = gzip.compress(file.read_bytes(), mtime=0)
            content, name = (packed, f"{file.name}.gz") if k % 2 else (file.read_bytes(), file.name)
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    plain = out.getvalue()
    seeds = [plain, gzip.compress(plain, mtime=0), lzma.compress(plain), bz2.compress(plain)]

    def vary(rng: Random, seeds: list[bytes]) -> bytes:
        """Damage the headers of a tar archive, and give them the right checksums."""
        data = bytearray(damaged(rng, seeds[0], seeds))
        for first in range(0, len(data) - 511, 512):
            block = data[first : first + 512]
            if block[257:262] == b"ustar":
                block[148:156] = b" " * 8
                data[first + 148 : first + 156] = b"%06o\0 " % sum(block)
        return gzip.compress(data, 1, mtime=0) if rng.random() < 0.3 else bytes(data)

    def read() -> None:
        files = Files.of_archive(path, TINY_MNIST.n_bytes)
        for part in ("train", "test"):
            TINY_MNIST.read_part(files, part)

    return Target(path, seeds, read, vary)


def toml(folder: Path) -> Target:
    """The settings of a run matrix."""
    path = folder / "matrix.toml"
    seeds = [
        b'data = ["digits"]\narchitectures = ["f3nn:10-10"]\nmethods = ["relu"]\nseeds = 3\n',
        b'data = ["digits", "mnist"]\narchitectures = ["f3nn:8"]\nmethods = ["ste", "fast"]\n'
        b"noise = [0, 0.1]\nimages = [0, 7]\npaired = true\nlabel = 'kind'\n[train]\nepochs = 10\n"
        b"[baselines]\nsmoothing = 0.0\n[bcd]\nkeep = 0.9\n[pretraining]\nbatch = 64\n"
        b'[variants.fast]\nmethod = "ste"\nlearning_rate = 3e-3\n',
    ]
    return Target(path, seeds, lambda: Spec.read(path).runs())


def array(folder: Path) -> Target:
    """An array that is mapped, of numbers or of text."""
    path = folder / "a.npy"
    arrays = (np.ones((3, 4), np.float32), np.ones((3, 4), np.uint8), np.array(["owl", "cat"]))
    return Target(path, list(map(_npy, arrays)), lambda: np.array(map_file(path)))


TARGETS: dict[str, Callable[[Path], Target]] = {
    "model": model,
    "integers": integers,
    "record": record,
    "npz": npz,
    "csv": csv,
    "image": image,
    "archive": archive,
    "toml": toml,
    "array": array,
}
