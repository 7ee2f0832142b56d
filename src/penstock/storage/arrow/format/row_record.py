"""One message of a row group as a record: its bytes of all columns that replay needs.

    0       8           16       24      28      32         40          48           56         64
    ┌───────┬───────────┬────────┬───────┬───────┬──────────┬───────────┬────────────┬──────────┐
    │offset │ timestamp │created │status │client │ 0, topic │ 0, sender │ 0, headers │ 0, value │
    └───────┴───────────┴────────┴───────┴───────┴──────────┴───────────┴────────────┴──────────┘
    64       65   66   67          68         69      72
    ┌────────┬────┬────┬───────────┬──────────┬───────┬──────────────────────────────────────────┐
    │protocol│kind│form│has created│has status│ zeros │ offsets of header keys and header values │
    └────────┴────┴────┴───────────┴──────────┴───────┴──────────────────────────────────────────┘
    topic, sender, header keys, header values, value: their bytes, one after the other

Numbers are little-endian; "0, topic" are Arrow's offsets of one text. A message without headers has
no offsets of them. So a record has the buffers of a row group of one message, and is loaded as one.
The kernel `row_index` computes the checksum of the same bytes.
"""

import struct
from collections.abc import Callable
from typing import Final

from penstock._kernels.row_index import HEAD
from penstock.storage.arrow.format.segment import BUFFERS, RowGroup

__all__ = ["ABSENT", "PARTS", "ZEROS", "BadRecord", "RecordReader", "record_parts", "row_group_of"]

_BUFFERS: Final = (4, 5, 7, 13, 17, 20, 21, 23, 24, 26, 28, 30, 31, 32, 36, 37, 42, 44)
"""Buffers of a row group that a record is made of, in Arrow's order."""
PARTS: Final = len(_BUFFERS) + 4
"""The buffers, and offsets and data of the dictionaries of topics and senders."""
ZEROS: Final = 0xFFFFFFFF
"""Position of a buffer of zeros."""
ABSENT: Final = 0xFFFFFFFE
"""Position of a buffer that is empty."""

_HEAD: Final = struct.Struct("<qqqiIIIIIIIIIBBBBB3x")
_PAIR: Final = struct.Struct("<II")
_ZERO_INDEX: Final = 69
if _HEAD.size != HEAD:
    raise ImportError("a record has another head than in the kernel")


class BadRecord(ValueError):
    """Bytes that are not a message of a row group."""


def record_parts(row_group: RowGroup) -> tuple[int, ...]:
    """Return the position of each part in a row group that was parsed from its own bytes."""
    zeros_end = row_group.body_start + row_group.zeros
    parts: list[int] = []
    for number in _BUFFERS:
        start, length = row_group.layout[2 * number : 2 * number + 2]
        end = start + length + -length % 8
        parts.append(ABSENT if not length else ZEROS if end <= zeros_end else start)
    topic_offsets, _, topic_data, _ = row_group.topic_layout
    sender_offsets, _, sender_data, _ = row_group.sender_layout
    return (*parts, topic_offsets, topic_data, sender_offsets, sender_data)


