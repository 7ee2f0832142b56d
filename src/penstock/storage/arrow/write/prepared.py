"""Prepares rows of a table for the log: row groups from Arrow columns instead of frames.

The caller's thread does the expensive part: it arranges the columns, and encodes the bytes from
which live subscribers are served. The writer thread fills in offsets and message ids.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock._kernels import stored
from penstock._kernels.batch import Batch
from penstock._kernels.block import follow_columns
from penstock._kernels.topics import TopicTable
from penstock.limits import BLOCK_BYTES_MAX, BLOCK_ROWS_MAX
from penstock.protocols import Source
from penstock.storage.arrow.format.segment import Columns, encode_row_group, parse_row_group
from penstock.storage.rows import check_rows
from penstock.storage.schema import KINDS, PROTOCOLS

__all__ = ["PreparedRowGroup", "prepare"]

_TIMESTAMP: Final = 13
"""Number of the flattened buffer with the timestamps."""
_WORDS: Final = stored.SegmentWords(PROTOCOLS, KINDS)

Buffers = list[memoryview | bytes | int]


def prepare(
    rows: pa.RecordBatch,
    *,
    sender: str,
    client: int,
    correlation: str,
    source: Source,
    rows_max: int = BLOCK_ROWS_MAX,
    bytes_max: int = BLOCK_BYTES_MAX,
) -> Iterator["PreparedRowGroup"]:
    """Yield rows of ROWS_SCHEMA as row groups, within the bounds or of a single row.

    All rows get the sender, whose number is `client`, the source and the correlation. Raise
    ValueError, and yield nothing, unless the rows are whole.
    """
    check_rows(rows)
    ends = _ends(rows)
    topics = rows.column(0).dictionary_encode()
    columns = [topics.indices, *rows.columns[1:]]
    indexed = pa.RecordBatch.from_arrays(columns, names=["topic", *rows.schema.names[1:]])
    first = 0
    while first < len(rows):
        piece = indexed.slice(first, _fitting(ends, first, rows_max, bytes_max))
        yield PreparedRowGroup(
            piece,
            topics.dictionary,
            data_bytes=ends[first + len(piece)] - ends[first],
            sender=sender,
            client=client,
            correlation=correlation,
            source=source,
        )
        first += len(piece)


def _ends(rows: pa.RecordBatch) -> Sequence[int]:
    """Return 0, then the end of each row's bytes: those of topic, value, key and headers."""
    topic, value, key, headers = rows.columns
    sizes = pc.add(_lengths(topic), _lengths(value))
    sizes = pc.add(sizes, pc.fill_null(_lengths(key), 0))
    entries = pc.list_flatten(headers)
    if len(entries):
        names, texts = (pc.struct_field(entries, name) for name in ("key", "value"))
        entry_ends = _sums(pc.add(_lengths(names), _lengths(texts)))
        row_ends = pc.take(entry_ends, _sums(pc.cast(pc.list_value_length(headers), pa.int64())))
        sizes = pc.add(sizes, pc.subtract(row_ends.slice(1), row_ends.slice(0, len(rows))))
    return memoryview(_sums(sizes).buffers()[1]).cast("B").cast("q")[: len(rows) + 1]


def _lengths(column: pa.Array) -> pa.Array:
    return pc.cast(pc.binary_length(column), pa.int64())


def _sums(sizes: pa.Array) -> pa.Array:
    """Return 0 and the sums of the first one, two, … sizes."""
    return pc.cumulative_sum(pa.concat_arrays([pa.array([0], pa.int64()), sizes]))


def _fitting(ends: Sequence[int], first: int, rows_max: int, bytes_max: int) -> int:
    """Return the number of rows from `first` on that fit into a row group."""
    last = min(first + rows_max, len(ends) - 1)
    return max(bisect_right(ends, ends[first] + bytes_max, first, last + 1) - 1 - first, 1)


