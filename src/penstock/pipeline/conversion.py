"""Conversion of the parts of a record to the types of its fields.

A part is text, or a variant for a struct, or an array or map of these. A value that does not fit
its type has an error; it never becomes null without one.
"""

from typing import Final, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as f

from penstock.limits import PIPELINE_ERROR_CHARACTERS_MAX
from penstock.pipeline.config import FieldConfig

__all__ = ["Converted", "convert", "missing", "part_of", "variant_path", "wrong_kind"]


class Converted(NamedTuple):
    """A value, and the text of its error, null for a valid value."""

    value: Column
    error: Column


def part_of(record: Column, path: str, field: FieldConfig) -> Column:
    """Return the part of a variant at a path; null if there is none or it is of another kind."""
    base = "variant" if field.type == "struct" else "string"
    kind = f"array<{base}>" if field.array else f"map<string,{base}>" if field.map else base
    part = f.try_variant_get(record, path, kind)
    return _not_null(part) if kind == "variant" else part


def wrong_kind(record: Column, path: str, field: FieldConfig, label: str) -> Column:
    """Return the error of a value that is no array or map where one is declared."""
    text = f.try_variant_get(record, path, "string")
    part = part_of(record, path, field)
    return f.when(text.isNotNull() & part.isNull(), _error(label, _container(field), text))


def convert(part: Column, field: FieldConfig, label: str) -> Converted:
    """Return the value of a field; `label` is its name in errors."""
    if field.type == "struct":
        return _convert_structs(part, field, label)
    if field.array:
        value = f.transform(part, lambda each: _scalar(each, field))
        spoiled = f.exists(f.zip_with(part, value, _is_lost), lambda lost: lost)
        wrong = f.coalesce(spoiled, _is_lost(part, value))
        return Converted(value, _scalar_error(part, field, label, wrong))
    if field.map:
        value = f.transform_values(part, lambda _, each: _scalar(each, field))
        errors = f.transform(
            f.map_values(part),
            lambda each: _scalar_error(each, field, label, _is_lost(each, _scalar(each, field))),
        )
        return Converted(value, _first(errors))
    value = _scalar(part, field)
    return Converted(value, _scalar_error(part, field, label, _is_lost(part, value)))


def missing(part: Column, label: str) -> Column:
    """Return the error of a required field without a value."""
    return f.when(part.isNull(), f.lit(f"{label} is missing"))


# --- Structs --------------------------------------------------------------------------------------


def _convert_structs(part: Column, field: FieldConfig, label: str) -> Converted:
    def value(each: Column) -> Column:
        return _struct(_not_null(each), field, label).value

    def error(each: Column) -> Column:
        return _struct(_not_null(each), field, label).error

    if field.array:
        return Converted(f.transform(part, value), _first(f.transform(part, error)))
    if field.map:
        values = f.transform_values(part, lambda _, each: value(each))
        return Converted(values, _first(f.transform(f.map_values(part), error)))
    return _struct(part, field, label)


def _struct(record: Column, field: FieldConfig, label: str) -> Converted:
    """Return the struct of a variant; null for null."""
    fields = f.try_variant_get(record, "$", "map<string,variant>")
    text = f.try_variant_get(record, "$", "string")
    errors = [f.when(record.isNotNull() & fields.isNull(), _error(label, "struct", text))]
    values = []
    for inner in field.field:
        below = f"{label}.{inner.name}"
        path = variant_path("$", inner.path or inner.name)
        part = part_of(record, path, inner)
        found = convert(part, inner, below)
        values.append(found.value.alias(inner.name))
        if inner.array or inner.map:
            errors.append(wrong_kind(record, path, inner, below))
        if inner.required:
            errors.append(f.when(record.isNotNull(), missing(part, below)))
        errors.append(found.error)
    return Converted(f.when(record.isNotNull(), f.struct(*values)), f.coalesce(*errors))


def variant_path(start: str, path: str) -> str:
    """Return a path for `variant_get`, of names with dots between them."""
    return start + "".join(f"['{name}']" for name in path.split("."))


def _not_null(variant: Column) -> Column:
    """Return a variant, and null for JSON's null."""
    return f.when(~f.is_variant_null(variant), variant)


def _first(errors: Column) -> Column:
    """Return the first element of an array that is not null."""
    return f.get(f.filter(errors, lambda each: each.isNotNull()), f.lit(0))


# --- Scalars --------------------------------------------------------------------------------------


def _is_lost(text: Column, value: Column) -> Column:
    return text.isNotNull() & value.isNull()


def _container(field: FieldConfig) -> str:
    return "array" if field.array else "map"


def _error(label: str, kind: str, text: Column) -> Column:
    shown = f.substring(text.cast("string"), 1, PIPELINE_ERROR_CHARACTERS_MAX)
    return f.concat(f.lit(f"{label} is no {kind}: "), shown)


def _scalar_error(text: Column, field: FieldConfig, label: str, wrong: Column) -> Column:
    if field.type == "string":
        return f.lit(None).cast("string")
    return f.when(wrong, _error(label, field.type, text))


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
