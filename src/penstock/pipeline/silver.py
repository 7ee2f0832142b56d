"""Silver: payloads decoded with a declared schema; each stage is a function of DataFrames.

    records ──select──▶ of its topics ──parse──▶ text of each field ──convert──▶ columns and ERROR

A row that cannot be decoded gets an ERROR with the reason and goes to the dead-letter table; the
job continues. All formats become text first; the same rules convert the text to types.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from penstock.limits import PIPELINE_ERROR_CHARACTERS_MAX
from penstock.patterns import compile_pattern
from penstock.pipeline.config import METADATA_COLUMNS, FieldConfig, SilverConfig
from penstock.pipeline.messagepack import json_batches
from penstock.ports.selection import EVERYTHING

__all__ = [
    "DEAD_LETTER_COLUMNS",
    "ERROR",
    "PAYLOAD",
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

_CARRIED: Final = tuple(
    name for name in METADATA_COLUMNS if name not in {"event_time", "day"}
)  # fmt: skip


def silver(records: DataFrame, schema: SilverConfig) -> DataFrame:
    """Return decoded rows of a schema's topics: its fields, METADATA_COLUMNS, PAYLOAD and ERROR.

    ERROR is null for valid rows. `event_time` is the declared field, or the broker's timestamp
    where the field is null or none is declared.
    """
    return _convert(_parse(_select(records, schema), schema), schema)


def _select(records: DataFrame, schema: SilverConfig) -> DataFrame:
    """Return the records of the schema's topics and kinds, with the columns that it needs."""
    found = records.where(topic_condition(schema.topics))
    if schema.kinds:
        found = found.where(f.col("kind").isin(*schema.kinds))
    return found.select("value", *_CARRIED)


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


# --- Payloads to text ---------------------------------------------------------------------------


def _parse(records: DataFrame, schema: SilverConfig) -> DataFrame:
    """Add `parts`, a struct with the text of each field, and `problem`."""
    if schema.format == "messagepack":
        return _json(_messagepack(records), schema)
    text = f.col("value").cast("string")
    problem = f.when(f.col("value").isNull(), f.lit("there is no value")).when(
        ~f.is_valid_utf8(text), f.lit("not UTF-8")
    )
    found = records.withColumn("problem", problem).withColumn(
        "text", f.when(f.col("problem").isNull(), text)
    )
    match schema.format:
        case "json":
            return _json(found, schema)
        case "csv":
            return _csv(found, schema)
    return _text(found, schema)


def _messagepack(records: DataFrame) -> DataFrame:
    added = [StructField("text", StringType()), StructField("problem", StringType())]
    return records.mapInArrow(json_batches, StructType([*records.schema.fields, *added]))


_END: Final = uuid4().hex
"""Follows a value. It is random, so that no value can contain it and end early."""
_JSON_SPACE: Final = " \t\r\n"


def _json(records: DataFrame, schema: SilverConfig) -> DataFrame:
    # Spark's parser ignores text after a value, so an end marker follows in an array.
    framed = f.concat(f.lit("["), f.col("text"), f.lit(f', "{_END}"]'))
    found = records.withColumn("whole", f.try_parse_json(framed))
    ends = f.try_variant_get("whole", "$[1]", "string").eqNullSafe(f.lit(_END))
    wrong = ~ends | ~f.ltrim("text", f.lit(_JSON_SPACE)).startswith("{")
    # A variant has no object with equal keys. Spark's other parser takes them.
    twice = wrong & f.get_json_object(framed, "$[1]").eqNullSafe(f.lit(_END))
    twice &= f.ltrim("text", f.lit(_JSON_SPACE)).startswith("{")
    problems = [
        f.col("problem"),
        f.when(twice, f.lit("a key appears twice in one JSON object")),
        f.when(wrong, f.lit("no JSON object")),
        *(_no_array(field) for field in schema.field if field.array),
    ]
    parts = f.struct(
        *(
            f.try_variant_get(
                "whole", _path(field), "array<string>" if field.array else "string"
            ).alias(field.name)
            for field in schema.field
        )
    )
    found = found.withColumn("problem", f.coalesce(*problems))
    return found.withColumn("parts", parts).drop("whole")


