"""The record schema: one for the log, for Arrow and for Spark.

The first eight columns are those of Spark's Kafka source, in its order. The last two belong to the
log and are not shown to Spark: replay needs them to deliver a message exactly as it was sent.
"""

from typing import Final

import pyarrow as pa

from penstock.model import Kind
from penstock.protocols import SOURCES

__all__ = ["KINDS", "PROTOCOLS", "RECORD_COLUMNS", "ROWS_SCHEMA", "SCHEMA"]

RECORD_COLUMNS: Final = 15
"""Number of columns of a record; the columns behind them belong to the log."""

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_NAME: Final = pa.dictionary(pa.uint16(), pa.utf8())
_WORD: Final = pa.dictionary(pa.uint8(), pa.utf8())
_HEADERS: Final = pa.list_(pa.struct([("key", pa.utf8()), ("value", pa.binary())]))

ROWS_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.utf8(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("headers", _HEADERS, nullable=False),
    ]
)
"""Rows that a table writer publishes. Only a key may be null, also within headers."""

SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", _NAME),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", _HEADERS),
        ("protocol", _WORD),
        ("kind", _WORD),
        ("sender", _NAME),
        ("created", _TIMESTAMP),
        ("correlation", pa.utf8()),
        ("status", pa.int32()),
        ("message_id", pa.utf8()),
        ("client", pa.uint32()),
        ("form", pa.uint8()),
    ]
)
"""Columns of a segment."""

PROTOCOLS: Final = tuple(SOURCES)
"""The dictionary of `protocol` in segments that are written now.

Readers go by the dictionary of the segment that they read: an index means another label there if
other sources were known when it was written.
"""
KINDS: Final = tuple(kind.label for kind in Kind)
"""The dictionary of `kind` in segments that are written now: an index is a Kind's number."""
