"""The journal of topics: a restart restores their names without reading segments.

Each line has the CRC32C of the rest in eight hexadecimal digits, the creator's id or `-`, the name
as a JSON string, and, where it is known, a comma and the owner as another: the principal or address
whose limit of topics it counts against. A line with `x` says that the topic was deleted.

    f98de734 00112233445566778899aabbccddeeff "sensors/kitchen"
    634bbe73 - "channel/7"
    044b958e - "sensors/attic","panel"
    01c132bb x "sensors/kitchen"

Opening the journal cuts off an unfinished line at its end. A power cut may also leave lines behind
a sector that was never written: those are read, and the zeros stay.
"""

import threading
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from penstock._kernels.crc32c import crc32c
from penstock.storage.arrow.format.file_names import JOURNAL
from penstock.storage.files import Files

__all__ = ["TopicJournal", "Topics", "read_topics"]

_SECTOR_BYTES: Final = 512
"""The unit that a disk writes atomically."""
_DELETED: Final = b"x"
_TEXTS: Final = msgspec.json.Decoder(list[str])
_OBSOLETE_LINES_MIN: Final = 1000
"""Lines about topics that were deleted or created again before the journal is written anew."""


class Topics(NamedTuple):
    """Content of a journal: names with their creators' 16 bytes, empty if there is none.

    `size` is the end of the last good line, and `torn` the number of bytes behind it; `bad_lines`
    counts the damaged lines before it, and `first_bad` is the start of the first of them. `owners`
    are those of names that have one, `deleted` are topics that do not exist any more, and `lines`
    counts the good lines.
    """

    names: list[tuple[str, bytes]]
    size: int
    torn: int
    bad_lines: int
    first_bad: int
    owners: dict[str, str]
    deleted: list[str]
    lines: int


class _Line(NamedTuple):
    """A line: a topic with creator and owner, or one that was deleted."""

    name: str
    creator: bytes = b""
    owner: str = ""
    deleted: bool = False

    def encode(self) -> bytes:
        first = _DELETED if self.deleted else (self.creator.hex() or "-").encode()
        rest = first + b" " + msgspec.json.encode(self.name)
        if self.owner:
            rest += b"," + msgspec.json.encode(self.owner)
        return b"%08x %b\n" % (crc32c([rest]), rest)


def _parse(line: bytes) -> _Line:
    """Return the content of a line; raise ValueError."""
    checksum, rest = line[:8], line[9:]
    if line[8:9] != b" " or checksum != b"%08x" % crc32c([rest]):
        raise ValueError("a line with a wrong checksum")
    first, _, texts = rest.partition(b" ")
    name, *owner = _TEXTS.decode(b"[%b]" % texts)
    if first == _DELETED:
        return _Line(name, deleted=True)
    creator = b"" if first == b"-" else bytes.fromhex(first.decode())
    return _Line(name, creator, owner[0] if owner else "")


def _has_lost_sector(line: bytes, position: int) -> bool:
    """Return whether zeros in a line touch the start of a sector: it was never written."""
    if b"\0" not in line:
        return False
    boundaries = range(-position % _SECTOR_BYTES, len(line) + 1, _SECTOR_BYTES)
    return any(0 in line[max(0, each - 1) : each + 1] for each in boundaries)


def read_topics(files: Files, folder: Path) -> Topics:
    """Read the journal of a partition; a name that occurs twice keeps its first creator."""
    path = folder / JOURNAL
    try:
        data = files.read(path, 0, files.size(path))
    except FileNotFoundError:
        data = b""
    names: dict[str, bytes] = {}
    owners: dict[str, str] = {}
    deleted: dict[str, None] = {}
    size = position = bad = bad_here = lines = 0
    first_bad = first_bad_here = -1
    for line in data.split(b"\n")[:-1]:
        lost = _has_lost_sector(line, position)
        try:
            found = _parse(line.rpartition(b"\0")[2] if lost else line)
        except ValueError:
            if not lost:
                bad_here += 1
                first_bad_here = position if first_bad_here < 0 else first_bad_here
        else:
            lines += 1
            if found.deleted:
                names.pop(found.name, None)
                owners.pop(found.name, None)
                deleted[found.name] = None
            elif found.name not in names:
                names[found.name] = found.creator
                deleted.pop(found.name, None)
                if found.owner:
                    owners[found.name] = found.owner
            size = position + len(line) + 1
            bad, first_bad = bad_here, first_bad_here
        position += len(line) + 1
    torn = len(data) - size
    return Topics(list(names.items()), size, torn, bad, first_bad, owners, list(deleted), lines)


