"""SQL queries over tables and topics; topics and patterns are names in backquotes."""

import re
import textwrap
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, DataType, StringType, TimestampType

from penstock.errors import InvalidPattern
from penstock.patterns import compile_pattern
from penstock.pipeline.errors import (
    NoSuchTable,
    NoSuchTopics,
    NotAQuery,
    QueryFailed,
    reason_of,
)
from penstock.pipeline.tables import Table
from penstock.spark.needed_columns import needed_columns, stand_in
from penstock.spark.scan import scan
from penstock.spark.schema import record

__all__ = ["run_query"]

_QUOTED: Final = re.compile(r"`((?:[^`]|``)+)`")
_MISSING: Final = "TABLE_OR_VIEW_NOT_FOUND"
_WILDCARDS: Final = frozenset("+*#>")
_COMMAND: Final = "org.apache.spark.sql.catalyst.plans.logical.Command"
_READING_COMMANDS: Final = ("Describe", "Show", "Explain")
"""Prefixes of the plan names of read-only commands."""
_WRITING_PLANS: Final = ("InsertInto", "Call", "UnresolvedExecuteImmediate")
"""Prefixes of plan names that write data and are not yet commands when they are parsed."""
_PARENT_PLANS: Final = frozenset({"UnresolvedWith", "Union"})
"""Plans that may contain a writing plan: WITH … INSERT, FROM … INSERT … INSERT."""
SHOWN_CHARACTERS_MAX: Final = 60
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def run_query(
    spark: SparkSession,
    text: str,
    *,
    tables: Mapping[str, Table],
    source: Mapping[str, str],
) -> DataFrame:
    """Return the result of a query.

    `source` are the options of the data source that name the log. Names of `tables` are tables; any
    other table name in backquotes is a topic or a pattern. Raise NotAQuery for a statement that is
    not read-only, QueryFailed, NoSuchTable, NoSuchTopics, or an error of `scan`.
    """
    statement = text.strip().rstrip(";")
    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)  # noqa: SLF001
    except ParseException as error:
        raise QueryFailed("sql", reason_of(error)) from None
    if _changes(spark, plan):
        raise NotAQuery(textwrap.shorten(text, SHOWN_CHARACTERS_MAX, placeholder=" …"))
    for name, table in tables.items():
        if re.search(rf"\b{re.escape(name)}\b", statement):
            table.read(spark).createOrReplaceTempView(name)
    topics: dict[str, dict[str, str]] = {}
    try:
        while True:
            try:
                planned = spark.sql(statement)
                break
            except AnalysisException as error:
                topic = _missing_topic(error, statement)
                if topic is None or topic in topics:
                    raise QueryFailed("sql", reason_of(error)) from None
            topics[topic] = _subscription(topic, known=", ".join(tables))
            stand_in(spark, record(), len(topics) - 1).createOrReplaceTempView(_view(topic))
        if not topics:
            return planned
        needed = needed_columns(planned)
        for number, (topic, how) in enumerate(topics.items()):
            messages = _messages(spark, {**source, **how}, needed.get(number))
            messages.createOrReplaceTempView(_view(topic))
        return spark.sql(statement)
    finally:  # the plan keeps the resolved views
        for topic in topics:
            spark.catalog.dropTempView(topic)


def _missing_topic(error: AnalysisException, statement: str) -> str | None:
    """Return the unknown table name if it is in backquotes; None for any other error.

    Spark ignores the case of names, so two topics that differ only in case raise QueryFailed.
    """
    if error.getCondition() != _MISSING:
        return None
    found = _QUOTED.fullmatch((error.getMessageParameters() or {}).get("relationName", ""))
    quoted = {name.replace("``", "`") for name in _QUOTED.findall(statement)}
    if found is None or (name := found[1].replace("``", "`")) not in quoted:
        return None
    for other in quoted - {name}:
        if other.lower() == name.lower():
            problem = f"`{name}` and `{other}` differ only in case; query one of them, or a pattern"
            raise QueryFailed("sql", problem)
    return name


def _subscription(topic: str, *, known: str) -> dict[str, str]:
    """Return the options that select a topic or pattern; raise NoSuchTopics or NoSuchTable."""
    try:
        pattern = compile_pattern(topic)
    except InvalidPattern:
        if not _WILDCARDS.isdisjoint(topic):
            raise NoSuchTopics(topic) from None
        raise NoSuchTable(topic, known) from None
    if "," in topic or topic != topic.strip():  # `subscribe` splits and trims names
        return {"subscribePattern": re.escape(topic) if pattern is None else pattern.pattern}
    return {"subscribe": topic}


def _view(topic: str) -> str:
    return "`" + topic.replace("`", "``") + "`"


def _messages(
    spark: SparkSession, options: Mapping[str, str], needed: frozenset[str] | None
) -> DataFrame:
    """Return messages with all columns, of which only those that are `needed` are read.

    The others are constants, so that the names of a query mean what they meant when it was planned
    over all columns. Its result does not depend on their values. None stands for all columns.
    """
    if needed is None:
        return scan(spark, **options)
    schema = record()
    columns = [name for name in schema.names if name in needed]
    constants = [
        _constant(field.dataType, nullable=field.nullable).alias(field.name)
        for field in schema
        if field.name not in columns
    ]
    return scan(spark, columns=columns, **options).select("*", *constants).select(*schema.names)


def _constant(kind: DataType, *, nullable: bool) -> Column:
    if nullable:
        return f.lit(None).cast(kind)
    if isinstance(kind, TimestampType):
        return f.lit(_EPOCH)
    if isinstance(kind, BinaryType):
        return f.lit(bytearray())
    return f.lit("" if isinstance(kind, StringType) else 0).cast(kind)


def _changes(spark: SparkSession, plan: Any) -> bool:  # noqa: ANN401
    """Return whether a parsed plan, a Java object, would change anything."""
    name = str(plan.getClass().getSimpleName())
    if name.startswith(_WRITING_PLANS):
        return True
    java: Any = spark._jvm  # noqa: SLF001
    if java.java.lang.Class.forName(_COMMAND).isInstance(plan):
        return not name.startswith(_READING_COMMANDS)
    if name not in _PARENT_PLANS:
        return False
    below = plan.children()
    return any(_changes(spark, below.apply(number)) for number in range(below.size()))
