"""The journal of topics: a restart restores their names without reading segments.

Each line has the CRC32C of the rest in eight hexadecimal digits, the creator's id or `-`, and the
name as a JSON string.

    5c2a91d0 00112233445566778899aabbccddeeff "sensors/kitchen"
    d1f0327a - "channel/7"

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


class Topics(NamedTuple):
    """Content of a journal: names with their creators' 16 bytes, empty if there is none.

    `size` is the end of the last good line, and `torn` the number of bytes behind it; `bad_lines`
    counts the damaged lines before it, and `first_bad` is the start of the first of them.
    """

    names: list[tuple[str, bytes]]
    size: int
    torn: int
    bad_lines: int
    first_bad: int


def _line(name: str, creator: bytes) -> bytes:
    rest = (creator.hex() or "-").encode() + b" " + msgspec.json.encode(name)
    return b"%08x %b\n" % (crc32c([rest]), rest)


def _parse(line: bytes) -> tuple[str, bytes]:
    """Return name and creator; raise ValueError."""
    checksum, rest = line[:8], line[9:]
    if line[8:9] != b" " or checksum != b"%08x" % crc32c([rest]):
        raise ValueError("a line with a wrong checksum")
    creator, _, name = rest.partition(b" ")
    return msgspec.json.decode(name, type=str), b"" if creator == b"-" else bytes.fromhex(
        creator.decode()
    )


def _has_lost_sector(line: bytes, position: int) -> bool:
    """Return whether zeros in a line touch the start of a sector: it was never written."""
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
    size = position = bad = bad_here = 0
    first_bad = first_bad_here = -1
    for line in data.split(b"\n")[:-1]:
        lost = _has_lost_sector(line, position)
        try:
            name, creator = _parse(line.rpartition(b"\0")[2] if lost else line)
        except ValueError:
            if not lost:
                bad_here += 1
                first_bad_here = position if first_bad_here < 0 else first_bad_here
        else:
            names.setdefault(name, creator)
            size = position + len(line) + 1
            bad, first_bad = bad_here, first_bad_here
        position += len(line) + 1
    return Topics(list(names.items()), size, len(data) - size, bad, first_bad)


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
        self._loaded = True
        return found

    def add(self, name: str, creator: bytes = b"") -> None:
        """Add a topic, with the 16 bytes of its creator's id or none."""
        line = _line(name, creator)
        with self._lock:
            self._added.append(line)

    @property
    def waiting(self) -> bool:
        """Whether a topic was added since the last `write`."""
        return bool(self._added)

    def write(self, *, sync: bool = False) -> None:
        """Write the added topics; with `sync`, sync everything written.

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

    def _done(self) -> None:
        self._synced_size += sum(map(len, self._unsynced))
        self._unsynced.clear()
