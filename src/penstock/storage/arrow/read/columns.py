"""Reads some columns of row groups of format 2: their bytes are read and checked, no others.

First the dictionaries and the metadata of a row group are read, and the metadata checked. They have
the place and the checksum of each buffer. Then the buffers of the wanted columns are read.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from penstock._kernels.crc32c import crc32c_each
from penstock.limits import COLUMN_GAP_BYTES_MAX, ROW_GROUP_HEAD_BYTES
from penstock.storage.arrow.format.segment import (
    BadRowGroup,
    Head,
    RowGroup,
    Truncated,
    buffer_regions,
    check_metadata,
    parse_row_group,
    text_array,
)
from penstock.storage.schema import SCHEMA

__all__ = ["ColumnReader", "SmallRowGroup"]

_BUFFER_COUNTS: Final = {"headers": 9}
_TOPICS: Final = 0
_SENDERS: Final = 1
_DICTIONARIES: Final = 2
"""Checksums of dictionaries, which precede those of the buffers."""
_ZEROS: Final = pa.py_buffer(bytes(1 << 20))


class SmallRowGroup(Exception):
    """A row group that is read faster with all its columns; nothing was read."""


class _Column(NamedTuple):
    """A column, and the numbers of its flattened buffers."""

    field: pa.Field
    first: int
    last: int


def _buffer_count(field: pa.Field) -> int:
    kind = field.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return 3
    return _BUFFER_COUNTS.get(field.name, 2)


def _placed_columns() -> dict[str, _Column]:
    placed: dict[str, _Column] = {}
    first = 0
    for field in SCHEMA:
        last = first + _buffer_count(field)
        placed[field.name] = _Column(field, first, last)
        first = last
    return placed


_COLUMNS: Final = _placed_columns()


class ColumnReader:
    """Reads `columns` of the row groups of one segment, which is open as `handle`.

    `reading` is called with the size of each buffer before it is allocated, and may raise.
    """

    def __init__(
        self,
        handle: int,
        head: Head,
        columns: Sequence[str],
        *,
        size_min: int,
        reading: Callable[[int], None] | None = None,
    ) -> None:
        self._handle = handle
        self._columns = [_COLUMNS[name] for name in columns]
        self._schema = pa.schema([each.field for each in self._columns])
        self._words = {
            "protocol": text_array(pa.utf8(), head.protocols),
            "kind": text_array(pa.utf8(), head.kinds),
        }
        self._size_min = size_min
        self._reading = reading
        self._head_size = ROW_GROUP_HEAD_BYTES

    def read(self, position: int, end: int, *, base_offset: int) -> tuple[RowGroup, pa.RecordBatch]:
        """Return the row group at a position of the file, which ends at `end` at most.

        Raise BadRowGroup if it is not the one with `base_offset`, or if a checksum of its metadata
        or of a wanted column is wrong. Raise SmallRowGroup if it has fewer than `size_min` bytes.
        """
        first_bytes, row_group = self._metadata(position, end)
        if not row_group.checksums or row_group.base_offset != base_offset:
            raise BadRowGroup(f"not a row group of columns from {base_offset}")
        if row_group.size < self._size_min:
            raise SmallRowGroup
        if not check_metadata(first_bytes, row_group):
            raise BadRowGroup("the checksum of its metadata is wrong")
        buffers = self._buffers(position, row_group)
        try:
            arrays = [
                self._array(column, row_group, buffers, first_bytes) for column in self._columns
            ]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            batch.validate(full=True)
        except pa.ArrowException as error:
            raise BadRowGroup(str(error)[:200]) from error
        return row_group, batch

    def _metadata(self, position: int, end: int) -> tuple[pa.Buffer, RowGroup]:
        """Read the dictionaries and the metadata of a row group; their size is guessed."""
        size = min(self._head_size, end - position)
        while True:
            data = self._read([(position, position + size)])
            try:
                row_group = parse_row_group(data, size=end - position)
            except Truncated:
                if size == end - position:
                    raise
                size = min(4 * size, end - position)
                continue
            self._head_size = max(ROW_GROUP_HEAD_BYTES, row_group.body_start * 5 // 4)
            return data, row_group

    def _buffers(self, position: int, row_group: RowGroup) -> dict[int, pa.Buffer]:
        """Read and check the buffers of the wanted columns; return those that are not empty."""
        regions = buffer_regions(row_group)
        zeros = row_group.body_start, row_group.body_start + row_group.zeros
        found: dict[int, pa.Buffer] = {}
        own: list[int] = []
        for column in self._columns:
            for number in range(column.first, column.last):
                start, end = regions[number]
                if (start, end) == zeros and end > start:
                    found[number] = _zeros(row_group.layout[2 * number + 1])
                elif end > start:
                    own.append(number)
        own.sort(key=regions.__getitem__)
        places = [(regions[number][0] + position, regions[number][1] + position) for number in own]
        runs = list(_runs(places))
        data = self._read(runs)
        at = 0  # of the run in `data`
        run = 0
        parts: list[pa.Buffer] = []
        for number, (start, end) in zip(own, places, strict=True):
            while start >= runs[run][1]:
                at += runs[run][1] - runs[run][0]
                run += 1
            part = data.slice(at + start - runs[run][0], end - start)
            parts.append(part)
            found[number] = part.slice(0, row_group.layout[2 * number + 1])
        for number, checksum in zip(own, crc32c_each(parts), strict=True):
            if checksum != row_group.checksums[_DICTIONARIES + number]:
                raise BadRowGroup(f"the checksum of buffer {number} is wrong")
        return found

    def _read(self, places: Sequence[tuple[int, int]]) -> pa.Buffer:
        """Return the bytes between positions of the file, one after the other."""
        size = sum(end - start for start, end in places)
        if self._reading is not None and size:
            self._reading(size)
        buffer = pa.allocate_buffer(size)
        view = memoryview(buffer).cast("B")
        filled = 0
        for start, end in places:
            position = start
            while position < end:
                part = view[filled : filled + end - position]
                count = os.preadv(self._handle, [part], position)
                if not count:
                    raise Truncated("the file ends inside a row group")
                position += count
                filled += count
        return buffer

    def _array(
        self,
        column: _Column,
        row_group: RowGroup,
        buffers: dict[int, pa.Buffer],
        first_bytes: pa.Buffer,
    ) -> pa.Array:
        field, first, last = column
        kind, count = field.type, row_group.count
        own = [buffers.get(number) for number in range(first, last)]
        if pa.types.is_dictionary(kind):
            indices = pa.Array.from_buffers(kind.index_type, count, own)
            words = self._words.get(field.name)
            if words is None:
                words = _dictionary(field.name, row_group, first_bytes)
            return pa.DictionaryArray.from_arrays(indices, words, safe=False)  # checked later
        if pa.types.is_list(kind):
            return _headers(kind, count, own)
        return pa.Array.from_buffers(kind, count, _texts(own) if len(own) == 3 else own)


def _runs(places: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield ranges of the file that cover all places, in order; small gaps are read too."""
    start = end = -1
    for first, last in places:
        if start >= 0 and first - end <= COLUMN_GAP_BYTES_MAX:
            end = max(end, last)
            continue
        if start >= 0:
            yield start, end
        start, end = first, last
    if start >= 0:
        yield start, end


