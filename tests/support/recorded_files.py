"""Files that remember what was done to them, what a power cut may leave, and files that fail.

What a power cut may leave of files, as far as POSIX promises anything:

- What was written before the last sync of a file is there. Of what was written since, each page (or
  sector) may be there or not, whatever the order; the size may be any between that at the sync and
  the last. What is missing reads as zeros, or as it was at the sync.
- Names that were created, changed or removed since the last sync of their folder may each be as
  before or as after, whatever the order.
"""

import errno
import itertools
import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.errors import LogInUse
from penstock.log.files import Files

PAGES = (4096, 512)


class Operation(NamedTuple):
    """One change: to the bytes of file `inode`, or to the names in `folder`."""

    kind: str
    inode: int = 0
    position: int = 0
    data: bytes = b""
    path: Path = Path()
    new: Path = Path()


State = dict[Path, bytes]


class RecordedFiles(Files):
    """Files in memory; every change is in `operations`, in order."""

    def __init__(self, state: State | None = None) -> None:
        self.operations: list[Operation] = []
        self.initial: State = dict(state or {})
        self._names: dict[Path, int] = {}
        self._bytes: dict[int, bytearray] = {}
        self._handles: dict[int, int] = {}
        self._numbers = itertools.count(1)
        self._locked: dict[Path, int] = {}
        for path, data in self.initial.items():
            inode = next(self._numbers)
            self._names[path] = inode
            self._bytes[inode] = bytearray(data)
        self.initial_inodes = {inode: path for path, inode in self._names.items()}

    @property
    def state(self) -> State:
        """All files as a process sees them."""
        return {path: bytes(self._bytes[inode]) for path, inode in self._names.items()}

    def make_folder(self, folder: Path) -> None:
        pass

    def lock(self, folder: Path) -> int:
        if folder in self._locked:
            raise LogInUse(str(folder))
        handle = self._locked[folder] = next(self._numbers)
        self._handles[handle] = 0
        return handle

    def sync_folder(self, folder: Path) -> None:
        self.operations.append(Operation("sync folder", path=folder))

    def names(self, folder: Path) -> list[str]:
        return sorted(path.name for path in self._names if path.parent == folder)

    def create(self, path: Path) -> int:
        if path in self._names:
            raise FileExistsError(errno.EEXIST, "file exists", str(path))
        inode = next(self._numbers)
        self._names[path] = inode
        self._bytes[inode] = bytearray()
        self.operations.append(Operation("create", inode, path=path))
        return self._handle(inode)

    def open(self, path: Path) -> int:
        return self._handle(self._inode(path))

    def write(self, handle: int, buffers: list[memoryview]) -> int:
        inode = self._handles[handle]
        data = b"".join(buffers)
        self.operations.append(Operation("write", inode, len(self._bytes[inode]), data))
        self._bytes[inode] += data
        return len(data)

    def sync(self, handle: int) -> None:
        self.operations.append(Operation("sync", self._handles[handle]))

    def close(self, handle: int) -> None:
        del self._handles[handle]
        self._locked = {path: each for path, each in self._locked.items() if each != handle}

    def truncate(self, path: Path, size: int) -> None:
        inode = self._inode(path)
        self.operations.append(Operation("truncate", inode, size))
        del self._bytes[inode][size:]
        self.operations.append(Operation("sync", inode))

    def rename(self, path: Path, new: Path) -> None:
        inode = self._inode(path)
        self.operations.append(Operation("rename", inode, path=path, new=new))
        del self._names[path]
        self._names[new] = inode

    def remove(self, path: Path) -> None:
        if path in self._names:
            self.operations.append(Operation("remove", self._names.pop(path), path=path))

    def free_bytes(self, folder: Path) -> int:  # noqa: ARG002
        return 1 << 40

    def size(self, path: Path) -> int:
        return len(self._bytes[self._inode(path)])

    def read(self, path: Path, position: int, size: int) -> bytes:
        return bytes(self._bytes[self._inode(path)][position : position + size])

    def _inode(self, path: Path) -> int:
        try:
            return self._names[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path)) from None

    def _handle(self, inode: int) -> int:
        handle = next(self._numbers)
        self._handles[handle] = inode
        return handle


# --- Power cuts -----------------------------------------------------------------------------------


class _File:
    """The bytes of one file: as they were at the last sync, and all that was done since."""

    def __init__(self, data: bytes) -> None:
        self.synced = data
        self.since: list[Operation] = []

    def versions(self) -> list[bytes]:
        """The content at the sync, and after each change since."""
        found = [self.synced]
        for operation in self.since:
            data = bytearray(found[-1])
            if operation.kind == "write":
                data += bytes(operation.position - len(data))
                data[operation.position : operation.position + len(operation.data)] = operation.data
            else:
                del data[operation.position :]
            found.append(bytes(data))
        return found


