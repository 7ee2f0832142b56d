"""What a power cut may leave of files, as far as POSIX promises anything.

- What was written before the last sync of a file is there. Of what was written since, each page (or
  each sector of one) may be there or not, whatever the order, and as it was after any write since.
  The size is any that the file had since, also between the pages of one write. What is missing
  reads as zeros, or as it was at the sync.
- What was not on disk when a sync failed may be there or not for ever: a later sync that succeeds
  says nothing of it.
- Names that were created, changed or removed since the last sync of their folder may each be as
  before or as after, whatever the order.
"""

import itertools
import math
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from tests.support.recorded_files import Operation, RecordedFiles, State

PAGE = 4096
SECTOR = 512
PENDING_MAX = 8
"""Names in doubt of which every combination is tried."""

Names = dict[Path, int]


class _Shape:
    """The contents that a file may have at one size: for each piece of it, those of which one."""

    def __init__(self, size: int, pieces: list[list[bytes]]) -> None:
        self.size = size
        self.pieces = pieces
        self.count = math.prod(map(len, pieces))

    def all(self) -> Iterator[bytes]:
        return map(b"".join, itertools.product(*self.pieces))

    def some(self, chance: random.Random, likely: float) -> bytes:
        """One of them; the newest of each piece is as likely as told."""
        return b"".join(
            each[-1] if chance.random() < likely else chance.choice(each) for each in self.pieces
        )


