"""SQL queries over tables and topics; topics and patterns are names in backquotes."""

import re
import textwrap
from collections.abc import Mapping
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

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
from penstock.spark.scan import scan

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
    topics: list[str] = []
    try:
        while True:
            try:
                return spark.sql(statement)
            except AnalysisException as error:
                topic = _missing_topic(error, statement)
                if topic is None or topic in topics:
                    raise QueryFailed("sql", reason_of(error)) from None
            _view_topics(spark, topic, source, known=", ".join(tables))
            topics.append(topic)
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


def _view_topics(spark: SparkSession, topic: str, source: Mapping[str, str], *, known: str) -> None:
    """Create a temporary view with the messages of a topic or pattern, under that name."""
    try:
        pattern = compile_pattern(topic)
    except InvalidPattern:
        if not _WILDCARDS.isdisjoint(topic):
            raise NoSuchTopics(topic) from None
        raise NoSuchTable(topic, known) from None
    how = {"subscribe": topic}
    if "," in topic or topic != topic.strip():  # `subscribe` splits and trims names
        how = {"subscribePattern": re.escape(topic) if pattern is None else pattern.pattern}
    view = "`" + topic.replace("`", "``") + "`"
    scan(spark, **source, **how).createOrReplaceTempView(view)


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
