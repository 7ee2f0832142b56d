"""Rows of a table on their way to the log: groups that come as Arrow, not as frames.

The thread that brings them does all that takes time: it puts the columns in the log's order, and
makes the bytes that live subscribers are served from. What follows from a group's place in the log
is filled in by the writer thread.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock._kernels import stored
from penstock._kernels.batch import Batch
from penstock._kernels.block import follow_columns
from penstock._kernels.topics import TopicTable
from penstock.limits import BLOCK_BYTES_MAX, BLOCK_ROWS_MAX
from penstock.ports import GroupColumns
from penstock.protocols import FLIGHT, Source
from penstock.storage.arrow.format.segment import Columns, encode_group, parse_group
from penstock.storage.schema import KINDS, PROTOCOLS, SCHEMA

__all__ = ["ROWS_SCHEMA", "PreparedGroup", "prepare"]

HEADERS: Final = SCHEMA.field("headers").type
ROWS_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.utf8(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("headers", HEADERS, nullable=False),
    ]
)
"""What a group is prepared of; nothing but a key may be null, also within headers."""

_TIMESTAMP: Final = 13
"""Which of a group's flattened buffers has the timestamps."""
_WORDS: Final = stored.SegmentWords(PROTOCOLS, KINDS)

Buffers = list[memoryview | bytes | int]


def prepare(
    rows: pa.RecordBatch,
    *,
    sender: str,
    client: int,
    correlation: str,
    source: Source = FLIGHT,
    rows_max: int = BLOCK_ROWS_MAX,
    bytes_max: int = BLOCK_BYTES_MAX,
) -> Iterator["PreparedGroup"]:
    """Yield rows of ROWS_SCHEMA as groups, none larger than the log's but by one row.

    All rows are of `sender`, whose number is `client`, came in by `source` and carry `correlation`.
    """
    topics = rows.column(0).dictionary_encode()
    columns = [topics.indices, *rows.columns[1:]]
    indexed = pa.RecordBatch.from_arrays(columns, names=["topic", *rows.schema.names[1:]])
    first = 0
    while first < len(rows):
        piece = indexed.slice(first, _fitting(rows.column(1), first, rows_max, bytes_max))
        yield PreparedGroup(
            piece,
            topics.dictionary,
            sender=sender,
            client=client,
            correlation=correlation,
            source=source,
        )
        first += len(piece)


def _fitting(values: pa.Array, first: int, rows_max: int, bytes_max: int) -> int:
    """Return how many rows from `first` on make a group."""
    ends = memoryview(values.buffers()[1]).cast("B")
    ends = ends[4 * values.offset : 4 * (values.offset + len(values) + 1)].cast("i")
    last = min(first + rows_max, len(values))
    return max(bisect_right(ends, ends[first] + bytes_max, first, last + 1) - 1 - first, 1)