class _File:
    """The bytes of one file: what is on disk for sure, and what was done since.

    Nothing of it changes: `changed` and `synced` return what it is then.
    """

    def __init__(self, durable: bytes, since: tuple[tuple[Operation, bool], ...] = ()) -> None:
        self.durable = durable
        self.since = since  # each with whether no sync can make up for it any more
        self._shapes: dict[int, list[_Shape]] = {}

    def changed(self, operation: Operation) -> "_File":
        return _File(self.durable, (*self.since, (operation, False)))

    def synced(self) -> "_File":
        if not any(doubtful for _, doubtful in self.since):
            return _File(self.versions[-1])
        newest = self.versions[-1]
        size = len(newest)
        data = bytearray(self.durable[:size].ljust(size, b"\0"))
        for operation, doubtful in self.since:
            if operation.kind == "truncate":
                data[operation.position :] = bytes(len(data[operation.position :]))
            elif not doubtful:  # sectors are written whole, with all that the system has of them
                start = operation.position // SECTOR * SECTOR
                end = -(-(operation.position + len(operation.data)) // SECTOR) * SECTOR
                data[start:end] = newest[start:end]
        left = [
            (operation._replace(data=operation.data[: size - operation.position]), True)
            for operation, doubtful in self.since
            if doubtful and operation.kind == "write" and operation.position < size
        ]
        return _File(bytes(data), tuple(left))

    def sync_failed(self) -> "_File":
        return _File(self.durable, tuple((operation, True) for operation, _ in self.since))

    @cached_property
    def versions(self) -> list[bytes]:
        """What is on disk for sure, and the content after each change since."""
        found = [self.durable]
        for operation, _ in self.since:
            data = bytearray(found[-1])
            if operation.kind == "write":
                _put(data, operation.position, operation.data)
            else:
                del data[operation.position :]
            found.append(bytes(data))
        return found

    def shapes(self, page: int) -> list[_Shape]:
        """All contents that it may have, by size."""
        if page not in self._shapes:
            sizes = {len(each) for each in self.versions}
            for operation, _ in self.since:
                end = operation.position + len(operation.data)
                sizes |= set(range(operation.position // PAGE * PAGE + PAGE, end, PAGE))
            self._shapes[page] = [self._shape(size, page) for size in sorted(sizes)]
        return self._shapes[page]

    def _shape(self, size: int, page: int) -> _Shape:
        versions = [each[:size].ljust(size, b"\0") for each in self.versions]
        pieces: list[list[bytes]] = []
        same = 0  # where the bytes start that are the same whatever happened
        for at in range(0, size, page):
            piece = list(dict.fromkeys(each[at : at + page] for each in versions))
            if len(piece) > 1:
                pieces += [[versions[0][same:at]], piece]
                same = at + page
        return _Shape(size, [*pieces, [versions[0][same:]]])


def _put(data: bytearray, position: int, written: bytes) -> None:
    data += bytes(max(0, position - len(data)))
    data[position : position + len(written)] = written


class Disk:
    """What may be on disk after the operations that were applied to it so far."""

    def __init__(self, files: RecordedFiles) -> None:
        inodes = files.initial_inodes
        self._files = {inode: _File(files.initial[path]) for inode, path in inodes.items()}
        self._names = {path: inode for inode, path in inodes.items()}
        self._pending: list[Operation] = []
        self._variants: list[Names] | None = None

    def apply(self, operation: Operation) -> None:
        """Let one more operation have been done."""
        inode = operation.inode
        if operation.kind in {"create", "rename", "remove", "sync folder"}:
            self._variants = None
        match operation.kind:
            case "create" | "rename" | "remove":
                if operation.kind == "create":
                    self._files[inode] = _File(b"")
                self._pending.append(operation)
            case "write" | "truncate":
                self._files[inode] = self._files[inode].changed(operation)
            case "sync":
                self._files[inode] = self._files[inode].synced()
            case "sync failed":
                self._files[inode] = self._files[inode].sync_failed()
            case "sync folder":
                for each in self._pending:
                    if each.path.parent == operation.path:
                        _name(self._names, each)
                self._pending = [
                    each for each in self._pending if each.path.parent != operation.path
                ]

    @property
    def nothing(self) -> State:
        """Of all that is not on disk for sure, nothing."""
        return {path: self._files[inode].durable for path, inode in self._names.items()}

    def count(self, page: int) -> int:
        """How many states there may be, where pages of this size are written or not."""
        if len(self._pending) > PENDING_MAX:
            return sys.maxsize
        return sum(
            math.prod(
                sum(shape.count for shape in self._files[inode].shapes(page))
                for inode in names.values()
            )
            for names in self._folders()
        )

    def all(self, page: int) -> Iterator[State]:
        """Yield every state that there may be."""
        contents = {
            inode: [content for shape in self._files[inode].shapes(page) for content in shape.all()]
            for inode in {inode for names in self._folders() for inode in names.values()}
        }
        for names in self._folders():
            for chosen in itertools.product(*(contents[inode] for inode in names.values())):
                yield dict(zip(names, chosen, strict=True))

    def some(self, chance: random.Random, count: int) -> Iterator[State]:
        """Yield states that there may be: with nothing, with everything, and any others."""
        folders = self._folders()
        yield self.nothing
        yield {path: self._files[inode].versions[-1] for path, inode in folders[-1].items()}
        for _ in range(count - 2):
            likely = chance.choice((0.0, 0.2, 0.6, 0.9))
            names = folders[-1] if chance.random() < likely else chance.choice(folders)
            page = chance.choice((PAGE, SECTOR))
            yield {
                path: chance.choice(self._files[inode].shapes(page)).some(chance, likely)
                for path, inode in names.items()
            }

    def states(self, chance: random.Random, states_max: int) -> tuple[bool, Iterator[State]]:
        """Return every state by sectors if there are not too many, or by pages and some others.

        The first tells whether they are all.
        """
        if self.count(SECTOR) <= states_max:
            return True, self.all(SECTOR)
        if self.count(PAGE) <= states_max // 2:
            return False, itertools.chain(self.all(PAGE), self.some(chance, states_max // 2))
        return False, self.some(chance, states_max)

    def _folders(self) -> list[Names]:
        """Return all that the names may be; the last is as the process sees it."""
        if self._variants is None:
            pending = self._pending
            choices: Iterable[Sequence[bool]]
            if len(pending) <= PENDING_MAX:
                choices = itertools.product((False, True), repeat=len(pending))
            else:
                chance = random.Random(len(pending))
                some = [[chance.random() < 0.5 for _ in pending] for _ in range(1 << PENDING_MAX)]
                choices = [[False] * len(pending), *some, [True] * len(pending)]
            found: dict[frozenset[tuple[Path, int]], Names] = {}
            for applied in choices:
                names = dict(self._names)
                for operation in itertools.compress(pending, applied):
                    _name(names, operation)
                key = frozenset(names.items())
                found.pop(key, None)  # the last is to be the last
                found[key] = names
            self._variants = list(found.values())
        return self._variants


def _name(names: Names, operation: Operation) -> None:
    if operation.kind == "create":
        names[operation.path] = operation.inode
    elif operation.kind == "rename":
        if names.get(operation.path) == operation.inode:
            del names[operation.path]
        names[operation.new] = operation.inode
    elif names.get(operation.path) == operation.inode:
        del names[operation.path]


def cuts(files: RecordedFiles, *, start: int = 0) -> Iterator[tuple[int, Disk]]:
    """Yield the disk after each number of operations, from `start` on. It is one that changes."""
    disk = Disk(files)
    for operation in files.operations[:start]:
        disk.apply(operation)
    yield start, disk
    for length, operation in enumerate(files.operations[start:], start + 1):
        disk.apply(operation)
        yield length, disk
