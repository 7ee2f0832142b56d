"""SQL over topics and tables: names in backquotes that are no table are topics or patterns."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.errors import InvalidPattern
from penstock.patterns import compile_pattern
from penstock.pipeline.errors import NoSuchTable, QueryFailed, reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.pipeline.tables import Table

__all__ = ["run_query"]

_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`((?:[^`]|``)+)`")
"""Strings, which are left alone, and names in backquotes."""
_TABLE_BEFORE: Final = re.compile(r"(?:\bfrom|\bjoin|,)\s*\Z", re.IGNORECASE)


def run_query(
    spark: "SparkSession",
    text: str,
    *,
    tables: Mapping[str, "Table"],
    source: Mapping[str, str],
) -> "DataFrame":
    """Return what a query gives; raise NoSuchTable, QueryFailed or what `scan` raises.

    `source` are the options by which the data source finds the log. Tables of the warehouse are
    known by name; any other name in backquotes behind FROM or JOIN is one of topics.
    """
    from pyspark.errors import AnalysisException, ParseException  # noqa: PLC0415

    from penstock.spark.scan import scan  # noqa: PLC0415

    views: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        name = match[1]
        if name is None or not _TABLE_BEFORE.search(match.string[: match.start()]):
            return match[0]
        name = name.replace("``", "`")
        if name in tables:
            return match[0]
        return views.setdefault(name, f"penstock_topics_{len(views)}")

    statement = _QUOTED.sub(named, text.strip().rstrip(";"))
    for topic, view in views.items():
        try:
            compile_pattern(topic)
        except InvalidPattern:
            raise NoSuchTable(topic, ", ".join(tables)) from None
        scan(spark, **source, subscribe=topic).createOrReplaceTempView(view)
    for name, table in tables.items():
        if re.search(rf"\b{re.escape(name)}\b", statement):
            table.read(spark).createOrReplaceTempView(name)
    try:
        return spark.sql(statement)
    except (AnalysisException, ParseException) as error:
        raise QueryFailed("sql", reason_of(error)) from None