def _no_array(field: FieldConfig) -> Column:
    """Return the problem of a value that is no array, where an array is declared."""
    text = f.try_variant_get("whole", _path(field), "string")
    array = f.try_variant_get("whole", _path(field), "array<string>")
    shown = f.substring(text, 1, PIPELINE_ERROR_CHARACTERS_MAX)
    message = f.concat(f.lit(f"{field.name} is no array: "), shown)
    return f.when(text.isNotNull() & array.isNull(), message)


def _path(field: FieldConfig) -> str:
    names = (field.path or field.name).split(".")
    return "$[0]" + "".join(f"['{name}']" for name in names)


def _csv(records: DataFrame, schema: SilverConfig) -> DataFrame:
    columns = ", ".join(f"{field.name} STRING" for field in schema.field)
    options = {"mode": "PERMISSIVE", "sep": schema.delimiter}
    return records.withColumn("parts", f.from_csv("text", columns, options))


def _text(records: DataFrame, schema: SilverConfig) -> DataFrame:
    if not schema.pattern:
        return records.withColumn("parts", f.struct(f.col("text").alias(schema.field[0].name)))
    whole = rf"\A(?:{schema.pattern})\z"
    problem = f.coalesce(
        "problem", f.when(~f.col("text").rlike(whole), f.lit("does not match the pattern"))
    )
    parts = f.struct(
        *(
            f.nullif(f.regexp_extract("text", whole, number), f.lit("")).alias(field.name)
            for number, field in enumerate(schema.field, 1)
        )
    )
    return records.withColumn("problem", problem).withColumn("parts", parts)


# --- Text to types ------------------------------------------------------------------------------


def _convert(records: DataFrame, schema: SilverConfig) -> DataFrame:
    """Return rows with the schema's columns in their types, and ERROR."""
    columns = []
    errors = [f.col("problem")]
    for field in schema.field:
        text = f.col(f"parts.{field.name}")
        value = _field_value(text, field)
        columns.append(value.alias(field.name))
        if field.required:
            message = f.lit(f"{field.name} is missing")
            errors.append(f.when(text.isNull(), message))
        if field.type != "string":
            wrong = text.isNotNull() & value.isNull()
            if field.array:
                spoiled = f.exists(f.zip_with(text, value, _is_lost), lambda lost: lost)
                wrong = f.coalesce(spoiled, wrong)
            shown = f.substring(text.cast("string"), 1, PIPELINE_ERROR_CHARACTERS_MAX)
            message = f.concat(f.lit(f"{field.name} is no {field.type}: "), shown)
            errors.append(f.when(wrong, message))
    payload, error = f.col("value").alias(PAYLOAD), f.coalesce(*errors).alias(ERROR)
    found = records.select(*columns, *_CARRIED, payload, error)
    moment = f.coalesce(f.col(schema.event_time), f.col("timestamp"))
    return found.withColumn("event_time", moment).withColumn("day", f.to_date("timestamp"))


def _is_lost(text: Column, value: Column) -> Column:
    return text.isNotNull() & value.isNull()


def _field_value(text: Column, field: FieldConfig) -> Column:
    if field.array:
        return f.transform(text, lambda each: _scalar(each, field))
    return _scalar(text, field)


def _scalar(text: Column, field: FieldConfig) -> Column:
    """Convert text to the field's type; null where that fails."""
    match field.type:
        case "string":
            return text
        case "binary":
            return f.try_to_binary(text, f.lit("base64"))
        case "timestamp" | "date":
            moments = [_moment(text, each) for each in field.formats or ("iso",)]
            return f.coalesce(*moments).cast(field.type)
        case "float" | "double":
            return _finite(text, text.try_cast(field.type))
    if field.type.startswith("decimal"):
        return _exact(text, field.type)
    return text.try_cast("bigint" if field.type == "long" else field.type)


