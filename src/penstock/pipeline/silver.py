"""Silver: payloads decoded with a declared schema; each stage is a function of DataFrames.

    records ──select──▶ of its topics ──parse──▶ parts of each row ──convert──▶ columns and ERROR

A row that cannot be decoded gets an ERROR with the reason, and its message goes to the dead-letter
table; the job continues. All formats become text first; the same rules convert it to types.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from penstock.patterns import compile_pattern
from penstock.pipeline.config import METADATA_COLUMNS, RegistryConfig, SilverConfig
from penstock.pipeline.conversion import convert, missing
from penstock.pipeline.partitions import partition_problem, with_partitions
from penstock.pipeline.payloads import parse
from penstock.ports.selection import EVERYTHING

__all__ = [
    "DEAD_LETTER_COLUMNS",
    "ERROR",
    "PAYLOAD",
    "RECORD_COLUMNS",
    "dead_letters",
    "deduplicated",
    "mark_late",
    "silver",
    "topic_condition",
    "valid_rows",
]

DEAD_LETTER_COLUMNS: Final = (
    "schema", "error", "value", "topic", "partition", "offset", "timestamp", "protocol", "kind",
    "sender", "message_id", "failed_at", "day",
)  # fmt: skip

ERROR: Final = "_error"
"""The column with the reason why a row is invalid. Declared fields do not start with `_`."""
PAYLOAD: Final = "_payload"
_RANK: Final = "_rank"
_NO_REGISTRY: Final = RegistryConfig()

_CARRIED: Final = tuple(
    name for name in METADATA_COLUMNS if name not in {"event_time", "day"}
)  # fmt: skip
RECORD_COLUMNS: Final = ("value", *_CARRIED)
"""The columns of records that a schema needs."""


def silver(
    records: DataFrame,
    schema: SilverConfig,
    registry: RegistryConfig = _NO_REGISTRY,
    *,
    carried: Sequence[str] = (),
) -> DataFrame:
    """Return decoded rows of a schema's topics: fields, metadata columns, PAYLOAD and ERROR.

    ERROR is null for valid rows. `event_time` is the declared field, or the broker's timestamp
    where the field is null or none is declared. `carried` are further columns of the records that
    the rows have.
    """
    found = _select(records, schema).select(*RECORD_COLUMNS, *carried)
    return _convert(parse(found, schema, registry), schema, carried)


def _select(records: DataFrame, schema: SilverConfig) -> DataFrame:
    """Return the records of the schema's topics and kinds."""
    found = records.where(topic_condition(schema.topics))
    if schema.kinds:
        found = found.where(f.col("kind").isin(*schema.kinds))
    return found


def topic_condition(patterns: Sequence[str]) -> Column:
    """Return the condition for rows whose topic matches any pattern; `#` matches every row."""
    if not EVERYTHING.isdisjoint(patterns):
        return f.lit(True)  # noqa: FBT003  (also rows without a topic)
    topic = f.col("topic")
    names = [pattern for pattern in patterns if compile_pattern(pattern) is None]
    expressions = [found.pattern for found in map(compile_pattern, patterns) if found is not None]
    condition = topic.isin(*names) if names else f.lit(False)  # noqa: FBT003
    for expression in expressions:
        condition |= (topic != "") & topic.rlike(rf"(?s)\A(?:{expression})\z")
    return condition


def _convert(rows: DataFrame, schema: SilverConfig, carried: Sequence[str]) -> DataFrame:
    """Return rows with the schema's columns in their types, and ERROR."""
    columns = []
    errors = [f.col("problem")]
    for field in schema.field:
        part = f.col(f"parts.{field.name}")
        found = convert(part, field, field.name)
        columns.append(found.value.alias(field.name))
        if field.required:
            errors.append(missing(part, field.name))
        errors.append(found.error)
    error = f.coalesce(*errors)
    positions = [f.col(name).cast("int").alias(name) for name in schema.positions]
    if positions:
        shown = [f.concat(f.lit(f"{name} "), f.col(name)) for name in schema.positions]
        where = f.concat_ws(", ", *shown)
        placed = f.when(where != "", f.concat(where, f.lit(": "), error)).otherwise(error)
        error = f.coalesce(f.col("message_problem"), placed)
    payload = f.col("value").alias(PAYLOAD)
    decoded = rows.select(*columns, *_CARRIED, *positions, *carried, payload, error.alias(ERROR))
    moment = f.coalesce(f.col(schema.event_time), f.col("timestamp"))
    decoded = decoded.withColumn("event_time", moment).withColumn("day", f.to_date("timestamp"))
    decoded = with_partitions(decoded, schema.partitions)
    problem = partition_problem(schema.partition_columns, decoded.schema)
    return decoded.withColumn(ERROR, f.coalesce(ERROR, problem))


