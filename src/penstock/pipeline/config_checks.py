"""Checks across settings of the pipeline: unique names, valid patterns, columns that exist."""

import re
import urllib.parse
from collections.abc import Sequence
from typing import Final

from penstock.errors import InvalidPattern, InvalidTopicName
from penstock.patterns import compile_pattern
from penstock.pipeline.config import (
    BUILT_IN_GOLD,
    FIELD_TYPES,
    FieldConfig,
    PipelineConfig,
    SilverConfig,
    partition_column,
)
from penstock.settings import Check, Problems, run_checks
from penstock.storage.kafka.urls import parse_kafka_url, setting_problem
from penstock.topic_names import check_topic_name

__all__ = ["check"]

_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),\s*(\d{1,2})\)")
_DECIMAL_DIGITS_MAX: Final = 38
_NESTED_FORMATS: Final = ("json", "messagepack", "avro", "protobuf")
"""Formats whose values may contain others."""
_RECORDS_FORMATS: Final = {
    "array": ("json", "messagepack", "avro"),
    "lines": ("json", "csv", "text"),
    "sequence": ("messagepack",),
}
"""The formats in which a message may have several records, by how they follow each other."""


def check(config: PipelineConfig, problems: Problems) -> None:
    """Add the problems of settings that do not fit together."""
    run_checks(config, _CHECKS, problems)


def _check_source(config: PipelineConfig, problems: Problems) -> None:
    if config.source.path and config.source.endpoint:
        problems.add("source.endpoint", "give source.path or source.endpoint, not both")
    if config.source.path and config.source.url:
        problems.add("source.url", "give source.path or source.url, not both")
    if config.source.kafka and not config.source.url:
        problems.add("source.kafka", "needs source.url")
    if config.source.url:
        _check_url(config, problems)
    if config.source.certificate and not config.source.endpoint:
        problems.add("source.certificate", "needs source.endpoint")


def _check_url(config: PipelineConfig, problems: Problems) -> None:
    try:
        parse_kafka_url(config.source.url)
    except ValueError as error:
        problems.add("source.url", str(error))
    for name in config.source.kafka:
        problem = setting_problem(name)
        if problem:
            problems.add(f"source.kafka.{name}", f"{problem}; leave it out")


def _check_publish(config: PipelineConfig, problems: Problems) -> None:
    if config.publish and not config.source.endpoint:
        problems.add("publish", "needs source.endpoint")
    tables = [publish.table for publish in config.publish]
    for index, publish in enumerate(config.publish):
        key = f"publish[{index}]"
        if publish.table in tables[:index]:
            problems.add(f"{key}.table", f'"{publish.table}" is published to another topic')
        try:
            check_topic_name(publish.topic)
        except InvalidTopicName as error:
            problems.add(f"{key}.topic", str(error))


def _check_silver(config: PipelineConfig, problems: Problems) -> None:
    names = [silver.name for silver in config.silver]
    for index, silver in enumerate(config.silver):
        key = f"silver[{index}]"
        if silver.name in names[:index]:
            problems.add(f"{key}.name", f'another silver table is named "{silver.name}"')
        if silver.name in {"bronze", "dead_letters", *BUILT_IN_GOLD}:
            problems.add(f"{key}.name", f'"{silver.name}" is a built-in table of the pipeline')
        _check_topics(silver, key, problems)
        _check_fields(silver, key, problems)
        _check_schema(silver, key, problems)
        _check_rows(silver, key, problems)
        _check_columns(silver, key, problems)
        _check_merge(silver, key, problems)
        _check_partitions(silver, key, problems)
        _check_text(silver, key, problems)


def _check_topics(silver: SilverConfig, key: str, problems: Problems) -> None:
    for pattern in silver.topics:
        try:
            compile_pattern(pattern)
        except InvalidPattern:
            problem = f'"{pattern[:40]}" matches no topic; # and > must be last'
            problems.add(f"{key}.topics", problem)


def _check_fields(silver: SilverConfig, key: str, problems: Problems) -> None:
    if not silver.field:
        problem = "missing; expected a list of tables, not empty, or schema_file"
        problems.add(f"{key}.field", problem)
    for index, field in enumerate(silver.field):
        if field.name in silver.metadata_columns:
            problem = f'the table has a column "{field.name}"; choose another and set path'
            problems.add(f"{key}.field[{index}].name", problem)
    _check_names(silver.field, key, problems)
    for index, field in enumerate(silver.field):
        _check_field(silver, field, f"{key}.field[{index}]", problems)


def _check_names(fields: Sequence[FieldConfig], key: str, problems: Problems) -> None:
    names = [field.name for field in fields]
    for index, name in enumerate(names):
        if name in names[:index]:
            problems.add(f"{key}.field[{index}].name", f'another field is named "{name}"')


