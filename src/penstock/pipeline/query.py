"""SQL over topics and tables: names in backquotes that are no table are topics or patterns."""

import re
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import InvalidPattern
from penstock.patterns import compile_pattern
from penstock.pipeline.errors import (
    NoSuchTable,
    NoSuchTopics,
    NotAQuery,
    QueryFailed,
    reason_of,
)

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.tables import Table

__all__ = ["run_query"]

_QUOTED: Final = re.compile(r"`((?:[^`]|``)+)`")
_MISSING: Final = "TABLE_OR_VIEW_NOT_FOUND"
_WILDCARDS: Final = frozenset("+*#>")
_COMMAND: Final = "org.apache.spark.sql.catalyst.plans.logical.Command"
_ASKING: Final = ("Describe", "Show", "Explain")
"""Commands that only tell something, by how the names of their plans begin."""
_CHANGING: Final = ("InsertInto", "Call", "UnresolvedExecuteImmediate")
"""Plans that change something and are no commands yet when they are parsed."""
_AROUND: Final = frozenset({"UnresolvedWith", "Union"})
"""Plans below which one that changes something may stand: WITH … INSERT, FROM … INSERT … INSERT."""
SHOWN_CHARACTERS_MAX: Final = 60


def run_query(
    spark: "SparkSession",
    text: str,
    *,
    tables: Mapping[str, "Table"],
    source: Mapping[str, str],
) -> "DataFrame":
    """Return what a query gives; raise what `pipeline.errors` has for it, or what `scan` raises.

    `source` are the options by which the data source finds the log. Tables of the warehouse are
    known by name; any other table whose name stands in backquotes is one of topics. What is no
    query is not run.
    """
    from pyspark.errors import AnalysisException, ParseException  # noqa: PLC0415

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
    finally:  # what was found is in the plan
        for topic in topics:
            spark.catalog.dropTempView(topic)


def _missing_topic(error: "AnalysisException", statement: str) -> str | None:
    """Return the name in backquotes that Spark does not know; None if it is something else.

    Spark does not tell names apart that differ only in case; topics that do are an error.
    """
    if error.getCondition() != _MISSING:
        return None
    found = _QUOTED.fullmatch((error.getMessageParameters() or {}).get("relationName", ""))
    quoted = {name.replace("``", "`") for name in _QUOTED.findall(statement)}
    if found is None or (name := found[1].replace("``", "`")) not in quoted:
        return None
    for other in quoted - {name}:
        if other.lower() == name.lower():
            problem = f"`{name}` and `{other}` differ only in case; ask for one, or for a pattern"
            raise QueryFailed("sql", problem)
    return name


def _view_topics(
    spark: "SparkSession", topic: str, source: Mapping[str, str], *, known: str
) -> None:
    """Make the messages of a topic, or of a pattern, a view of that name."""
    from penstock.spark.scan import scan  # noqa: PLC0415

    try:
        pattern = compile_pattern(topic)
    except InvalidPattern:
        if not _WILDCARDS.isdisjoint(topic):
            raise NoSuchTopics(topic) from None
        raise NoSuchTable(topic, known) from None
    how = {"subscribe": topic}
    if "," in topic or topic != topic.strip():  # which `subscribe` takes for several, or trims
        how = {"subscribePattern": re.escape(topic) if pattern is None else pattern.pattern}
    view = "`" + topic.replace("`", "``") + "`"
    scan(spark, **source, **how).createOrReplaceTempView(view)


def _changes(spark: "SparkSession", plan: Any) -> bool:  # noqa: ANN401
    """Tell whether what was parsed, a plan of Java's, would change something."""
    name = str(plan.getClass().getSimpleName())
    if name.startswith(_CHANGING):
        return True
    java: Any = spark._jvm  # noqa: SLF001
    if java.java.lang.Class.forName(_COMMAND).isInstance(plan):
        return not name.startswith(_ASKING)
    if name not in _AROUND:
        return False
    below = plan.children()
    return any(_changes(spark, below.apply(number)) for number in range(below.size()))
