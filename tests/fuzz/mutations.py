"""Damage of bytes, of text, of JSON and of our safetensors files, from a random generator."""

import json
import re
import struct
import zlib

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save

from zeroone.utils import storage

MOST = 2**16  # bytes of an input
NUMBERS = (0, 1, 2, 3, 7, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)
WORDS = ("-1", "1e999", "NaN", "-0", "1e-320", "0x10", "9" * 30, "9" * 5000, "\0", "é", "\u202e")
VALUES = (
    *(None, True, False, -1, 0, 1, 2, 3, 10**6, 2**26, 2**31, 2**63, 10**30, 0.5, 1e300, -1e-320),
    *("", "a", "\0", "\x1b[2J", "\ud800", "é" * 50, [], {}, [0], [[]], {"a": 1}, [1] * 1000),
    *(float("nan"), float("inf")),
)


def flip_bits(rng, data, _others):
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def set_bytes(rng, data, _others):
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] = rng.choice((0, 1, 10, 32, 48, 127, 128, 255))


def cut_the_end(rng, data, _others):
    del data[rng.randrange(len(data)) :]


def cut_a_piece(rng, data, _others):
    first = rng.randrange(len(data))
    del data[first : first + rng.choice((1, 2, 4, 16, 256))]


def repeat_a_piece(rng, data, _others):
    first = rng.randrange(len(data))
    piece = data[first : first + rng.choice((1, 2, 8, 64, 512))]
    data[first:first] = piece * rng.choice((1, 2, 10, 1000))


def insert_noise(rng, data, _others):
    place = rng.randrange(len(data) + 1)
    data[place:place] = rng.randbytes(rng.choice((1, 2, 4, 16)))


def splice(rng, data, others):
    """Go on as another input, from some place on."""
    other = rng.choice(others)
    first, place = rng.randrange(len(other) + 1), rng.randrange(len(data) + 1)
    data[place:] = other[first:]


def set_a_length(rng, data, _others):
    """Write a number where a length may be."""
    kind = rng.choice(("<H", ">H", "<I", ">I", "<Q", ">Q"))
    number = rng.choice(NUMBERS) & (256 ** struct.calcsize(kind) - 1)
    place = rng.randrange(len(data))
    data[place : place + struct.calcsize(kind)] = struct.pack(kind, number)


def change_a_number(rng, data, _others):
    """Replace digits by other digits, or a word."""
    places = [found.span() for found in re.finditer(rb"\d+", bytes(data[:4096]))]
    if places:
        first, last = rng.choice(places)
        data[first:last] = str(rng.choice((*NUMBERS, *WORDS))).encode()


def insert_a_word(rng, data, _others):
    place = rng.randrange(len(data) + 1)
    data[place:place] = rng.choice(WORDS).encode()


DAMAGES = (
    *(flip_bits, set_bytes, cut_the_end, cut_a_piece, repeat_a_piece, insert_noise, splice),
    *(set_a_length, change_a_number, insert_a_word),
)


def damaged(rng, data, others):
    """Damage bytes in one to four ways."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        if changed:
            rng.choice(DAMAGES)(rng, changed, others)
    return bytes(changed[:MOST])


def altered(rng, value):
    """Alter one entry of a value as JSON has it, anywhere in it, or the value itself."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        return _alter_dict(rng, value)
    if isinstance(value, list) and value and rng.random() < 0.8:
        return _alter_list(rng, value)
    kind = rng.random()
    if kind < 0.3 and type(value) in (int, float):
        return value + rng.choice((-2, -1, 1, 2))
    if kind < 0.35:
        for _ in range(rng.choice((3, 50))):
            value = [value]
        return value
    return rng.choice(VALUES)


def _alter_dict(rng, value):
    key, kind = rng.choice(list(value)), rng.random()
    if kind < 0.1:
        return {k: v for k, v in value.items() if k != key}
    if kind < 0.15:
        return value | {rng.choice(("a", "", key + "x", "\ud800")): value[key]}
    return value | {key: altered(rng, value[key])}


def _alter_list(rng, value):
    k, kind = rng.randrange(len(value)), rng.random()
    if kind < 0.15:
        return value[:k] + value[k + 1 :]
    if kind < 0.3:
        return value[:k] + value[k : k + 1] * rng.choice((2, 3, 200)) + value[k + 1 :]
    return [*value[:k], altered(rng, value[k]), *value[k + 1 :]]


def _tensors_of(data):
    """Take one of our safetensors files apart: its header, and its tensors."""
    (length,) = struct.unpack("<Q", data[:8])
    (text,) = json.loads(data[8 : 8 + length])["__metadata__"].values()
    return json.loads(text.partition(" ")[2]), dict(sorted(load_tensors(data).items()))


def _signed(kind, header, tensors):
    """Put a safetensors file together, with the right checksum."""
    text = json.dumps(header)
    return save(tensors, {kind: f"{storage.checksum(text, tensors)} {text}"})


def vary_tensors(kind, seeds):
    """Vary our own safetensors files behind their checksum."""
    parts = {seed: _tensors_of(seed) for seed in seeds}

    def vary(rng, _seeds):
        header, tensors = parts[rng.choice(seeds)]
        tensors = dict(tensors)
        for _ in range(rng.choice((1, 1, 2, 3))):
            if rng.random() < 0.6:
                header = altered(rng, header)
            else:
                _alter_tensors(rng, tensors)
        return _signed(kind, header, tensors)

    return vary


def _alter_tensors(rng, tensors):
    if not tensors:
        return
    name, kind = rng.choice(list(tensors)), rng.random()
    T = tensors[name]
    if kind < 0.1:
        del tensors[name]
    elif kind < 0.2:
        tensors[rng.choice((name + "x", "", "a", *tensors))] = T.clone()
    elif kind < 0.3:
        tensors[name] = T.to(rng.choice((torch.float16, torch.int64, torch.bool, torch.float64)))
    elif kind < 0.45:
        shapes = ([-1], [1, -1], [-1, 1], [1, 1, 1, -1])
        tensors[name] = T.reshape(rng.choice(shapes)) if T.numel() else T.reshape(0, 2)
    elif kind < 0.6:
        tensors[name] = T.reshape(-1)[: rng.randrange(T.numel() + 1)].clone()
    elif kind < 0.7:
        bomb = zlib.compress(bytes(rng.choice((10**3, 10**5, 10**7))))
        tensors[name] = torch.frombuffer(bytearray(bomb), dtype=torch.uint8)
    elif T.numel() and T.dtype.is_floating_point:
        changed = T.clone().reshape(-1)
        odd = (0.0, -1.0, 1e-45, 1e38, float("nan"), float("inf"))
        changed[rng.randrange(T.numel())] = rng.choice(odd)
        tensors[name] = changed.reshape(T.shape)
    elif T.numel():
        raw = bytearray(T.contiguous().numpy().tobytes())
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        tensors[name] = torch.frombuffer(raw, dtype=T.dtype).reshape(T.shape)