def _check_field(silver: SilverConfig, field: FieldConfig, key: str, problems: Problems) -> None:
    if field.type not in FIELD_TYPES and not _is_decimal(field.type):
        known = ", ".join(FIELD_TYPES)
        problems.add(f"{key}.type", f"expected {known} or decimal(digits, scale)")
    if field.formats and field.type not in {"timestamp", "date"}:
        problems.add(f"{key}.formats", 'needs type = "timestamp" or "date"')
    if field.array and field.map:
        problem = "cannot be used with array; put one of them into a struct"
        problems.add(f"{key}.map", problem)
    if silver.format not in _NESTED_FORMATS:
        named = (("array", field.array), ("map", field.map), ("path", field.path))
        for name, value in (*named, ("type", field.type == "struct")):
            if value:
                problems.add(f"{key}.{name}", f'cannot be used with format = "{silver.format}"')
    if field.type != "struct":
        if field.field:
            problems.add(f"{key}.field", 'needs type = "struct"')
        return
    if not field.field:
        problems.add(f"{key}.field", "missing; a struct needs a list of fields")
    _check_names(field.field, key, problems)
    for index, inner in enumerate(field.field):
        _check_field(silver, inner, f"{key}.field[{index}]", problems)


def _check_registry(config: PipelineConfig, problems: Problems) -> None:
    parsed = urllib.parse.urlsplit(config.registry.url)
    if config.registry.url and (parsed.scheme not in {"http", "https"} or not parsed.hostname):
        problems.add("registry.url", "expected http://HOST:PORT or https://HOST:PORT")
    elif "@" in parsed.netloc:
        problems.add("registry.url", "has credentials; give registry.user and registry.password")
    if config.registry.certificate and parsed.scheme != "https":
        problems.add("registry.certificate", "needs registry.url with https://")
    if not config.registry.url and any(silver.registry for silver in config.silver):
        problems.add("registry.url", "missing; a silver table has registry = true")


def _check_schema(silver: SilverConfig, key: str, problems: Problems) -> None:
    """Check the settings of a table's schema."""
    is_avro, is_protobuf = silver.format == "avro", silver.format == "protobuf"
    if silver.schema_file and silver.format in {"csv", "text"}:
        problems.add(f"{key}.schema_file", f'cannot be used with format = "{silver.format}"')
    if (is_avro or is_protobuf) and not silver.schema_file and not silver.registry:
        problem = f'format = "{silver.format}" needs it, or registry = true'
        problems.add(f"{key}.schema_file", f"missing; {problem}")
    if is_protobuf and silver.schema_file and not silver.message:
        problems.add(f"{key}.message", "missing; expected the name of a message in schema_file")
    if silver.message and not (is_protobuf and silver.schema_file):
        problems.add(f"{key}.message", 'needs format = "protobuf" and schema_file')
    if silver.registry and not (is_avro or is_protobuf):
        problems.add(f"{key}.registry", 'needs format = "avro" or "protobuf"')
    if silver.writer_schema_file and (not is_avro or not silver.schema_file or silver.registry):
        problem = 'needs format = "avro" and schema_file, the reader\'s, without registry'
        problems.add(f"{key}.writer_schema_file", problem)


def _check_rows(silver: SilverConfig, key: str, problems: Problems) -> None:
    """Check the settings by which a message has several rows."""
    formats = _RECORDS_FORMATS.get(silver.records, ())
    if formats and silver.format not in formats:
        known = " or ".join(f'"{name}"' for name in formats)
        problems.add(f"{key}.records", f'"{silver.records}" needs format = {known}')
    if not silver.explode:
        return
    if silver.format not in _NESTED_FORMATS:
        problems.add(f"{key}.explode", f'cannot be used with format = "{silver.format}"')
    paths = [field.path or field.name for field in silver.field]
    if not any(f"{path}.".startswith(f"{silver.explode}.") for path in paths):
        problem = f'no field has the path "{silver.explode}" or one below it'
        problems.add(f"{key}.explode", problem)


def _is_scalar(field: FieldConfig) -> bool:
    return field.type != "struct" and not field.array and not field.map


def _is_decimal(kind: str) -> bool:
    found = _DECIMAL.fullmatch(kind)
    return found is not None and int(found[2]) <= int(found[1]) <= _DECIMAL_DIGITS_MAX


