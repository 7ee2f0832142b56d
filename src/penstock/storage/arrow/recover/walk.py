"""Walks a segment row group by row group, past damage.

Row groups start at multiples of 8. Behind a damaged row group, the next one is where the damaged
one says that it ends, if the bytes there continue it. Otherwise it is searched for: the first bytes
of a message that parses, has a correct checksum and an offset that was not seen before.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from penstock.limits import WALK_BYTES
from penstock.storage.arrow.format.damage import Fault
from penstock.storage.arrow.format.segment import (
    END_OF_STREAM,
    BadRowGroup,
    RowGroup,
    Truncated,
    check_row_group,
    parse_row_group,
)
from penstock.storage.files import Files

__all__ = ["Bad", "End", "Good", "Step", "walk"]

_MARK: Final = END_OF_STREAM[:4]
_LENGTH: Final = struct.Struct("<i")
_METADATA_BYTES_MAX: Final = 65_536
_PAGE_BYTES: Final = 4096


class Good(NamedTuple):
    """A row group with a correct checksum, and the bytes that it was parsed from."""

    position: int
    row_group: RowGroup
    data: bytes


class Bad(NamedTuple):
    """Bytes that are not a row group, or a missing row group.

    `first_offset` is the offset expected here. `resumes_at` is the offset after it, if the bytes
    can be trusted that far. `whole` says that it is more than an unfinished write.
    """

    fault: Fault
    position: int
    length: int
    first_offset: int
    resumes_at: int
    whole: bool
    reason: str


class End(NamedTuple):
    """The end of the file, with or without the end marker of a closed segment."""

    position: int
    sealed: bool


Step = Good | Bad | End


class _Source:
    """Bytes of a segment, read in large pieces. Unreadable pages are read as zeros."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self.size = files.size(path)
        self._unreadable: list[int] = []
        self._start = 0
        self._data = b""

    def view(self, position: int, size: int) -> tuple[bytes, int]:
        """Return a buffer with `size` bytes from `position`, fewer at the end, and their start."""
        end = min(position + size, self.size)
        if position < self._start or end > self._start + len(self._data):
            wanted = min(max(size, WALK_BYTES), self.size - position)
            self._data = self._read(position, wanted)
            self._start = position
            if len(self._data) < wanted:
                self.size = position + len(self._data)
        return self._data, position - self._start

    def row_group(self, position: int) -> tuple[RowGroup, bytes]:
        """Parse the row group at a position; raise BadRowGroup, or Truncated at the end."""
        size = 1
        while True:
            data, start = self.view(position, size)
            try:
                return parse_row_group(data, start), data
            except Truncated:
                available = len(data) - start
                if position + available >= self.size:
                    raise
                size = max(WALK_BYTES, 2 * available)

    def unreadable(self, start: int, end: int) -> bool:
        """Return whether the disk failed to read a part of a range."""
        return any(start - _PAGE_BYTES < page < end for page in self._unreadable)

    def _read(self, position: int, size: int) -> bytes:
        try:
            return self._files.read(self._path, position, size)
        except FileNotFoundError:
            raise
        except OSError:
            pass
        parts = bytearray()
        while len(parts) < size:
            to_page = _PAGE_BYTES - (position + len(parts)) % _PAGE_BYTES
            piece = min(to_page, size - len(parts))
            try:
                parts += self._files.read(self._path, position + len(parts), piece)
            except OSError:
                self._unreadable.append(position + len(parts))
                parts += bytes(piece)
        return bytes(parts)


