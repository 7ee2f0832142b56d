"""Arrow batches for Spark: columns of the schema, without dictionaries, of a useful size."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from penstock.limits import SPARK_BATCH_BYTES, SPARK_BATCH_ROWS
from penstock.ports.selection import Selection
from penstock.storage.dictionaries import DictionaryDecoder

__all__ = ["to_spark_batches"]


def to_spark_batches(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, selection: Selection
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of batches, with the columns of `schema`.

    The input has at least the columns of `schema` and of the selection. Small batches are
    concatenated. Large ones are sliced without a copy.
    """
    pending: list[list[pa.Array]] = []
    rows = size = 0
    for batch in _selected(batches, schema.names, selection):
        columns = [_column(batch.column(field.name), field.type) for field in schema]
        batch_size = sum(column.nbytes for column in columns)
        if pending and (
            rows + len(batch) > SPARK_BATCH_ROWS or size + batch_size > SPARK_BATCH_BYTES
        ):
            yield from _sliced(_concatenated(pending, schema, rows), size)
            pending, rows, size = [], 0, 0
        pending.append(columns)
        rows += len(batch)
        size += batch_size
    if pending:
        yield from _sliced(_concatenated(pending, schema, rows), size)


def _selected(
    batches: Iterable[pa.RecordBatch], names: list[str], selection: Selection
) -> Iterator[pa.RecordBatch]:
    plain = DictionaryDecoder()
    for each in batches:
        batch = selection.of(each)
        if len(batch):
            yield from plain.parts(batch.select(names)) if names else (batch,)


def _column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_list(column.type):
        column = _null_if_empty(column)
    return column if column.type.equals(kind) else column.cast(kind)


def _null_if_empty(column: pa.Array) -> pa.Array:
    """Replace empty lists by null, as Spark's Kafka source does for headers.

    Spark skips nulls at no cost, but creates two arrays for each list.
    """
    if not len(column.flatten()):
        return pa.nulls(len(column), column.type)
    empty = pc.equal(pc.list_value_length(column), 0)
    return pc.if_else(empty, pa.scalar(None, column.type), column)


def _concatenated(pending: list[list[pa.Array]], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if not len(schema):  # Spark only counts the rows
        rows_only = pa.Array.from_buffers(pa.struct([]), rows, [None])
        return pa.RecordBatch.from_struct_array(rows_only)
    columns = (
        pending[0]
        if len(pending) == 1
        else [pa.concat_arrays(parts) for parts in zip(*pending, strict=True)]
    )
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _sliced(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of about equal row counts, each within SPARK_BATCH_BYTES."""
    parts = min(-(-size // SPARK_BATCH_BYTES), len(batch)) or 1
    rows = -(-len(batch) // parts)
    for first in range(0, len(batch), rows):
        yield batch.slice(first, rows)