def _check_columns(silver: SilverConfig, key: str, problems: Problems) -> None:
    """Check the columns that event_time and dedup name."""
    types = {field.name: field.type for field in silver.field if _is_scalar(field)}
    if silver.event_time != "timestamp" and types.get(silver.event_time) != "timestamp":
        problem = 'expected "timestamp" or a field of type "timestamp"'
        problems.add(f"{key}.event_time", problem)
    comparable = (each.name for each in silver.field if each.type != "struct" and not each.map)
    known = {*silver.metadata_columns, *comparable}
    unknown = [column for column in silver.dedup if column not in known]
    for column in unknown:
        named = any(column == each.name for each in silver.field)
        problem = f'"{column}" is a map or struct' if named else f'there is no column "{column}"'
        problems.add(f"{key}.dedup", problem)
    if not unknown and set(silver.dedup) - {"message_id"} and not silver.watermark_seconds:
        problem = "needs watermark_seconds, the time for which rows are compared"
        problems.add(f"{key}.dedup", problem)


def _check_partitions(silver: SilverConfig, key: str, problems: Problems) -> None:
    """Check the columns of partition_by and z_order."""
    types = dict.fromkeys(silver.metadata_columns, "string")
    types |= {"timestamp": "timestamp", "event_time": "timestamp"}
    types |= {field.name: field.type for field in silver.field if _is_scalar(field)}
    merged = None if silver.merge is None else silver.merge.key
    for partition in silver.partition_by or ():
        unit, bracket, name = partition.rstrip(")").partition("(")
        column = name if bracket else unit
        below = f"{key}.partition_by"
        if column not in types:
            problem = f'there is no column "{column}", or it is an array, map or struct'
            problems.add(below, problem)
        elif bracket and types[column] not in {"timestamp", "date"}:
            problems.add(below, f'{partition} needs a column of type "timestamp"')
        elif not bracket and types[column] in {"float", "double", "binary", "timestamp"}:
            remedy = f"; use day({column})" if types[column] == "timestamp" else ""
            problems.add(below, f"a table cannot be partitioned by a {types[column]}{remedy}")
        elif merged is not None and column not in merged:
            problems.add(below, f'with merge, "{column}" must be in merge.key')
        elif bracket and partition_column(partition) in types:
            problems.add(below, f'there is already a column "{partition_column(partition)}"')
    columns = silver.partition_columns
    if len(set(columns)) < len(columns):
        problems.add(f"{key}.partition_by", "names a column twice")
    for column in silver.z_order:
        if column not in types or column in columns:
            problem = f'expected columns with single values and no partitions, got "{column}"'
            problems.add(f"{key}.z_order", problem)


def _check_gold_tables(config: PipelineConfig, problems: Problems) -> None:
    names = [table.name for table in config.gold.table]
    for index, name in enumerate(names):
        key = f"gold.table[{index}].name"
        if name in BUILT_IN_GOLD:
            problems.add(key, f'"{name}" is always partitioned by day; name a table of gold.sql')
        elif not config.gold.sql:
            problems.add(key, "needs gold.sql, the folder of SQL files")
        elif name in names[:index]:
            problems.add(key, f'another gold.table is named "{name}"')


def _check_merge(silver: SilverConfig, key: str, problems: Problems) -> None:
    """Check the columns that merge names."""
    if silver.merge is None:
        return
    known = {*silver.metadata_columns, *(each.name for each in silver.field if _is_scalar(each))}
    for name, columns in (("key", silver.merge.key), ("order_by", (silver.merge.order_by,))):
        for column in columns:
            if column not in known:
                problem = f'there is no column "{column}", or it is an array, map or struct'
                problems.add(f"{key}.merge.{name}", problem)
    if silver.dedup != ("message_id",):
        problems.add(f"{key}.dedup", "cannot be used with merge, which keeps one row for each key")


def _check_text(silver: SilverConfig, key: str, problems: Problems) -> None:
    """Check the pattern of a table with format = "text"."""
    below = f"{key}.pattern"
    if silver.format != "text":
        if silver.pattern:
            problems.add(below, 'needs format = "text"')
        return
    if not silver.pattern:
        if len(silver.field) != 1:
            problem = "give a pattern with a group for each field, or one field for the text"
            problems.add(below, problem)
        return
    try:
        groups = re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", silver.pattern)).groups
    except re.error as error:
        problems.add(below, f"invalid regular expression: {error}")
        return
    if groups != len(silver.field):
        problems.add(below, f"has {groups} groups for {len(silver.field)} fields")


_CHECKS: Final[tuple[Check[PipelineConfig], ...]] = (
    (_check_source, frozenset({"source"})),
    (_check_publish, frozenset({"publish", "source"})),
    (_check_silver, frozenset({"silver"})),
    (_check_gold_tables, frozenset({"gold"})),
    (_check_registry, frozenset({"registry", "silver"})),
)
"""The checks in order, each with the tables that it reads."""
