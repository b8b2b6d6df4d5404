"""Messages through memory: all arrive, none is written over before everyone has read it."""

import mmap
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from zeroone import postbox
from zeroone.postbox import LINE, Postbox, join, reserve

HALF = 4 * LINE


def postboxes(size, half=HALF):
    memory = mmap.mmap(-1, Postbox.bytes_of(size, half))
    return [Postbox(memory, rank, size, half) for rank in range(size)]


def never():
    raise TimeoutError


def numbers(*values):
    return torch.tensor(values, dtype=torch.float32)


def test_parts_are_read_together():
    first, second = postboxes(2)
    notes = [
        member.post(numbers(k, 2), torch.full((2, 2), 3.0 + k).T, wait=never)
        for k, member in enumerate((first, second))
    ]
    for member, note in zip((first, second), notes, strict=True):
        found = [T.tolist() for T in member.read(note, never)]
        assert found == [[0, 2, 3, 3, 3, 3], [1, 2, 4, 4, 4, 4]]


def test_who_is_behind_is_waited_for():
    first, second = postboxes(2)
    note = first.post(numbers(1), wait=never)
    with pytest.raises(TimeoutError):
        first.read(note, never)
    second.post(numbers(2), wait=never)
    assert [float(T) for T in first.read(note, never)] == [1, 2]


def test_nothing_is_written_over_before_it_is_read():
    """The third message would need the place of the first, which the other has yet to read."""
    first, second = postboxes(2)
    for k in range(2):
        mine = first.post(numbers(k), wait=never)
        theirs = second.post(numbers(10 + k), wait=never)
        first.read(mine, never)
        first.close(mine)
        if k == 0:
            late = theirs
    with pytest.raises(TimeoutError):
        first.post(numbers(2), wait=never)
    assert [float(T) for T in second.read(late, never)] == [0, 10]
    second.close(late)
    assert first.post(numbers(2), wait=never) is not None


def test_what_does_not_fit_goes_another_way():
    first, second = postboxes(2)
    half, little = torch.zeros(HALF // 4), numbers(1)
    for member in (first, second):
        assert member.post(torch.zeros(HALF // 4 + 1), wait=never) is None
        assert member.post(half, wait=never) is not None
        note = member.post(half, wait=never)
        assert note is not None
        # Both halves are full of messages that this rank itself has yet to read.
        assert member.post(little, wait=never) is None
        member.close(note)
        assert member.post(little, wait=never) is None


@pytest.mark.parametrize("size", [2, 3])
def test_many_messages(size):
    """Random lengths and orders of reading, ranks at their own speeds."""
    members = postboxes(size, 16 * LINE)
    limit = threading.Event()

    def wait():
        if limit.wait(0):
            raise TimeoutError

    def work(rank):
        plan = torch.Generator().manual_seed(1)
        open_notes, wrong, sent = [], 0, 0
        for k in range(2000):
            length = int(torch.randint(0, 200, (), generator=plan))
            note = members[rank].post(torch.full((length,), float(k * size + rank)), wait=wait)
            if note is not None:
                open_notes.append((k, note))
                sent += 1
            while open_notes and (note is None or torch.rand((), generator=plan) < 0.6):
                which = int(torch.randint(0, len(open_notes), (), generator=plan))
                number, done = open_notes.pop(which)
                found = members[rank].read(done, wait)
                wrong += sum(bool((number * size + r != T).any()) for r, T in enumerate(found))
                members[rank].close(done)
                note = done
        return wrong, sent

    timer = threading.Timer(60, limit.set)
    timer.start()
    with ThreadPoolExecutor(size) as pool:
        results = list(pool.map(work, range(size)))
    timer.cancel()
    assert len(set(results)) == 1
    assert results[0][0] == 0
    assert results[0][1] > 1500


def test_memory_is_reserved_and_found(monkeypatch, tmp_path):
    monkeypatch.setattr(postbox, "MEMORY", tmp_path)
    monkeypatch.setattr(postbox, "HALF", 2**20)
    path, half = reserve(2)
    assert path.stat().st_size == Postbox.bytes_of(2, half)
    members = [join(path, rank, 2, half) for rank in range(2)]
    path.unlink()
    notes = [member.post(numbers(k), wait=never) for k, member in enumerate(members)]
    assert [float(T) for T in members[0].read(notes[0], never)] == [0, 1]
    assert join(path, 0, 2, half) is None
    monkeypatch.setattr(postbox, "LEAST_HALF", 2**21)
    assert reserve(2) is None
    monkeypatch.setattr(postbox, "MEMORY", tmp_path / "nowhere")
    assert reserve(2) is None
    assert list(tmp_path.iterdir()) == []
