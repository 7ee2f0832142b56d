"""The rows of a merged row group: collected from small ones, and turned into columns to encode."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.storage.arrow.format.segment import Columns
from penstock.storage.schema import SCHEMA

__all__ = ["MergedRows", "columns_of"]

_NULLABLE: Final = ("key", "created", "correlation", "status")
_DICTIONARIES: Final = ("topic", "sender")


class MergedRows:
    """Collects the rows of a merged row group, and dictionaries that have each name once."""

    def __init__(self) -> None:
        self._columns: list[list[pa.Array]] = [[] for _ in SCHEMA]
        self._names: dict[str, dict[bytes, int]] = {name: {} for name in _DICTIONARIES}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a row group."""
        for field, column, found in zip(SCHEMA, batch.columns, self._columns, strict=True):
            names = self._names.get(field.name)
            if names is None:
                found.append(column)
                continue
            numbers = [names.setdefault(each, len(names)) for each in _names(column.dictionary)]
            found.append(pc.take(pa.array(numbers, pa.uint16()), column.indices))

    def joined(self) -> pa.RecordBatch:
        """Return all rows as one batch, with columns that have no Arrow offset."""
        columns = []
        for field, found in zip(SCHEMA, self._columns, strict=True):
            column = pa.concat_arrays(found)
            names = self._names.get(field.name)
            if names is not None:
                words = pc.cast(pa.array(list(names), pa.binary()), pa.utf8())
                column = pa.DictionaryArray.from_arrays(column, words)
            columns.append(column)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        with pa.ipc.open_stream(sink.getvalue()) as reader:
            return reader.read_next_batch()


def columns_of(batch: pa.RecordBatch, base_offset: int) -> Columns:
    """Return the buffers of a batch of the log's schema; its columns have no Arrow offset."""
    buffers: list[memoryview | bytes | int] = []
    for column in batch.columns:
        sizes = _sizes(column)
        for buffer, size in zip(column.buffers(), sizes, strict=True):
            view = b"" if buffer is None else memoryview(buffer).cast("B")[:size]
            buffers.append(size if view and not bytes(view).strip(b"\0") else view)
    return Columns(
        base_offset=base_offset,
        count=len(batch),
        header_count=len(batch.column("headers").values),
        null_counts=tuple(batch.column(name).null_count for name in _NULLABLE),
        buffers=buffers,
        topics=_names(batch.column("topic").dictionary),
        senders=_names(batch.column("sender").dictionary),
    )


def _names(dictionary: pa.Array) -> list[bytes]:
    found: list[bytes] = pc.cast(dictionary, pa.binary()).to_pylist()
    return found


def _sizes(column: pa.Array) -> list[int]:
    """Return the used bytes of each buffer of a column that has no Arrow offset, flattened."""
    count, kind = len(column), column.type
    bitmap = (count + 7) // 8
    if pa.types.is_list(kind):
        pairs = column.values
        found = [bitmap, 4 * (count + 1), (len(pairs) + 7) // 8]
        for number in range(2):
            found += _sizes(pairs.field(number))
        return found
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        ends = memoryview(column.buffers()[1]).cast("B")[4 * count : 4 * (count + 1)].cast("i")
        return [bitmap, 4 * (count + 1), ends[0]]
    width = kind.index_type.bit_width if pa.types.is_dictionary(kind) else kind.bit_width
    return [bitmap, width // 8 * count]
