"""Record batches of the log with plain columns instead of dictionaries."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.limits import PLAIN_COLUMN_BYTES_MAX
from penstock.storage.schema import RECORD_COLUMNS, SCHEMA

__all__ = ["RECORD_SCHEMA", "DictionaryDecoder", "plain_schema"]


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema without dictionaries."""
    return pa.schema(
        [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in schema
        ]
    )


RECORD_SCHEMA: Final = plain_schema(pa.schema(list(SCHEMA)[:RECORD_COLUMNS]))
"""Columns of a record as plain strings."""


class DictionaryDecoder:
    """Replaces dictionary columns with plain ones, batch by batch.

    Most batches have one value in every row of a column, such as the protocol or the sender. The
    decoded column is cached, and the next batch gets a slice of it.
    """

    def __init__(self) -> None:
        self._repeated: dict[str, tuple[str | bytes | None, pa.Array]] = {}

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield a batch without dictionaries, nearly always as one batch.

        A name of 64 KiB in each of 65,536 rows exceeds what one Arrow column holds.
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
