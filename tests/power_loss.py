"""A disk that loses power: what it may hold afterwards, of all that a program did to some files.

``Recorder`` wraps the functions that change names or flush, and looks at the folder around each
call: what libraries write without these functions is seen as well. ``aftermaths`` then cuts the
power after every operation. A flushed file has its content, another one any of its contents so far,
half of one, zeros or nothing. A name in a flushed folder is what it was then; later changes of
names may have happened or not, each by itself.
"""

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from unittest import mock

WRAPPED = ("fsync", "replace", "rename", "unlink", "remove", "mkdir", "rmdir")
FOLDER = b"<folder>"


@dataclass
class Recorder:
    """Records what happens in a folder, as operations on names and files, by their numbers.

    A file's number is that of its inode at first; one that the system uses again gets another.
    """

    root: Path
    operations: list = field(default_factory=list)
    marks: dict = field(default_factory=dict)  # how many operations there were at a moment
    _numbers: dict = field(default_factory=dict)
    _names: dict = field(default_factory=dict)
    _contents: dict = field(default_factory=dict)

    def __enter__(self):
        self._look()
        self.operations.clear()
        self.before = dict(self._names), dict(self._contents)
        self._stack = ExitStack()
        for name in WRAPPED:
            wrapper = self._wrapper(name, getattr(os, name))
            self._stack.enter_context(mock.patch.object(os, name, wrapper))
        return self

    def __exit__(self, *_):
        self._stack.close()
        self._look()

    def mark(self, name):
        """Name this moment; the first one of that name counts."""
        self._look()
        self.marks.setdefault(name, len(self.operations))

    def _wrapper(self, name, original):
        def wrapped(*args, **more):
            self._look()
            result = original(*args, **more)
            if name == "fsync":
                inode = os.fstat(args[0]).st_ino
                self.operations.append(("flush", self._numbers.get(inode, inode)))
            self._look()
            return result

        return wrapped

    def _look(self):
        """Note what has changed since the last look."""
        names, contents, present = {}, {}, set()
        for path in sorted(self.root.rglob("*")):
            inode, folder = path.stat().st_ino, path.is_dir()
            number = self._numbers.setdefault(inode, (inode, len(self.operations)))
            present.add(inode)
            names[str(path.relative_to(self.root))] = number
            contents[number] = FOLDER if folder else path.read_bytes()
        self._numbers = {i: n for i, n in self._numbers.items() if i in present}
        for inode, content in contents.items():
            if self._contents.get(inode) != content:
                self.operations.append(("write", inode, content))
        for name in self._names.keys() - names.keys():
            self.operations.append(("unlink", name))
        for name, inode in names.items():
            if self._names.get(name) != inode:
                self.operations.append(("link", name, inode))
        # A move is one operation: the name that vanished with it is not a second one.
        moved = [i for i in names.values() if i in self._names.values()]
        self._join_moves({n for n, i in self._names.items() if i in moved and n not in names})
        self._names, self._contents = names, contents

    def _join_moves(self, left):
        kept = [op for op in self.operations if not (op[0] == "unlink" and op[1] in left)]
        self.operations[:] = kept


def aftermaths(recorder):
    """Yield (operations done, what the disk may hold): a dict of contents by name, each once."""
    names, contents = recorder.before
    durable, flushed = dict(names), {i: {c} for i, c in contents.items()}
    pending, possible, seen = [], {i: {c} for i, c in contents.items()}, set()
    root = recorder.root.stat().st_ino
    folders = {"": root} | {n: i for n, i in names.items() if contents[i] == FOLDER}
    for done, (what, *about) in enumerate([*recorder.operations, ("end",)]):
        for disk in _disks(durable, pending, possible):
            key = frozenset(disk.items())
            if (done, key) not in seen:
                seen.add((done, key))
                yield done, disk
        if what == "write":
            inode, content = about
            possible[inode] = flushed.get(inode, set()) | _parts(content)
        elif what == "flush":
            (inode,) = about
            latest = recorder_content(recorder, done, inode)
            if latest == FOLDER or inode == root:
                of = next((n for n, i in folders.items() if i == inode), None)
                mine = [op for op in pending if _folder(op[1]) == of]
                for op in mine:
                    _apply(durable, op)
                pending = [op for op in pending if op not in mine]
            else:
                possible[inode] = flushed[inode] = {latest}
        elif what in ("link", "unlink"):
            pending.append((what, *about))
            if what == "link" and recorder_content(recorder, done, about[1]) == FOLDER:
                folders[about[0]] = about[1]


def recorder_content(recorder, done, inode):
    """What a file held after so many operations."""
    writes = [op[2] for op in recorder.operations[:done] if op[0] == "write" and op[1] == inode]
    return writes[-1] if writes else recorder.before[1].get(inode)


def _parts(content):
    if content == FOLDER:
        return {FOLDER}
    return {content, content[: len(content) // 2], bytes(len(content)), b""}


def _folder(name):
    return name.rpartition("/")[0]


def _apply(names, operation):
    what, name, *inode = operation
    if what == "link":
        names[name] = inode[0]
    else:
        names.pop(name, None)


def _disks(durable, pending, possible):
    """All that may be there: any of the pending changes of names, any possible contents."""
    outer = [op for op in pending if ".tmp/" not in op[1]]  # what is in temporary folders is moot
    for choice in product((False, True), repeat=len(outer)):
        names = dict(durable)
        for operation, happened in zip(outer, choice, strict=True):
            if happened:
                _apply(names, operation)
        names = {name: inode for name, inode in names.items() if _reached(name, names)}
        files = [(n, sorted(possible[i])) for n, i in names.items() if ".tmp" not in n]
        for contents in product(*(options for _, options in files)):
            yield dict(zip((name for name, _ in files), contents, strict=True))


def _reached(name, names):
    above = _folder(name)
    return not above or (above in names and _reached(above, names))


def restore(disk, folder):
    """Write what a disk holds into a folder."""
    folder.mkdir()
    for name, content in sorted(disk.items()):
        if content == FOLDER:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
    return folder
