"""Walking a segment group by group, past what is damaged.

Groups start at multiples of 8. Where one cannot be trusted, the next is where it says it ends, if
what stands there goes on from it; otherwise it is searched for: a message's first bytes, and behind
them something that parses, has its checksum right and an offset that is not past already.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from penstock.limits import WALK_BYTES
from penstock.storage.arrow.files import Files
from penstock.storage.arrow.format.damage import Fault
from penstock.storage.arrow.format.segment import (
    END_OF_STREAM,
    BadGroup,
    Group,
    Truncated,
    check_group,
    parse_group,
)

__all__ = ["Bad", "End", "Good", "Step", "walk"]

_MARK: Final = END_OF_STREAM[:4]
_LENGTH: Final = struct.Struct("<i")
_METADATA_BYTES_MAX: Final = 65_536
_PAGE_BYTES: Final = 4096


class Good(NamedTuple):
    """A group whose checksum is right, and the bytes that it was parsed from."""

    position: int
    group: Group
    data: bytes


class Bad(NamedTuple):
    """Bytes that are no group, or none where some should be.

    `first_offset` is the offset that should come here. `resumes_at` is where the bytes say that
    they end, if they can be believed so far; `whole` tells that more is wrong than bytes that are
    not there yet.
    """

    fault: Fault
    position: int
    length: int
    first_offset: int
    resumes_at: int
    whole: bool
    reason: str


class End(NamedTuple):
    """The end of the file, with or without the marker of a segment that was closed."""

    position: int
    sealed: bool


Step = Good | Bad | End


class _Source:
    """A segment's bytes, read in large pieces. What the disk will not give reads as zeros."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self.size = files.size(path)
        self._unreadable: list[int] = []
        self._start = 0
        self._data = b""

    def view(self, position: int, size: int) -> tuple[bytes, int]:
        """Return bytes that hold `size` from `position`, or all to the end, and where in them."""
        end = min(position + size, self.size)
        if position < self._start or end > self._start + len(self._data):
            wanted = min(max(size, WALK_BYTES), self.size - position)
            self._data = self._read(position, wanted)
            self._start = position
            if len(self._data) < wanted:
                self.size = position + len(self._data)
        return self._data, position - self._start

    def group(self, position: int) -> tuple[Group, bytes]:
        """Parse the group at a position; raise Truncated if the file ends in it, or BadGroup."""
        size = 1
        while True:
            data, start = self.view(position, size)
            try:
                return parse_group(data, start), data
            except Truncated:
                available = len(data) - start
                if position + available >= self.size:
                    raise
                size = max(WALK_BYTES, 2 * available)

    def unreadable(self, start: int, end: int) -> bool:
        """Tell whether the disk did not give all bytes of a range that was read."""
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
    """Yield what stands in a segment from `position`, in order; the last step is its End.

    `previous_crc` is what the first group says of the one before it, None if that is not known.
    """
    source = _Source(files, path)
    expected = base_offset
    previous = previous_crc
    while position < source.size:
        data, start = source.view(position, len(END_OF_STREAM))
        if position + len(END_OF_STREAM) == source.size and data[start:] == END_OF_STREAM:
            yield End(position, sealed=True)
            return
        group, data, fault = _group(source, position)
        if group is None or fault:
            bad = _bad(source, position, expected, group, fault)
            yield bad
            position += bad.length
            expected = bad.resumes_at
            previous = None
            continue
        if group.base_offset < expected:
            yield Bad(
                Fault.DAMAGED, position, group.size, expected, expected,
                whole=True, reason=f"offset {group.base_offset} is here a second time",
            )  # fmt: skip
            position += group.size
            previous = None
            continue
        if group.base_offset > expected or previous not in {None, group.previous}:
            reason = "the group before it is not the one it was written behind"
            if group.base_offset > expected:
                reason = f"offset {expected} should be here"
            yield Bad(
                Fault.HOLE, position, 0, expected, group.base_offset, whole=True, reason=reason
            )
        yield Good(position, group, data)
        position += group.size
        expected = group.base_offset + group.count
        previous = group.crc32c
    yield End(source.size, sealed=False)


def _group(source: _Source, position: int) -> tuple[Group | None, bytes, str]:
    """Return the group at a position, where it was parsed from, and what is wrong with it."""
    try:
        group, data = source.group(position)
    except Truncated:
        return None, b"", ""
    except BadGroup as error:
        return None, b"", str(error) or "no group"
    place = group.crc_position
    spelled = (
        data[place : place + 8] == b"%08x" % group.crc32c
    )  # it has one spelling, in lower case
    return group, data, "" if spelled and check_group(data, group) else "its checksum is wrong"


def _bad(source: _Source, position: int, expected: int, group: Group | None, fault: str) -> Bad:
    """Find out how far the bytes at `position` are bad."""
    end, resumes_at = _next(source, position, expected, group)
    if end is None:
        end = source.size
        if end - position > len(END_OF_STREAM):
            data, start = source.view(end - len(END_OF_STREAM), len(END_OF_STREAM))
            if data[start:] == END_OF_STREAM:
                end -= len(END_OF_STREAM)
    if resumes_at is None:
        resumes_at = expected
        if group is not None and group.base_offset == expected:
            resumes_at = expected + group.count
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
    source: _Source, position: int, expected: int, group: Group | None
) -> tuple[int | None, int | None]:
    """Return where the next good group or the end marker is, and that group's offset."""
    if group is not None:
        end = position + group.size
        if end == source.size:
            return end, None
        data, start = source.view(end, len(END_OF_STREAM))
        if end + len(END_OF_STREAM) == source.size and data[start:] == END_OF_STREAM:
            return end, None
        follower, _, fault = _group(source, end)
        if follower is not None and not fault and follower.previous == group.crc32c:
            return end, follower.base_offset
    place = position + 8
    while place < source.size:
        found = _candidate(source, place)
        if found is None:
            return None, None
        follower, _, fault = _group(source, found)
        if follower is not None and not fault and follower.base_offset >= expected:
            return found, follower.base_offset
        place = found + 8
    return None, None


def _candidate(source: _Source, place: int) -> int | None:
    """Return the first multiple of 8 from `place` where a message may start."""
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