def _zeros(size: int) -> pa.Buffer:
    return _ZEROS.slice(0, size) if size <= _ZEROS.size else pa.py_buffer(bytes(size))


def _texts(own: Sequence[pa.Buffer | None]) -> list[pa.Buffer | None]:
    """Return validity, offsets and data of texts; Arrow needs the data even if all are empty."""
    validity, ends, data = own
    return [validity, ends, data or _zeros(0)]


def _headers(kind: pa.DataType, count: int, own: Sequence[pa.Buffer | None]) -> pa.Array:
    validity, ends, pairs_validity, *rest = own
    if ends is None or ends.size < 4 * (count + 1):
        raise BadRowGroup("a column of headers without offsets")
    total = memoryview(ends).cast("B")[4 * count : 4 * (count + 1)].cast("i")[0]
    if total < 0:
        raise BadRowGroup(f"{total} headers")
    pair = kind.value_type
    keys = pa.Array.from_buffers(pair.field(0).type, total, _texts(rest[:3]))
    values = pa.Array.from_buffers(pair.field(1).type, total, _texts(rest[3:]))
    pairs = pa.Array.from_buffers(pair, total, [pairs_validity], children=[keys, values])
    return pa.Array.from_buffers(kind, count, [validity, ends], children=[pairs])


def _dictionary(name: str, row_group: RowGroup, first_bytes: pa.Buffer) -> pa.Array:
    """Return the dictionary of topics or senders; raise BadRowGroup if its checksum is wrong."""
    if name == "topic":
        number, start, end = _TOPICS, row_group.start, row_group.sender_start
        count, layout = row_group.topic_count, row_group.topic_layout
    else:
        number, start, end = _SENDERS, row_group.sender_start, row_group.record_start
        count, layout = row_group.sender_count, row_group.sender_layout
    if crc32c_each([first_bytes.slice(start, end - start)])[0] != row_group.checksums[number]:
        raise BadRowGroup(f"the checksum of the dictionary of {name} is wrong")
    ends_start, ends_length, data_start, data_length = layout
    ends = first_bytes.slice(ends_start, ends_length)
    return pa.Array.from_buffers(
        pa.utf8(), count, [None, ends, first_bytes.slice(data_start, data_length)]
    )