# --- Late and repeated rows -----------------------------------------------------------------------


def mark_late(
    rows: DataFrame, schema: SilverConfig, watermark: dt.datetime | Column | None
) -> DataFrame:
    """Apply the schema's rule for late rows, those with an event time before the watermark.

    "dead-letter" sets ERROR, "drop" removes the rows, "keep" changes nothing. Without a watermark,
    or where it is null, no row is late.
    """
    if watermark is None or schema.late == "keep":
        return rows
    limit = f.lit(watermark)
    late = f.col(ERROR).isNull() & (f.col("event_time") < limit) & limit.isNotNull()
    if schema.late == "drop":
        return rows.where(~late)
    message = f.concat(
        f.lit("late: "), f.col("event_time").cast("string"),
        f.lit(" is before the watermark "), f.date_format(limit, "yyyy-MM-dd HH:mm:ss"),
    )  # fmt: skip
    return rows.withColumn(ERROR, f.when(late, message).otherwise(f.col(ERROR)))


def deduplicated(
    rows: DataFrame,
    keys: Sequence[str],
    existing: DataFrame | None = None,
    *,
    positions: Sequence[str] = (),
) -> DataFrame:
    """Return the first row, by offset and positions, of the rows with equal keys.

    Rows whose keys are in `existing` are removed. A null key equals no other key.
    """
    if not keys:
        return rows
    rank = f.row_number().over(Window.partitionBy(*keys).orderBy("partition", "offset", *positions))
    some_null = f.lit(False)  # noqa: FBT003
    for key in keys:
        if key not in positions:  # an element is null if its array is empty
            some_null |= f.col(key).isNull()
    found = rows.withColumn(_RANK, rank).where((f.col(_RANK) == 1) | some_null).drop(_RANK)
    if existing is not None:
        found = found.join(*_equal(found, existing.select(*keys).distinct(), keys, positions))
    return found.select(*rows.columns)


def _equal(
    rows: DataFrame, existing: DataFrame, keys: Sequence[str], positions: Sequence[str]
) -> tuple[DataFrame, Column, str]:
    """Return the arguments of a join that removes rows with the keys of existing ones."""
    known = existing.select(*(f.col(key).alias(f"_known_{key}") for key in keys))
    condition = f.lit(True)  # noqa: FBT003
    for key in keys:
        one, other = rows[key], known[f"_known_{key}"]
        condition &= one.eqNullSafe(other) if key in positions else one == other
    return known, condition, "left_anti"


def valid_rows(rows: DataFrame) -> DataFrame:
    """Return the rows without ERROR, with the columns of the silver table."""
    return rows.where(f.col(ERROR).isNull()).drop(ERROR, PAYLOAD)


def dead_letters(rows: DataFrame, schema: SilverConfig) -> DataFrame:
    """Return the messages with an ERROR, each once, with DEAD_LETTER_COLUMNS."""
    found = rows.where(f.col(ERROR).isNotNull())
    if schema.positions:
        by_message = Window.partitionBy("message_id").orderBy(*schema.positions)
        rank = f.row_number().over(by_message)
        found = found.withColumn(_RANK, rank).where(f.col(_RANK) == 1)
    return found.select(
        f.lit(schema.name).alias("schema"),
        f.col(ERROR).alias("error"),
        f.col(PAYLOAD).alias("value"),
        *METADATA_COLUMNS,
        f.current_timestamp().alias("failed_at"),
    ).select(*DEAD_LETTER_COLUMNS)