def _finite(text: Column, number: Column) -> Column:
    """Return a number, null if it is infinite only because the text is out of range."""
    infinite = f.abs(number) == f.lit(float("inf"))
    return f.when(infinite & ~text.rlike("(?i)inf"), f.lit(None)).otherwise(number)


_NUMBER: Final = r"^\s*[+-]?(\d*)\.?(\d*)(?:[eE]([+-]?\d{1,9}))?\s*$"


def _exact(text: Column, kind: str) -> Column:
    """Return a decimal number, null if the type has too few digits after the point.

    A cast would round. 1200e-3 is 1.2: the digits after the point are those of the text, less the
    exponent and the zeros at the end.
    """
    scale = int(kind.rstrip(")").partition(",")[2])
    whole, fraction, power = (f.regexp_extract(text, _NUMBER, group) for group in (1, 2, 3))
    digits = f.concat(whole, fraction)
    kept = f.rtrim(digits, f.lit("0"))
    zeros = f.length(digits) - f.length(kept)
    exponent = f.coalesce(power.try_cast("int"), f.lit(0))
    needed = f.length(fraction) - exponent - zeros
    number = text.try_cast(kind)
    return f.when((kept == "") | (needed <= scale), number)


def _moment(text: Column, how: str) -> Column:
    match how:
        case "iso":
            return text.try_cast("timestamp")
        case "epoch_s":
            return f.timestamp_micros(
                (text.try_cast("decimal(20,6)") * 1_000_000).try_cast("bigint")
            )
        case "epoch_ms":
            return f.timestamp_micros((text.try_cast("decimal(20,3)") * 1000).try_cast("bigint"))
        case "epoch_us":
            return f.timestamp_micros(text.try_cast("bigint"))
    return f.try_to_timestamp(text, f.lit(how))


# --- Late and repeated rows -----------------------------------------------------------------------


def mark_late(rows: DataFrame, schema: SilverConfig, watermark: dt.datetime | None) -> DataFrame:
    """Apply the schema's rule for late rows, those with an event time before the watermark.

    "dead-letter" sets ERROR, "drop" removes the rows, "keep" changes nothing.
    """
    if watermark is None or schema.late == "keep":
        return rows
    late = f.col(ERROR).isNull() & (f.col("event_time") < f.lit(watermark))
    if schema.late == "drop":
        return rows.where(~late)
    message = f.concat(
        f.lit("late: "), f.col("event_time").cast("string"),
        f.lit(f" is before the watermark {watermark:%Y-%m-%d %H:%M:%S}"),
    )  # fmt: skip
    return rows.withColumn(ERROR, f.when(late, message).otherwise(f.col(ERROR)))


def deduplicated(
    rows: DataFrame, keys: Sequence[str], existing: DataFrame | None = None
) -> DataFrame:
    """Return the first row, by offset, of the rows with equal keys.

    Rows whose keys are in `existing` are removed. A null key equals no other key.
    """
    if not keys:
        return rows
    rank = f.row_number().over(Window.partitionBy(*keys).orderBy("partition", "offset"))
    some_null = f.lit(False)  # noqa: FBT003
    for key in keys:
        some_null |= f.col(key).isNull()
    found = rows.withColumn(_RANK, rank).where((f.col(_RANK) == 1) | some_null).drop(_RANK)
    if existing is not None:
        found = found.join(existing.select(*keys).distinct(), list(keys), "left_anti")
    return found.select(*rows.columns)


def valid_rows(rows: DataFrame) -> DataFrame:
    """Return the rows without ERROR, with the columns of the silver table."""
    return rows.where(f.col(ERROR).isNull()).drop(ERROR, PAYLOAD)


def dead_letters(rows: DataFrame, schema: SilverConfig) -> DataFrame:
    """Return the rows with ERROR, with DEAD_LETTER_COLUMNS."""
    return (
        rows.where(f.col(ERROR).isNotNull())
        .select(
            f.lit(schema.name).alias("schema"),
            f.col(ERROR).alias("error"),
            f.col(PAYLOAD).alias("value"),
            *METADATA_COLUMNS,
            f.current_timestamp().alias("failed_at"),
        )
        .select(*DEAD_LETTER_COLUMNS)
    )
