"""Row index files: `<base offset>.rows`, the messages of rare topics in the large row groups.

    file     ┌─────────┬─────────┬─────┬───────┬─────────┐
             │ section │ section │  …  │ table │ trailer │
             └─────────┴─────────┴─────┴───────┴─────────┘
    section  the positions of the parts of records in a row group, the ends of all buckets, buckets
    bucket   entries of topics whose hashes start with the same bits, their CRC32C
    entry    0                8      10         14
             ┌────────────────┬──────┬──────────┐
             │ CRC32C of name │ row  │ CRC32C   │  of the record; see `row_record`
             └────────────────┴──────┴──────────┘
    table    base offset, position of the section, number of entries, CRC32C of its first part

Each large row group that has a rare topic has a section, and a section has all topics of its row
group: one that is not rare there has one entry, with the row WHOLE. See docs/log-format.md.

The file is an optimization: without it, or with a wrong one, row groups are read whole. So every
fault is StaleRowIndex.
"""

import contextlib
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from penstock._kernels.crc32c import crc32c
from penstock._kernels.row_index import ENTRY_BYTES, NOT_LISTED, list_rows, topic_hashes
from penstock.limits import (
    BLOCK_ROWS_MAX,
    ROW_INDEX_BUCKET_ENTRIES,
    ROW_INDEX_GROUP_BYTES_MIN,
    ROW_INDEX_RARE,
)
from penstock.storage.arrow.format.file_names import rows_path
from penstock.storage.arrow.format.index import Index
from penstock.storage.arrow.format.index_file import Summary
from penstock.storage.arrow.format.row_record import PARTS, record_parts
from penstock.storage.arrow.format.segment import RowGroup, row_group_topic_counts
from penstock.storage.files import TEMPORARY, Files

__all__ = [
    "WHOLE",
    "ListedRow",
    "RowIndex",
    "RowIndexWriter",
    "Section",
    "StaleRowIndex",
    "encode_section",
    "find_in_section",
    "is_useful",
    "load_row_index",
    "may_be_rare",
    "topic_hash",
]

WHOLE: Final = 0xFFFF
"""Row of an entry that says: read the whole row group. The last row of a full one says so too."""
_FORMAT: Final = 1
_MAGIC: Final = b"PSROWS\r\n"
_TRAILER: Final = struct.Struct("<8sIIQQQIIQI")
"""Magic, format, rows of the table; of the segment base and end offset, size, CRC32C of head and
last row group; position of the table; CRC32C of the table and of all before it here."""
_ROW: Final = struct.Struct("<QQII")
_PARTS: Final = struct.Struct(f"<{PARTS}I")
_ENTRY: Final = struct.Struct("<IHI")
_CRC: Final = struct.Struct("<I")
_TAIL_BYTES: Final = 4096
"""Bytes that are read first: the table of a usual segment fits."""


class StaleRowIndex(ValueError):
    """A file that is not the row index of the segment in its current state."""


class ListedRow(NamedTuple):
    """A message of a rare topic: its row in the row group, and the checksum of its record."""

    row: int
    checksum: int


class Section(NamedTuple):
    """The encoded entries of a row group."""

    base_offset: int
    entries: int
    first: bytes
    buckets: Sequence[bytes]


def topic_hash(name: str) -> int:
    """Return the hash by which entries of a topic are found."""
    return crc32c([name.encode()])


def is_useful(index: Index) -> bool:
    """Return whether a large row group of a segment may have a rare topic."""
    return any(may_be_rare(index, number) for number in range(len(index)))


def may_be_rare(index: Index, number: int) -> bool:
    """Return whether a row group is large and may have a rare topic."""
    entry = index.entry(number)
    if entry.size < ROW_INDEX_GROUP_BYTES_MIN:
        return False
    counts = index.topic_counts_of(number)
    return counts is None or any(_is_rare(each, entry.count) for each in counts)


def _is_rare(messages: int, count: int) -> bool:
    """Return whether a topic with some of the `count` messages of a row group is rare in it."""
    if count == 1:
        return False
    return messages == 1 or 0 <= messages * ROW_INDEX_RARE <= count


