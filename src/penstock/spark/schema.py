"""The columns of a record as a Spark schema and as an Arrow schema."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.spark.errors import InvalidSchema

__all__ = ["HEADERS", "RECORD", "arrow_schema", "check_columns", "record"]

HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)

RECORD: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", HEADERS),
        StructField("protocol", StringType()),
        StructField("kind", StringType()),
        StructField("sender", StringType()),
        StructField("created", TimestampType()),
        StructField("correlation", StringType()),
        StructField("status", IntegerType()),
        StructField("message_id", StringType()),
    ]
)
"""All columns. The first eight are those of Spark's Kafka source, in the same order."""

_MAY_BE_NULL: Final = frozenset({"key", "headers", "created", "correlation", "status"})


def record(columns: Sequence[str] = RECORD.names) -> StructType:
    """Return a schema of some columns, with NOT NULL where the log has no nulls.

    Spark spends half of its Arrow conversion on null checks of nullable columns. Raise
    InvalidSchema.
    """
    known = {field.name: field.dataType for field in RECORD}
    _check_once(columns, ", ".join(known))
    for name in columns:
        if name not in known:
            raise InvalidSchema(name, "there is no such column", ", ".join(known))
    return StructType([StructField(name, known[name], name in _MAY_BE_NULL) for name in columns])


def check_columns(schema: StructType) -> None:
    """Raise InvalidSchema unless all columns are columns of a record, with their types."""
    known: dict[str, DataType] = {field.name: field.dataType for field in RECORD}
    allowed = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
    _check_once(schema.names, allowed)
    for field in schema:
        kind = known.get(field.name)
        if kind is None:
            raise InvalidSchema(field.name, "there is no such column", allowed)
        if field.dataType.simpleString() != kind.simpleString():
            problem = f"it is {kind.simpleString()}, not {field.dataType.simpleString()}"
            raise InvalidSchema(field.name, problem, allowed)
        if not field.nullable and field.name in _MAY_BE_NULL:
            raise InvalidSchema(field.name, "it may be null", f"{field.name} without NOT NULL")


def _check_once(names: Sequence[str], allowed: str) -> None:
    for name in names:
        if list(names).count(name) > 1:
            raise InvalidSchema(name, "it is listed twice", allowed)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that batches must have: Spark rejects any other."""
    return to_arrow_schema(schema, timezone="UTC")
