"""Messages between ranks on one machine: each writes into memory that all of them see.

Through sockets, even the smallest sum takes a millisecond, and large ones take the cores' time.
"""

import mmap
import os
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

MEMORY = Path("/dev/shm")
HALF = 2**25  # bytes: a rank has two halves, one for what is posted, one for what is still read
LEAST_HALF = 2**20
LINE = 64  # bytes between numbers that different ranks write
EAGER = 0.0005  # seconds of waiting without sleep
NAP = 0.0001


@dataclass(frozen=True)
class Note:
    """Where each rank has put a message: its number, and its place in the rank's memory."""

    number: int
    place: int
    dtype: torch.dtype
    length: int


class Postbox:
    """The memory of one rank and of all others.

    All ranks post the same messages, in the same order and of the same lengths, so that they agree
    on the places without a word.
    """

    def __init__(self, memory: mmap.mmap, rank: int, size: int, half: int) -> None:
        self._memory, self._half, self._rank = memory, half, rank
        self._areas = [2 * LINE * size + 2 * half * k for k in range(size)]
        numbers = np.frombuffer(memory, np.int64, 2 * size * LINE // 8).reshape(2, size, -1)
        self._posted, self._read = numbers[0, :, 0], numbers[1, :, 0]
        self._number = 0  # of the last message
        self._open: set[int] = set()  # numbers of messages that this rank has yet to read
        self._side, self._used = 0, 0  # the half of the last message, and its bytes so far
        self._last = [0, 0]  # the last number in each half
        self._fence = threading.Lock()
        self.waited = 0.0  # seconds, for others

    @staticmethod
    def bytes_of(size: int, half: int) -> int:
        """How much memory so many ranks need."""
        return (2 * LINE + 2 * half) * size

    def takes(self, message: Tensor) -> bool:
        """Whether it is small enough."""
        return message.numel() * message.element_size() <= self._half

    def post(self, *parts: Tensor, wait: Callable[[], None]) -> Note | None:
        """Show a message, whose parts have one dtype, to all ranks; None if it does not fit.

        ``wait`` is called again and again where others have to read first.
        """
        length, dtype = sum(part.numel() for part in parts), parts[0].dtype
        place = self._find(length * dtype.itemsize, wait)
        if place is None:
            return None
        self._number += 1
        note = Note(self._number, place, dtype, length)
        start, own = 0, self._view(note, self._rank)
        for part in parts:
            own[start : start + part.numel()].view_as(part).copy_(part)
            start += part.numel()
        self._last[self._side] = note.number
        self._open.add(note.number)
        self._order()
        self._posted[self._rank] = note.number
        return note

    def read(self, note: Note, wait: Callable[[], None]) -> list[Tensor]:
        """What each rank wrote there, once all have; to be copied before ``close``."""
        self._until(lambda: bool((self._posted >= note.number).all()), wait)
        self._order()
        return [self._view(note, rank) for rank in range(len(self._areas))]

    def close(self, note: Note) -> None:
        """The message has been read: all before the oldest open one may be written over."""
        self._open.discard(note.number)
        self._order()
        self._read[self._rank] = min(self._open, default=self._number + 1) - 1

    def _find(self, n_bytes: int, wait: Callable[[], None]) -> int | None:
        """A place for the next message, after the last or at the start of the other half."""
        if not self._open or self._used + n_bytes > self._half:
            last = self._last[1 - self._side]
            if n_bytes > self._half or any(number <= last for number in self._open):
                return None
            self._until(lambda: bool((self._read >= last).all()), wait)
            self._side, self._used = 1 - self._side, 0
        place = self._side * self._half + self._used
        self._used += -(-n_bytes // LINE) * LINE
        return place

    def _until(self, done: Callable[[], bool], wait: Callable[[], None]) -> None:
        begun = time.perf_counter()
        while not done():
            if time.perf_counter() - begun < EAGER:
                _pass_on()
            else:
                wait()
                time.sleep(NAP)
        self.waited += time.perf_counter() - begun

    def _view(self, note: Note, rank: int) -> Tensor:
        offset = self._areas[rank] + note.place
        if not note.length:
            return torch.empty(0, dtype=note.dtype)
        return torch.frombuffer(self._memory, dtype=note.dtype, count=note.length, offset=offset)

    def _order(self) -> None:
        """What was written before is seen before: to leave a lock and take it again is a fence."""
        for _ in range(2):
            with self._fence:
                pass


_pass_on = getattr(os, "sched_yield", lambda: time.sleep(0))  # to whoever has work


def reserve(size: int) -> tuple[Path, int] | None:
    """A new file in memory for so many ranks, and the bytes of a half; None if there is no room."""
    try:
        room = os.statvfs(MEMORY)
        half = min(HALF, room.f_bavail * room.f_frsize // (4 * size)) // LINE * LINE
        if half < LEAST_HALF:
            return None
        handle, name = tempfile.mkstemp(dir=MEMORY, prefix="zeroone-")
    except (OSError, AttributeError):  # not there, or a system that has no such memory
        return None
    try:
        os.posix_fallocate(handle, 0, Postbox.bytes_of(size, half))  # or a write would kill later
    except (OSError, AttributeError):
        Path(name).unlink()
        return None
    finally:
        os.close(handle)
    return Path(name), half


def join(path: Path, rank: int, size: int, half: int) -> Postbox | None:
    """The postbox in that file; None on another machine."""
    try:
        with path.open("r+b") as file:
            return Postbox(mmap.mmap(file.fileno(), Postbox.bytes_of(size, half)), rank, size, half)
    except (OSError, ValueError):
        return None