def walk(
    files: Files, path: Path, *, position: int, base_offset: int, previous_crc: int | None
) -> Iterator[Step]:
    """Yield the steps of a segment from `position`, in order; the last one is its End.

    `previous_crc` is the checksum of the row group before the first, None if it is not known.
    """
    source = _Source(files, path)
    expected = base_offset
    previous = previous_crc
    while position < source.size:
        data, start = source.view(position, len(END_OF_STREAM))
        if position + len(END_OF_STREAM) == source.size and data[start:] == END_OF_STREAM:
            yield End(position, sealed=True)
            return
        row_group, data, fault = _row_group(source, position)
        if row_group is None or fault:
            bad = _bad(source, position, expected, row_group, fault)
            yield bad
            position += bad.length
            expected = bad.resumes_at
            previous = None
            continue
        if row_group.base_offset < expected:
            yield Bad(
                Fault.DAMAGED, position, row_group.size, expected, expected,
                whole=True, reason=f"offset {row_group.base_offset} is here a second time",
            )  # fmt: skip
            position += row_group.size
            previous = None
            continue
        if row_group.base_offset > expected or previous not in {None, row_group.previous}:
            reason = "the group before it is not the one it was written behind"
            if row_group.base_offset > expected:
                reason = f"offset {expected} should be here"
            yield Bad(
                Fault.HOLE, position, 0, expected, row_group.base_offset, whole=True, reason=reason
            )
        yield Good(position, row_group, data)
        position += row_group.size
        expected = row_group.base_offset + row_group.count
        previous = row_group.crc32c
    yield End(source.size, sealed=False)


def _row_group(source: _Source, position: int) -> tuple[RowGroup | None, bytes, str]:
    """Return the row group at a position, the bytes it was parsed from, and its fault."""
    try:
        row_group, data = source.row_group(position)
    except Truncated:
        return None, b"", ""
    except BadRowGroup as error:
        return None, b"", str(error) or "no group"
    place = row_group.crc_position
    spelled = (
        data[place : place + 8] == b"%08x" % row_group.crc32c
    )  # lower case is the only valid spelling
    return (
        row_group,
        data,
        "" if spelled and check_row_group(data, row_group) else "its checksum is wrong",
    )


def _bad(
    source: _Source, position: int, expected: int, row_group: RowGroup | None, fault: str
) -> Bad:
    """Find the end of the bad bytes at `position`."""
    end, resumes_at = _next(source, position, expected, row_group)
    if end is None:
        end = source.size
        if end - position > len(END_OF_STREAM):
            data, start = source.view(end - len(END_OF_STREAM), len(END_OF_STREAM))
            if data[start:] == END_OF_STREAM:
                end -= len(END_OF_STREAM)
    if resumes_at is None:
        resumes_at = expected
        if row_group is not None and row_group.base_offset == expected:
            resumes_at = expected + row_group.count
    return Bad(
        fault=Fault.DAMAGED if fault else Fault.TORN,
        position=position,
        length=end - position,
        first_offset=expected,
        resumes_at=resumes_at,
        whole=bool(fault) or end < source.size,
        reason="the disk does not give all of it"
        if source.unreadable(position, end)
        else fault or "the file ends inside a group",
    )


def _next(
    source: _Source, position: int, expected: int, row_group: RowGroup | None
) -> tuple[int | None, int | None]:
    """Return the position of the next good row group or end marker, and the row group's offset."""
    if row_group is not None:
        end = position + row_group.size
        if end == source.size:
            return end, None
        data, start = source.view(end, len(END_OF_STREAM))
        if end + len(END_OF_STREAM) == source.size and data[start:] == END_OF_STREAM:
            return end, None
        follower, _, fault = _row_group(source, end)
        if follower is not None and not fault and follower.previous == row_group.crc32c:
            return end, follower.base_offset
    place = position + 8
    while place < source.size:
        found = _candidate(source, place)
        if found is None:
            return None, None
        follower, _, fault = _row_group(source, found)
        if follower is not None and not fault and follower.base_offset >= expected:
            return found, follower.base_offset
        place = found + 8
    return None, None


def _candidate(source: _Source, place: int) -> int | None:
    """Return the first multiple of 8 from `place` on at which a message may start."""
    while place < source.size:
        data, start = source.view(place, len(END_OF_STREAM))
        origin = place - start
        found = data.find(_MARK, start)
        while found >= 0:
            if (origin + found) % 8 == 0 and found + 8 <= len(data):
                length = _LENGTH.unpack_from(data, found + 4)[0]
                if 0 < length <= _METADATA_BYTES_MAX and length % 8 == 0:
                    return origin + found
            found = data.find(_MARK, found + 1)
        place = origin + len(data)
    return None
