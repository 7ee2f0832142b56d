"""Batches of the log as Spark takes them: its columns, no dictionaries, not too small."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from penstock.limits import SPARK_BATCH_BYTES, SPARK_BATCH_ROWS, SPARK_BATCH_ROWS_MIN
from penstock.log.selection import Selection

__all__ = ["shaped"]


def shaped(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, selection: Selection
) -> Iterator[pa.RecordBatch]:
    """Yield what is wanted of some batches, with the columns of `schema` and small ones together.

    The batches have at least those columns and the selection's. They are not copied where they
    are large enough and have plain columns.
    """
    waiting: list[list[pa.Array]] = []
    rows = size = 0
    for each in batches:
        batch = selection.of(each)
        if not len(batch):
            continue
        alone = len(batch) >= SPARK_BATCH_ROWS_MIN
        if waiting and alone:
            yield _together(waiting, schema, rows)
            waiting, rows, size = [], 0, 0
        columns = [_plain(batch.column(field.name), field.type) for field in schema]
        waiting.append(columns)
        rows += len(batch)
        size += sum(column.nbytes for column in columns)
        if alone or rows >= SPARK_BATCH_ROWS or size >= SPARK_BATCH_BYTES:
            yield _together(waiting, schema, rows)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _together(waiting, schema, rows)


def _plain(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    elif pa.types.is_list(column.type):
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
