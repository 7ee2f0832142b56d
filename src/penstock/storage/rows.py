"""Checks record batches from outside the process before anything reads their values.

Arrow trusts offsets, lengths and null counts: damaged ones make it read memory that is not theirs.
"""

import pyarrow as pa

from penstock.storage.schema import ROWS_SCHEMA

__all__ = ["check_column", "check_rows", "read_whole_batch"]


def check_column(column: pa.Array, count: int) -> None:
    """Raise ValueError unless a column has `count` rows and every value is whole.

    That is: offsets, lengths, null counts, dictionary indices and UTF-8, at every level.
    """
    if len(column) != count:
        raise ValueError(f"it has {len(column)} rows, expected {count}")
    try:
        column.validate(full=True)
    except pa.ArrowException as error:
        raise ValueError(f"it is damaged: {str(error)[:200]}") from None


def check_rows(rows: pa.RecordBatch) -> None:
    """Raise ValueError unless these are rows of ROWS_SCHEMA, whole, and null only where allowed."""
    if not rows.schema.equals(ROWS_SCHEMA):
        raise ValueError("the columns are not those of ROWS_SCHEMA")
    for field, column in zip(rows.schema, rows.columns, strict=True):
        try:
            check_column(column, len(rows))
        except ValueError as error:
            raise ValueError(f"column {field.name!r}: {error}") from None
    entries = rows.column("headers").flatten()
    required = {
        "topic": rows.column("topic"),
        "value": rows.column("value"),
        "headers": rows.column("headers"),
        "headers.entry": entries,
        "headers.key": entries.field(0),
        "headers.value": entries.field(1),
    }
    for name, column in required.items():
        if column.null_count:
            raise ValueError(f"column {name!r}: {column.null_count} of {len(column)} are null")


def read_whole_batch(reader: pa.RecordBatchReader) -> pa.RecordBatch:
    """Return the next record batch of a file, with every value whole.

    The checksum of a row group says that it is as it was written, not that it was written right.
    Raise ArrowException or OSError if Arrow cannot read it, StopIteration at the end.
    """
    batch = reader.read_next_batch()
    batch.validate(full=True)
    return batch