class PreparedGroup:
    """A `ports.Prepared`: one group, of rows that came together."""

    def __init__(
        self,
        piece: pa.RecordBatch,
        names: pa.Array,
        *,
        sender: str,
        client: int,
        correlation: str,
        source: Source,
    ) -> None:
        self.client = client
        self._protocol = bytes([PROTOCOLS.index(source.label)])
        self._count = len(piece)
        self._timestamp_us = 0
        self._sender = sender.encode()
        topics = piece.column(0).dictionary_encode()
        self._topics = _encoded(names.take(topics.dictionary))
        indices = topics.indices.cast(pa.uint16())
        # Through IPC and back: then every column begins at its first row.
        own = pa.RecordBatch.from_arrays(
            [indices, *piece.columns[1:]], names=["topic", "value", "key", "headers"]
        )
        self._rows = pa.ipc.read_record_batch(own.serialize(), own.schema)
        self._topic_indices, self._value, self._key, self._headers = self._rows.columns
        self._correlation = pa.repeat(pa.scalar(correlation, pa.utf8()), self._count)
        ends = _view(self._value.buffers()[1], 4 * (self._count + 1)).cast("i")
        self.value_bytes: int = ends[self._count]
        """See ports.Prepared."""
        encoded = encode_group(
            Columns(*self.finish(0, log_id=0, partition=0)), previous=0, synced=0
        )
        self._data = bytearray().join(encoded.buffers)
        self._group = parse_group(self._data)

    def __len__(self) -> int:
        return self._count

    def stamp(self, timestamp_us: int) -> None:
        """See ports.Prepared."""
        self._timestamp_us = timestamp_us
        start = self._group.layout[2 * _TIMESTAMP]
        self._data[start : start + 8 * self._count] = self._repeated("<q", timestamp_us)

    def load(self, batch: Batch, topics: TopicTable) -> None:
        """See ports.Prepared; once: then the batch alone has the bytes."""
        group = self._group
        data, self._data = self._data, bytearray()
        stored.load(
            batch,
            topics,
            data,
            group.layout,
            group.topic_layout,
            group.sender_layout,
            _WORDS,
            count=group.count,
        )

    def finish(self, base_offset: int, *, log_id: int, partition: int) -> GroupColumns:
        """See ports.Prepared."""
        count = self._count
        offsets, id_ends, ids = follow_columns(
            base_offset, count, log_id=log_id, partition=partition
        )
        header_count, headers = self._header_buffers()
        buffers: Buffers = [
            *self._key_buffers(),
            0, *_texts(self._value, count),
            0, _view(self._topic_indices.buffers()[1], 2 * count),
            0, self._repeated("<i", partition) if partition else 4 * count,
            0, offsets,
            0, self._repeated("<q", self._timestamp_us),
            0, self._repeated("<i", 1),
            *headers,
            0, self._protocol * count,
            0, count,  # every one is a publish,
            0, 2 * count,  # of the one sender
            _bitmap_bytes(count), 8 * count,
            0, *_texts(self._correlation, count),
            _bitmap_bytes(count), 4 * count,
            0, id_ends, ids,
            0, self._repeated("<I", self.client),
            0, count,
        ]  # fmt: skip
        nulls = (self._key.null_count, count, 0, count)
        return base_offset, count, header_count, nulls, buffers, self._topics, [self._sender]

    def _repeated(self, layout: str, number: int) -> bytes:
        return struct.pack(layout, number) * self._count

    def _key_buffers(self) -> Buffers:
        count = self._count
        if self._key.null_count == count:
            return [_bitmap_bytes(count), 4 * (count + 1), 0]
        validity = self._key.buffers()[0]
        bits: memoryview | int = _view(validity, _bitmap_bytes(count)) if validity else 0
        return [bits, *_texts(self._key, count)]

    def _header_buffers(self) -> tuple[int, Buffers]:
        """Return how many headers there are, and their buffers: list, struct, key, value."""
        count = self._count
        ends = _view(self._headers.buffers()[1], 4 * (count + 1))
        header_count: int = ends.cast("i")[count]
        if not header_count:
            return 0, [0, 4 * (count + 1), 0, 0, 4, 0, 0, 4, 0]
        keys, values = self._headers.values.flatten()
        return header_count, [
            0, ends,
            0,
            0, *_texts(keys, header_count),
            0, *_texts(values, header_count),
        ]  # fmt: skip


def _texts(column: pa.Array, count: int) -> tuple[memoryview, memoryview | int]:
    """Return where the elements of a column of byte strings end, and their bytes."""
    _, ends, data = column.buffers()
    ends_view = _view(ends, 4 * (count + 1))
    size = ends_view.cast("i")[count]
    return ends_view, _view(data, size) if size else 0


def _view(buffer: pa.Buffer, size: int) -> memoryview:
    return memoryview(buffer).cast("B")[:size]


def _bitmap_bytes(count: int) -> int:
    return (count + 7) // 8


def _encoded(names: pa.Array) -> Sequence[bytes]:
    """Return texts in UTF-8."""
    encoded: list[bytes] = pc.cast(names, pa.binary()).to_pylist()
    return encoded