class RecordReader:
    """Reads messages of one row group. `read` returns bytes of it, from a position on.

    `size` is that of the row group, `parts` are its `record_parts`.
    """

    def __init__(
        self, read: Callable[[int, int], bytes], parts: tuple[int, ...], *, size: int
    ) -> None:
        self._read = read
        self._parts = parts
        self._size = size

    def record(self, row: int, offset: int) -> tuple[bytes, bytes]:
        """Return the record of a row, which is the message at an offset, and the topic in it.

        Raise BadRecord.
        """
        (
            value_offsets, value_data, topics, timestamps, headers, keys, key_data, values,
            values_data, protocols, kinds, senders, created_validity, created, status_validity,
            statuses, clients, forms, topic_offsets, topic_data, sender_offsets, sender_data,
        ) = self._parts  # fmt: skip
        value = self._text(value_offsets, value_data, row)
        topic_index = int.from_bytes(self._bytes(topics, 2 * row, 2), "little")
        topic = self._text(topic_offsets, topic_data, topic_index)
        sender_index = int.from_bytes(self._bytes(senders, 2 * row, 2), "little")
        sender = self._text(sender_offsets, sender_data, sender_index)
        first, last = _PAIR.unpack(self._bytes(headers, 4 * row, 8))
        if first > last:
            raise BadRecord(f"headers from {first} to {last}")
        parts: list[bytes] = []
        if last > first:
            key_ends, key_texts = self._texts(keys, key_data, first, last)
            value_ends, value_texts = self._texts(values, values_data, first, last)
            parts = [key_ends, value_ends, topic, sender, key_texts, value_texts, value]
        else:
            parts = [topic, sender, value]
        has_created = self._is_valid(created_validity, row)
        has_status = self._is_valid(status_validity, row)
        head = _HEAD.pack(
            offset,
            int.from_bytes(self._bytes(timestamps, 8 * row, 8), "little", signed=True),
            int.from_bytes(self._bytes(created, 8 * row, 8), "little", signed=True)
            if has_created
            else 0,
            int.from_bytes(self._bytes(statuses, 4 * row, 4), "little", signed=True)
            if has_status
            else 0,
            int.from_bytes(self._bytes(clients, 4 * row, 4), "little"),
            0, len(topic), 0, len(sender), 0, last - first, 0, len(value),
            self._bytes(protocols, row, 1)[0],
            self._bytes(kinds, row, 1)[0],
            self._bytes(forms, row, 1)[0],
            has_created,
            has_status,
        )  # fmt: skip
        return b"".join((head, *parts)), topic

    def _bytes(self, part: int, start: int, size: int) -> bytes:
        if not size:
            return b""
        if part == ZEROS:
            return bytes(size)
        if part == ABSENT or part + start + size > self._size:
            raise BadRecord(f"{size} bytes at {part + start} of {self._size}")
        data = self._read(part + start, size)
        if len(data) != size:
            raise BadRecord("the file ends inside a row group")
        return data

    def _is_valid(self, part: int, row: int) -> bool:
        return part == ABSENT or bool(self._bytes(part, row // 8, 1)[0] >> row % 8 & 1)

    def _text(self, offsets: int, data: int, number: int) -> bytes:
        start, end = _PAIR.unpack(self._bytes(offsets, 4 * number, 8))
        if not start <= end <= self._size:
            raise BadRecord(f"a text from {start} to {end}")
        return self._bytes(data, start, end - start)

    def _texts(self, offsets: int, data: int, first: int, last: int) -> tuple[bytes, bytes]:
        """Return the offsets of some texts, from 0 on, and their bytes."""
        if last > self._size:
            raise BadRecord(f"{last} headers")
        layout = struct.Struct(f"<{last - first + 1}I")
        ends = layout.unpack(self._bytes(offsets, 4 * first, layout.size))
        if ends != tuple(sorted(ends)) or ends[-1] > self._size:
            raise BadRecord("headers end before they begin")
        own = layout.pack(*(end - ends[0] for end in ends))
        return own, self._bytes(data, ends[0], ends[-1] - ends[0])


def row_group_of(record: bytes) -> RowGroup:
    """Return a checked record as a row group of one message, without metadata."""
    head = _HEAD.unpack_from(record)
    offset = head[0]
    topic_size, sender_size, headers, value_size = head[6:13:2]
    layout = [0] * (2 * BUFFERS)

    def place(number: int, start: int, length: int) -> None:
        layout[2 * number : 2 * number + 2] = start, length

    position = HEAD
    if headers:
        size = 4 * (headers + 1)
        place(20, position, size)
        place(23, position + size, size)
        (keys,) = struct.unpack_from("<I", record, position + size - 4)
        (values,) = struct.unpack_from("<I", record, position + 2 * size - 4)
        position += 2 * size
    else:
        keys = values = 0
    topic_layout = 32, 8, position, topic_size
    position += topic_size
    sender_layout = 40, 8, position, sender_size
    position += sender_size
    place(21, position, keys)
    place(24, position + keys, values)
    place(5, position + keys + values, value_size)
    for number, start, length in (
        (4, 56, 8), (7, _ZERO_INDEX, 2), (11, 0, 8), (13, 8, 8), (17, 48, 8), (26, 64, 1),
        (28, 65, 1), (30, _ZERO_INDEX, 2), (31, 67, 1), (32, 16, 8), (36, 68, 1), (37, 24, 4),
        (42, 28, 4), (44, 66, 1),
    ):  # fmt: skip
        place(number, start, length)
    return RowGroup(
        start=0,
        size=len(record),
        base_offset=offset,
        count=1,
        synced=0,
        previous=0,
        crc32c=0,
        crc_position=0,
        layout=tuple(layout),
        topic_count=1,
        topic_layout=topic_layout,
        sender_count=1,
        sender_layout=sender_layout,
        sender_start=0,
        record_start=0,
        body_start=0,
        zeros=0,
        checksums=(),
    )