class TopicJournal:
    """The journal of an open log.

    `add` is called in one thread, `write` in another. A failed `write` loses nothing: the next one
    writes everything to a new file.
    """

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._path = folder / JOURNAL
        self._lock = threading.Lock()
        self._added: list[bytes] = []
        self._unsynced: list[bytes] = []
        self._synced_size = 0
        self._handle: int | None = None
        self._loaded = False
        self._failed = False

    def load(self) -> Topics:
        """Read the journal, and cut off an unfinished line."""
        found = read_topics(self._files, self._folder)
        if self._path.name in self._files.names(self._folder):
            if found.torn:
                self._files.truncate(self._path, found.size)
            self._handle = self._files.open(self._path)
            self._files.sync(self._handle)  # a killed process may not have synced it
            self._files.sync_folder(self._folder)
        self._synced_size = found.size
        if found.lines - len(found.names) - len(found.deleted) >= _OBSOLETE_LINES_MIN:
            self._rewrite(found)
        self._loaded = True
        return found

    def add(self, name: str, creator: bytes = b"", owner: str = "") -> None:
        """Add a topic, with the 16 bytes of its creator's id or none, and its owner."""
        self._append(_Line(name, creator, owner))

    def add_used(self, name: str, owner: str) -> None:
        """Note a topic that exists because it is used."""
        self.add(name, b"", owner)

    def remove(self, name: str) -> None:
        """Note that a topic was deleted."""
        self._append(_Line(name, deleted=True))

    def _append(self, line: _Line) -> None:
        encoded = line.encode()
        with self._lock:
            self._added.append(encoded)

    @property
    def waiting(self) -> bool:
        """Whether a topic was added or deleted since the last `write`."""
        return bool(self._added)

    def write(self, *, sync: bool = False) -> None:
        """Write the added and deleted topics; with `sync`, sync everything written.

        After a failure a new file replaces the old one, and is always synced.
        """
        if not self._loaded:
            self.load()
        with self._lock:
            added, self._added = self._added, []
        self._unsynced += added
        try:
            if self._failed:
                self._replace()
            elif added:
                if self._handle is None:
                    self._handle = self._files.create(self._path)
                    self._files.sync_folder(self._folder)
                self._files.append(self._handle, [b"".join(added)])
            if sync and self._unsynced and self._handle is not None:
                self._files.sync(self._handle)
                self._done()
        except OSError:
            self._failed = True
            raise

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            self._files.close(self._handle)
            self._handle = None

    def _replace(self) -> None:
        """Replace the journal with a new file: after a failed write the old one is not trusted."""
        self.close()
        kept = b""
        if self._synced_size:
            kept = self._files.read(self._path, 0, self._synced_size)
        self._files.replace(self._path, kept + b"".join(self._unsynced))
        self._done()
        self._failed = False
        self._handle = self._files.open(self._path)

    def _rewrite(self, found: Topics) -> None:
        """Replace the journal with one line for each name."""
        self.close()
        owners = found.owners
        lines = [_Line(name, deleted=True) for name in found.deleted]
        lines += [_Line(name, creator, owners.get(name, "")) for name, creator in found.names]
        data = b"".join(line.encode() for line in lines)
        self._files.replace(self._path, data)
        self._synced_size = len(data)
        self._handle = self._files.open(self._path)

    def _done(self) -> None:
        self._synced_size += sum(map(len, self._unsynced))
        self._unsynced.clear()