class PreparedRowGroup:
    """A `ports.Prepared`: one row group."""

    def __init__(
        self,
        piece: pa.RecordBatch,
        names: pa.Array,
        *,
        data_bytes: int,
        sender: str,
        client: int,
        correlation: str,
        source: Source,
    ) -> None:
        self.client = client
        self.state: Mapping[str, bytes] = {}
        """Changes of the state of a log on Kafka, which are written with the rows."""
        self._protocol = bytes([PROTOCOLS.index(source.label)])
        self._count = len(piece)
        self._timestamp_us = 0
        self._sender = sender.encode()
        topics = piece.column(0).dictionary_encode()
        self._topics = _encoded(names.take(topics.dictionary))
        indices = topics.indices.cast(pa.uint16())
        # Through IPC and back, so that every column begins at its first row.
        own = pa.RecordBatch.from_arrays(
            [indices, *piece.columns[1:]], names=["topic", "value", "key", "headers"]
        )
        self._rows = pa.ipc.read_record_batch(own.serialize(), own.schema)
        self._topic_indices, self._value, self._key, self._headers = self._rows.columns
        self._correlation = pa.repeat(pa.scalar(correlation, pa.utf8()), self._count)
        self.data_bytes = data_bytes
        """See ports.Prepared."""
        encoded = encode_row_group(self.finish(0, log_id=0, partition=0), previous=0, synced=0)
        self._data = bytearray().join(encoded.buffers)
        self.held_bytes = len(self._data)
        """See ports.Prepared."""
        self._row_group = parse_row_group(self._data)

    def __len__(self) -> int:
        return self._count

    def stamp(self, timestamp_us: int) -> None:
        """See ports.Prepared."""
        self._timestamp_us = timestamp_us
        start = self._row_group.layout[2 * _TIMESTAMP]
        self._data[start : start + 8 * self._count] = self._repeated("<q", timestamp_us)

    def load(self, batch: Batch, topics: TopicTable) -> None:
        """See ports.Prepared: afterwards only the batch has the bytes."""
        row_group = self._row_group
        data, self._data = self._data, bytearray()
        stored.load(
            batch,
            topics,
            data,
            row_group.layout,
            row_group.topic_layout,
            row_group.sender_layout,
            _WORDS,
            count=row_group.count,
            published=True,
        )

    def finish(self, base_offset: int, *, log_id: int, partition: int) -> Columns:
        """Return the columns of a row group whose first message has `base_offset`."""
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
            0, count,  # every row is a publish,
            0, 2 * count,  # of the same sender
            _bitmap_bytes(count), 8 * count,
            0, *_texts(self._correlation, count),
            _bitmap_bytes(count), 4 * count,
            0, id_ends, ids,
            0, self._repeated("<I", self.client),
            0, count,
        ]  # fmt: skip
        nulls = (self._key.null_count, count, 0, count)
        return Columns(
            base_offset, count, header_count, nulls, buffers, self._topics, [self._sender]
        )

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
        """Return the number of headers, and their buffers: list, struct, key, value."""
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
    """Return the offsets buffer and the data buffer of a column of byte strings."""
    _, ends, data = column.buffers()
    ends_view = _view(ends, 4 * (count + 1))
    size = ends_view.cast("i")[count]
    return ends_view, _view(data, size) if size else 0


def _view(buffer: pa.Buffer, size: int) -> memoryview:
    """Return the first `size` bytes of a buffer; raise ValueError if it has fewer."""
    if not 0 <= size <= buffer.size:
        raise ValueError(f"{size} of {buffer.size} bytes of a column")
    return memoryview(buffer).cast("B")[:size]


def _bitmap_bytes(count: int) -> int:
    return (count + 7) // 8


def _encoded(names: pa.Array) -> Sequence[bytes]:
    """Return names as UTF-8."""
    encoded: list[bytes] = pc.cast(names, pa.binary()).to_pylist()
    return encoded
