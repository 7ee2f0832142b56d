"""Payloads of messages, parsed into rows: the parts of each field, before they get their types.

    value ──▶ text ──▶ records of the message ──▶ elements of the exploded array ──▶ parts

Each row has `parts`, a struct with the part of each field, and `problem`, the reason why there are
none. Where a message may have several rows, each has its positions, and `message_problem` is the
problem of a message that has no records at all.
"""

from typing import Final
from uuid import uuid4

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from penstock.limits import PIPELINE_ERROR_CHARACTERS_MAX
from penstock.pipeline.config import (
    ELEMENT_COLUMN,
    RECORD_COLUMN,
    FieldConfig,
    RegistryConfig,
    SilverConfig,
)
from penstock.pipeline.conversion import part_of, variant_path, wrong_kind
from penstock.pipeline.messagepack import json_batches, sequence_batches
from penstock.pipeline.schema_files import SCHEMA_FORMATS, decode_batches

__all__ = ["parse"]

_END: Final = uuid4().hex
"""Follows a value. It is random, so that no value can contain it and end early."""
_JSON_SPACE: Final = " \t\r\n"


def parse(records: DataFrame, schema: SilverConfig, registry: RegistryConfig) -> DataFrame:
    """Return the rows of records, with `parts`, `problem`, and positions as the schema needs."""
    found = _lines(_text(records, schema, registry), schema)
    match schema.format:
        case "csv":
            return _csv(found, schema)
        case "text":
            return _groups(found, schema)
    return _json(found, schema)


def _text(records: DataFrame, schema: SilverConfig, registry: RegistryConfig) -> DataFrame:
    """Add the `text` of each payload, or a `problem`."""
    if schema.format in {"messagepack", *SCHEMA_FORMATS}:
        added = [StructField("text", StringType()), StructField("problem", StringType())]
        if schema.format in SCHEMA_FORMATS:
            batches = decode_batches(schema, registry)
        else:
            batches = sequence_batches if schema.records == "sequence" else json_batches
        return records.mapInArrow(batches, StructType([*records.schema.fields, *added]))
    text = f.col("value").cast("string")
    problem = f.when(f.col("value").isNull(), f.lit("there is no value")).when(
        ~f.is_valid_utf8(text), f.lit("not UTF-8")
    )
    return records.withColumn("problem", problem).withColumn(
        "text", f.when(f.col("problem").isNull(), text)
    )


def _lines(records: DataFrame, schema: SilverConfig) -> DataFrame:
    """Split text into its lines, each a record, if the schema says so; blank ones are left out."""
    found = records
    if schema.positions:
        found = found.withColumn("message_problem", f.col("problem"))
    if schema.records != "lines":
        return found
    lines = f.transform(f.split("text", "\n"), lambda line: f.rtrim(line, f.lit("\r")))
    lines = f.filter(lines, lambda line: f.trim(line) != "")
    return _expanded(found, lines, RECORD_COLUMN, "line").withColumn("text", f.col("line"))


def _expanded(rows: DataFrame, values: Column, position: str, name: str) -> DataFrame:
    """Return a row for each element of an array; rows with a problem stay as they are."""
    values = f.when(f.col("problem").isNull(), values)
    found = rows.select("*", f.posexplode_outer(values).alias(position, name))
    return found.where(f.col("problem").isNotNull() | f.col(position).isNotNull())


# --- JSON -----------------------------------------------------------------------------------------


def _json(rows: DataFrame, schema: SilverConfig) -> DataFrame:
    is_array = schema.records in {"array", "sequence"}
    begin, kind = ("[", "array") if is_array else ("{", "object")
    # Spark's parser ignores text after a value, so an end marker follows in an array.
    framed = f.concat(f.lit("["), f.col("text"), f.lit(f', "{_END}"]'))
    found = rows.withColumn("whole", f.try_parse_json(framed))
    ends = f.try_variant_get("whole", "$[1]", "string").eqNullSafe(f.lit(_END))
    begins = f.ltrim("text", f.lit(_JSON_SPACE)).startswith(begin)
    wrong = ~ends | ~begins
    # A variant has no object with equal keys. Spark's other parser takes them.
    twice = wrong & begins & f.get_json_object(framed, "$[1]").eqNullSafe(f.lit(_END))
    problems = [
        f.col("problem"),
        f.when(twice, f.lit("a key appears twice in one JSON object")),
        f.when(wrong, f.lit(f"no JSON {kind}")),
    ]
    start = "$[0]"
    if is_array:
        found = found.withColumn("problem", f.coalesce(*problems))
        found = found.withColumn("message_problem", f.col("problem"))
        records = f.try_variant_get("whole", "$[0]", "array<variant>")
        found = _expanded(found.withColumn("all", records).drop("whole"), f.col("all"),
                          RECORD_COLUMN, "whole").drop("all")  # fmt: skip
        start = "$"
        no_object = f.try_variant_get("whole", "$", "map<string,variant>").isNull()
        problems = [f.col("problem"), f.when(no_object, f.lit("no JSON object"))]
    if schema.explode:
        found = found.withColumn("problem", f.coalesce(*problems))
        found = _exploded(found, schema, start)
        problems = [f.col("problem")]
    parts = []
    for field in schema.field:
        root, path = _source(field, schema, start)
        parts.append(part_of(f.col(root), path, field).alias(field.name))
        if field.array or field.map:
            problems.append(wrong_kind(f.col(root), path, field, field.name))
    found = found.withColumn("problem", f.coalesce(*problems))
    return found.withColumn("parts", f.struct(*parts)).drop("whole", "item")


def _exploded(rows: DataFrame, schema: SilverConfig, start: str) -> DataFrame:
    """Add `item`, an element of the exploded array; null if the array is empty or missing."""
    path = variant_path(start, schema.explode)
    text = f.try_variant_get("whole", path, "string")
    array = f.try_variant_get("whole", path, "array<variant>")
    shown = f.substring(text, 1, PIPELINE_ERROR_CHARACTERS_MAX)
    message = f.concat(f.lit(f"{schema.explode} is no array: "), shown)
    problem = f.when(text.isNotNull() & array.isNull(), message)
    found = rows.withColumn("problem", f.coalesce("problem", problem))
    array = f.when(f.col("problem").isNull(), array)
    return found.select("*", f.posexplode_outer(array).alias(ELEMENT_COLUMN, "item"))


def _source(field: FieldConfig, schema: SilverConfig, start: str) -> tuple[str, str]:
    """Return the column with the variant of a field, and the path in it."""
    path = field.path or field.name
    if schema.explode and f"{path}.".startswith(f"{schema.explode}."):
        rest = path.removeprefix(schema.explode).removeprefix(".")
        return "item", variant_path("$", rest) if rest else "$"
    return "whole", variant_path(start, path)


# --- CSV and text ---------------------------------------------------------------------------------


def _csv(rows: DataFrame, schema: SilverConfig) -> DataFrame:
    columns = ", ".join(f"{field.name} STRING" for field in schema.field)
    options = {"mode": "PERMISSIVE", "sep": schema.delimiter}
    return rows.withColumn("parts", f.from_csv("text", columns, options))


def _groups(rows: DataFrame, schema: SilverConfig) -> DataFrame:
    if not schema.pattern:
        return rows.withColumn("parts", f.struct(f.col("text").alias(schema.field[0].name)))
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
    return rows.withColumn("problem", problem).withColumn("parts", parts)
