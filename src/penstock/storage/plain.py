"""Batches of the log with plain columns, for those who do not know dictionaries."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from penstock.limits import PLAIN_COLUMN_BYTES_MAX

__all__ = ["Plain", "plain_schema"]


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema without dictionaries."""
    return pa.schema(
        [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in schema
        ]
    )


class Plain:
    """Puts words in the place of their numbers, batch by batch.

    Most batches have one word in every row of a column: the one protocol, the one sender. Such a
    column is kept, and the next batch gets a part of it.
    """

    def __init__(self) -> None:
        self._repeated: dict[str, tuple[str | bytes | None, pa.Array]] = {}

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield a batch without dictionaries, nearly always in one part.

        A name of 64 KiB in each of 65,536 rows is more than a column of Arrow holds.
        """
        longest = max(map(_longest_word, batch.columns), default=0)
        rows = max(PLAIN_COLUMN_BYTES_MAX // max(longest, 1), 1)
        schema = plain_schema(batch.schema)
        for first in range(0, len(batch), rows):
            part = batch if rows >= len(batch) else batch.slice(first, rows)
            columns = map(self._column, schema.names, part.columns)
            yield pa.RecordBatch.from_arrays(list(columns), schema=schema)

    def _column(self, name: str, column: pa.Array) -> pa.Array:
        if not pa.types.is_dictionary(column.type):
            return column
        bounds = pc.min_max(column.indices)
        if column.null_count or not bounds["min"].equals(bounds["max"]):
            return column.dictionary_decode()
        word = column[0].as_py()
        known, repeated = self._repeated.get(name, (None, column))
        if known != word or len(repeated) < len(column):
            repeated = column.dictionary_decode()
            self._repeated[name] = word, repeated
        return repeated.slice(0, len(column))


def _longest_word(column: pa.Array) -> int:
    if not pa.types.is_dictionary(column.type):
        return 0
    return pc.max(pc.binary_length(column.dictionary)).as_py() or 0