def _bucket_bits(entries: int) -> int:
    return max((entries - 1) // ROW_INDEX_BUCKET_ENTRIES, 0).bit_length()


# --- Writing --------------------------------------------------------------------------------------


def encode_section(data: bytes, row_group: RowGroup) -> Section | None:
    """Return the section of a row group whose bytes are `data` and good; None if it cannot be."""
    if row_group.start or not row_group.checksums or row_group.count > BLOCK_ROWS_MAX:
        return None
    counts = row_group_topic_counts(data, row_group)
    if counts is None:
        return None
    try:
        hashes = topic_hashes(data, row_group.topic_layout, row_group.topic_count)
        order, slots, listed, entries = _slots(hashes, counts, row_group.count)
        if listed:
            list_rows(
                data,
                row_group.layout,
                row_group.topic_layout,
                row_group.sender_layout,
                slots,
                array("I", hashes),
                entries,
                count=row_group.count,
                base_offset=row_group.base_offset,
            )
    except ValueError:  # reading the row group reports it
        return None
    count = len(entries) // ENTRY_BYTES
    ends = _bucket_ends(order, count)
    view = memoryview(entries)
    buckets = []
    start = 0
    for end in ends:
        part = bytes(view[ENTRY_BYTES * start : ENTRY_BYTES * end])
        buckets.append(part + _CRC.pack(crc32c([part])))
        start = end
    first = _PARTS.pack(*record_parts(row_group)) + struct.pack(f"<{len(ends)}I", *ends)
    return Section(row_group.base_offset, count, first, buckets)


def _slots(
    hashes: list[int], counts: list[int], count: int
) -> tuple[list[int], "array[int]", bool, bytearray]:
    """Return the hash of each entry in order, the first slots of rare topics, and the entries.

    Entries of other topics are complete.
    """
    topics = sorted((each for each, found in enumerate(counts) if found), key=hashes.__getitem__)
    slots = array("I", [NOT_LISTED]) * len(hashes)
    order: list[int] = []
    listed = False
    wholes: list[int] = []
    for topic in topics:
        value = hashes[topic]
        if _is_rare(counts[topic], count):
            slots[topic] = len(order)
            order += [value] * counts[topic]
            listed = True
        else:
            wholes.append(len(order))
            order.append(value)
    entries = bytearray(ENTRY_BYTES * len(order))
    for slot in wholes:
        _ENTRY.pack_into(entries, ENTRY_BYTES * slot, order[slot], WHOLE, 0)
    return order, slots, listed, entries


def _bucket_ends(order: list[int], count: int) -> list[int]:
    bits = _bucket_bits(count)
    return [bisect_left(order, (bucket + 1) << (32 - bits)) for bucket in range(1 << bits)]


class RowIndexWriter:
    """Writes the row index of a closed segment, section by section, in the order of offsets.

    Its methods raise OSError. It has no file until `finish`; `abandon` it otherwise.
    """

    def __init__(self, files: Files, folder: Path, summary: Summary) -> None:
        self._files = files
        self._summary = summary
        self._path = rows_path(folder, summary.base_offset)
        self._temporary = self._path.with_name(self._path.name + TEMPORARY)
        self._table = bytearray()
        self._size = 0
        files.remove(self._temporary)
        self._handle: int | None = files.create(self._temporary)

    def add(self, section: Section) -> None:
        """Append the section of the next row group."""
        handle = self._open()
        parts = [section.first, *section.buckets]
        self._files.append(handle, parts)
        self._table += _ROW.pack(
            section.base_offset, self._size, section.entries, crc32c([section.first])
        )
        self._size += sum(map(len, parts))

    def finish(self) -> None:
        """Write the table and the trailer; the file is on disk when this returns."""
        handle = self._open()
        each = self._summary
        trailer = bytearray(
            _TRAILER.pack(
                _MAGIC, _FORMAT, len(self._table) // _ROW.size, each.base_offset, each.end_offset,
                each.segment_size, each.head_crc, each.last_crc, self._size, 0,
            )
        )  # fmt: skip
        trailer[-_CRC.size :] = _CRC.pack(crc32c([self._table, trailer[: -_CRC.size]]))
        self._files.append(handle, [self._table, trailer])
        self._files.sync(handle)
        self._handle = None
        self._files.close(handle)
        self._files.rename(self._temporary, self._path)
        self._files.sync_folder(self._path.parent)

    def _open(self) -> int:
        if self._handle is None:
            raise ValueError(f"{self._path.name} is closed")
        return self._handle

    def abandon(self) -> None:
        """Remove what was written, unless it is finished."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            with contextlib.suppress(OSError):
                self._files.close(handle)
                self._files.remove(self._temporary)


# --- Reading --------------------------------------------------------------------------------------


def find_in_section(
    section: Section, hashes: Sequence[int]
) -> tuple[tuple[int, ...], list[list[ListedRow]]] | None:
    """Return what `RowIndex.find` returns, from a section in memory."""
    bits = _bucket_bits(section.entries)
    found: list[list[ListedRow]] = []
    for value in hashes:
        rows = _rows_of(value, section.buckets[value >> (32 - bits)][: -_CRC.size])
        if any(row.row == WHOLE for row in rows):
            return None
        found.append(rows)
    return _PARTS.unpack_from(section.first), found


def _rows_of(value: int, entries: bytes) -> list[ListedRow]:
    """Return the rows of a topic by its hash, from the entries of its bucket."""
    return [
        ListedRow(row, checksum)
        for found, row, checksum in _ENTRY.iter_unpack(entries)
        if found == value
    ]


def load_row_index(files: Files, folder: Path, summary: Summary) -> "RowIndex":
    """Read the table of the row index of a segment; raise StaleRowIndex."""
    path = rows_path(folder, summary.base_offset)
    try:
        size = files.size(path)
        data = files.read(path, max(size - _TAIL_BYTES, 0), _TAIL_BYTES)
        if len(data) < _TRAILER.size:
            raise StaleRowIndex(f"{path.name} has no trailer")
        magic, version, rows, *of_segment, position, checksum = _TRAILER.unpack(
            data[-_TRAILER.size :]
        )
        if magic != _MAGIC or version != _FORMAT:
            raise StaleRowIndex(f"{path.name} is of another format")
        needed = rows * _ROW.size + _TRAILER.size
        if position + needed != size:
            raise StaleRowIndex(f"{path.name} has {size} bytes, not {position + needed}")
        if needed > len(data):
            data = files.read(path, position, needed)
        data = data[-needed:]
    except OSError as error:
        raise StaleRowIndex(str(error)) from error
    if crc32c([memoryview(data)[: -_CRC.size]]) != checksum:
        raise StaleRowIndex(f"{path.name} is damaged")
    if tuple(of_segment) != summary[:5]:
        raise StaleRowIndex(f"{path.name} is of another segment")
    table = list(_ROW.iter_unpack(memoryview(data)[: -_TRAILER.size]))
    return RowIndex(files, path, table, end=position)


class RowIndex:
    """The row index of a segment; sections are read when they are needed. Any thread may call."""

    def __init__(
        self, files: Files, path: Path, table: Sequence[tuple[int, int, int, int]], *, end: int
    ) -> None:
        self._files = files
        self._path = path
        self._base_offsets, self._positions, self._entries, self._checksums = (
            array(code, [row[column] for row in table]) for column, code in enumerate("QQII")
        )
        self._end = end

    def find(
        self, base_offset: int, hashes: Sequence[int]
    ) -> tuple[tuple[int, ...], list[list[ListedRow]]] | None:
        """Return the parts of records of a row group, and the rows of topics, by their hashes.

        Return None if the row group must be read whole; raise StaleRowIndex.
        """
        number = self._number(base_offset)
        if number is None:
            return None
        parts, ends, position, loaded = self._first(number)
        bits = _bucket_bits(self._entries[number])
        found: list[list[ListedRow]] = []
        for value in hashes:
            rows = self._rows(value, value >> (32 - bits), ends, position, loaded)
            if any(row.row == WHOLE for row in rows):
                return None
            found.append(rows)
        return parts, found

    def check(self) -> Iterator[Section]:
        """Read all sections; raise StaleRowIndex."""
        for number in range(len(self._base_offsets)):
            parts, ends, position, loaded = self._first(number)
            first = _PARTS.pack(*parts) + struct.pack(f"<{len(ends)}I", *ends)
            buckets = []
            for bucket in range(len(ends)):
                part = self._bucket(bucket, ends, position, loaded)
                buckets.append(part + _CRC.pack(crc32c([part])))
            yield Section(self._base_offsets[number], self._entries[number], first, buckets)

    def _number(self, base_offset: int) -> int | None:
        number = bisect_left(self._base_offsets, base_offset)
        if number < len(self._base_offsets) and self._base_offsets[number] == base_offset:
            return number
        return None

    def _first(self, number: int) -> tuple[tuple[int, ...], tuple[int, ...], int, bytes]:
        """Return the parts of a section, ends and position of its buckets, and those in memory."""
        entries = self._entries[number]
        bits = _bucket_bits(entries)
        size = _PARTS.size + (4 << bits)
        whole = size + (ENTRY_BYTES * entries + _CRC.size if not bits else 0)
        data = self._read(self._positions[number], whole)
        if crc32c([data[:size]]) != self._checksums[number]:
            raise StaleRowIndex(f"{self._path.name} is damaged")
        ends = struct.unpack_from(f"<{1 << bits}I", data, _PARTS.size)
        return _PARTS.unpack_from(data), ends, self._positions[number] + size, data[size:]

    def _bucket(self, bucket: int, ends: tuple[int, ...], position: int, loaded: bytes) -> bytes:
        """Return the entries of a bucket."""
        start = ends[bucket - 1] if bucket else 0
        size = ENTRY_BYTES * (ends[bucket] - start) + _CRC.size
        data = loaded
        if not data:
            data = self._read(position + ENTRY_BYTES * start + _CRC.size * bucket, size)
        entries = data[: -_CRC.size]
        if crc32c([entries]) != _CRC.unpack(data[-_CRC.size :])[0]:
            raise StaleRowIndex(f"{self._path.name} is damaged")
        return entries

    def _rows(
        self, value: int, bucket: int, ends: tuple[int, ...], position: int, loaded: bytes
    ) -> list[ListedRow]:
        return _rows_of(value, self._bucket(bucket, ends, position, loaded))

    def _read(self, position: int, size: int) -> bytes:
        if position + size > self._end:
            raise StaleRowIndex(f"{self._path.name} has no {size} bytes at {position}")
        try:
            data = self._files.read(self._path, position, size)
        except OSError as error:
            raise StaleRowIndex(str(error)) from error
        if len(data) != size:
            raise StaleRowIndex(f"{self._path.name} ends early")
        return data