class PowerCut:
    """All that may be on disk if the power fails behind the first `length` operations."""

    def __init__(self, files: RecordedFiles, length: int) -> None:
        self._files = {
            inode: _File(files.initial[path]) for inode, path in files.initial_inodes.items()
        }
        self._names = {path: inode for inode, path in files.initial_inodes.items()}
        self._pending: list[Operation] = []
        for operation in files.operations[:length]:
            self._apply(operation)

    def _apply(self, operation: Operation) -> None:
        if operation.kind == "create":
            self._files[operation.inode] = _File(b"")
        if operation.kind in {"create", "rename", "remove"}:
            self._pending.append(operation)
        elif operation.kind in {"write", "truncate"}:
            self._files[operation.inode].since.append(operation)
        elif operation.kind == "sync":
            file = self._files[operation.inode]
            file.synced, file.since = file.versions()[-1], []
        else:
            for each in self._pending:
                if each.path.parent == operation.path:
                    _name(self._names, each)
            self._pending = [each for each in self._pending if each.path.parent != operation.path]

    def states(self, chance: random.Random, states_max: int) -> Iterator[State]:
        """Yield every legal state where there are few, and chosen ones where there are many.

        Nothing of what was pending, and all of it, are always among them.
        """
        unsynced = [file for file in self._files.values() if file.since]
        page_count = sum(_pages(file) for file in unsynced)
        if len(self._pending) + page_count <= states_max.bit_length() - 1:
            names = list(itertools.product((False, True), repeat=len(self._pending)))
            pages = list(itertools.product((False, True), repeat=page_count))
            for applied, present in itertools.product(names, pages):
                choices = iter(present)
                yield self._state(applied, lambda _: next(choices), None)  # noqa: B023
            return
        none = [False] * len(self._pending)
        yield self._state(none, lambda _: False, None)
        yield self._state([True] * len(none), lambda _: True, None)
        for _ in range(states_max - 2):
            likely = chance.choice((0.1, 0.5, 0.9, 1.0))
            applied = [chance.random() < max(likely, 0.5) for _ in none]
            yield self._state(applied, lambda _: chance.random() < likely, chance)  # noqa: B023

    def _state(
        self, applied: Iterable[bool], present: object, chance: random.Random | None
    ) -> State:
        names = dict(self._names)
        for operation, is_there in zip(self._pending, applied, strict=True):
            if is_there:
                _name(names, operation)
        contents = {inode: _content(file, present, chance) for inode, file in self._files.items()}
        return {path: contents[inode] for path, inode in names.items()}


def _name(names: dict[Path, int], operation: Operation) -> None:
    if operation.kind == "create":
        names[operation.path] = operation.inode
    elif operation.kind == "rename":
        if names.get(operation.path) == operation.inode:
            del names[operation.path]
        names[operation.new] = operation.inode
    elif names.get(operation.path) == operation.inode:
        del names[operation.path]


def _pages(file: _File) -> int:
    """How many pages differ between the sync and now, and one choice for the size."""
    return len(_touched(file, PAGES[0])) + 1


def _touched(file: _File, page: int) -> list[int]:
    old, new = file.synced, file.versions()[-1]
    end = max(len(old), len(new))
    return [at for at in range(0, end, page) if old[at : at + page] != new[at : at + page]]


def _content(file: _File, present: object, chance: random.Random | None) -> bytes:
    """One legal content of a file."""
    if not file.since:
        return file.synced
    versions = file.versions()
    page = PAGES[0] if chance is None else chance.choice(PAGES)
    newest = versions[-1]
    size = len(newest) if present(-1) else len(file.synced)  # type: ignore[operator]
    if chance is not None:
        sizes = [len(each) for each in versions]
        size = chance.choice([*sizes, chance.randint(min(sizes), max(sizes))])
    data = bytearray(size)
    old = file.synced[:size]
    data[: len(old)] = old
    for at in _touched(file, page):
        if present(at):  # type: ignore[operator]
            version = newest if chance is None else chance.choice(versions[1:])
            piece = version[at : at + page][: max(0, size - at)]
            data[at : at + len(piece)] = piece
    return bytes(data)


# --- Failures -------------------------------------------------------------------------------------


class FailingFiles(Files):
    """Real files; writes and syncs fail from the `n`-th on until `mend`, as `failure` says.

    A write that fails for lack of room first takes `short` bytes, as systems do.
    """

    def __init__(
        self,
        *,
        write: int | None = None,
        sync: int | None = None,
        failure: int = errno.ENOSPC,
        short: int = 0,
        write_bytes_max: int | None = None,
    ) -> None:
        self._writes_left = write
        self._syncs_left = sync
        self._failure = failure
        self._short = short
        self._write_bytes_max = write_bytes_max
        self.failures = 0

    def mend(self) -> None:
        """Let everything work again."""
        self._writes_left = self._syncs_left = None

    def write(self, handle: int, buffers: list[memoryview]) -> int:
        if self._writes_left is not None:
            self._writes_left -= 1
            if self._writes_left < 0:
                if self._short:
                    short, self._short = self._short, 0
                    return os.write(handle, b"".join(buffers)[:short])
                self._fail()
        if self._write_bytes_max is not None:
            return os.write(handle, b"".join(buffers)[: self._write_bytes_max])
        return super().write(handle, buffers)

    def sync(self, handle: int) -> None:
        if self._syncs_left is not None:
            self._syncs_left -= 1
            if self._syncs_left < 0:
                self._fail()
        super().sync(handle)

    def _fail(self) -> None:
        self.failures += 1
        raise OSError(self._failure, os.strerror(self._failure))
