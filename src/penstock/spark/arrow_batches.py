"""Batches of the log as Spark takes them: its columns, no dictionaries, neither small nor large."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from penstock.limits import SPARK_BATCH_BYTES, SPARK_BATCH_ROWS
from penstock.storage.plain import Plain
from penstock.storage.selection import Selection

__all__ = ["to_spark_batches"]


def to_spark_batches(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, selection: Selection
) -> Iterator[pa.RecordBatch]:
    """Yield what is wanted of some batches, with the columns of `schema`.

    The batches have at least those columns and the selection's. Small ones are put together, and
    large ones are cut, which copies nothing.
    """
    waiting: list[list[pa.Array]] = []
    rows = size = 0
    for batch in _wanted(batches, schema.names, selection):
        columns = [_column(batch.column(field.name), field.type) for field in schema]
        batch_size = sum(column.nbytes for column in columns)
        if waiting and (
            rows + len(batch) > SPARK_BATCH_ROWS or size + batch_size > SPARK_BATCH_BYTES
        ):
            yield from _cut(_together(waiting, schema, rows), size)
            waiting, rows, size = [], 0, 0
        waiting.append(columns)
        rows += len(batch)
        size += batch_size
    if waiting:
        yield from _cut(_together(waiting, schema, rows), size)


def _wanted(
    batches: Iterable[pa.RecordBatch], names: list[str], selection: Selection
) -> Iterator[pa.RecordBatch]:
    plain = Plain()
    for each in batches:
        batch = selection.of(each)
        if len(batch):
            yield from plain.parts(batch.select(names)) if names else (batch,)


def _column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_list(column.type):
        column = _null_if_empty(column)
    return column if column.type.equals(kind) else column.cast(kind)


def _null_if_empty(column: pa.Array) -> pa.Array:
    """Return lists with null for those that are empty: so are the headers of Kafka's source.

    Spark passes over a null at no cost, but makes two arrays for each list.
    """
    if not len(column.flatten()):
        return pa.nulls(len(column), column.type)
    empty = pc.equal(pc.list_value_length(column), 0)
    return pc.if_else(empty, pa.scalar(None, column.type), column)


def _together(waiting: list[list[pa.Array]], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if not len(schema):  # Spark only counts them
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    columns = (
        waiting[0]
        if len(waiting) == 1
        else [pa.concat_arrays(parts) for parts in zip(*waiting, strict=True)]
    )
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cut(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of about the same number of rows that are small enough."""
    parts = min(-(-size // SPARK_BATCH_BYTES), len(batch)) or 1
    rows = -(-len(batch) // parts)
    for first in range(0, len(batch), rows):
        yield batch.slice(first, rows)
