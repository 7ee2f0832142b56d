"""Queries over topics: Spark says which tables it does not know, and topics are found by that."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.errors import QueryFailed, reason_of
from penstock.pipeline.query import _missing_topic, run_query
from penstock.spark import scan
from penstock.spark.schema import record
from tests.support.written_log import WrittenLog, message

TOPICS = ("a", "b", "a,b", " sp ", "x`y", "it's", "A/x")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    data: Path = tmp_path_factory.mktemp("query") / "data"
    with WrittenLog(data) as log:
        for offset, topic in enumerate(TOPICS):
            log.put(message(topic, b"%d" % offset, offset))
    return {"path": str(data)}


def rows(spark: SparkSession, source: dict[str, str], text: str) -> list[tuple[Any, ...]]:
    """What a query gives; it leaves no view behind."""
    before = [table.name for table in spark.catalog.listTables()]
    try:
        return [tuple(row) for row in run_query(spark, text, tables={}, source=source).collect()]
    finally:
        assert [table.name for table in spark.catalog.listTables()] == before


def test_the_reason_of_an_error_is_its_last_penstock_error() -> None:
    text = "Job aborted.\n\npenstock.errors.LogError: the cause.\npenstock.errors.LogError: the end. \n"
    assert reason_of(RuntimeError(text)) == "the end"
    assert reason_of(RuntimeError("\nJob aborted.\nat line 1")) == "Job aborted"
    assert reason_of(RuntimeError()) == "RuntimeError"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select topic, `offset` from `a`", [("a", 0)]),
        ("select topic from `+` order by `topic` desc, `offset` limit 1;", [("x`y",)]),
        ("select `topic`, `protocol`, 1 from `a` group by `topic`, `protocol`", [("a", "herald", 1)]),
        ("select concat(string(value), `topic`) from `b`", [("1b",)]),
        ("select extract(year from `timestamp`) from `a`", [(2025,)]),
        ("select count(*) from `a`, `b`", [(1,)]),
        ("select count(*) from `a` as `x` join `b` as `y` on true", [(1,)]),
        ("select topic from `a,b`", [("a,b",)]),
        ("select topic from ` sp `", [(" sp ",)]),
        ("select topic from `x``y`", [("x`y",)]),
        ("select topic from `it's`", [("it's",)]),
        ("select topic from `A/+`", [("A/x",)]),
        ("/* don't */ select topic from `a` where topic = 'a'", [("a",)]),
        ("-- it's\nselect topic from `a`", [("a",)]),
        ("with `q` as (select * from `a`) select count(*) from `q`", [(1,)]),
        ("select * from (select count(*) from `#`), (select '`b`')", [(7, "`b`")]),
        ("select count(*) from `none`", [(0,)]),
    ],
)  # fmt: skip
def test_topics_are_tables_wherever_tables_may_stand(
    spark: SparkSession, source: dict[str, str], text: str, expected: list[tuple[Any, ...]]
) -> None:
    assert rows(spark, source, text) == expected


@pytest.mark.parametrize(
    ("text", "expected", "read"),
    [
        ("select topic, count(*) from `a` group by topic", [("a", 1)], ["topic"]),
        ("select count(*) from `#`", [(7,)], []),
        ("select count(topic), count(key) from `#`", [(7, 0)], ["key"]),
        ("select topic from (select * from `+` where offset = 1)", [("b",)], ["topic", "offset"]),
        ("select l.topic from `a` l join `a` r on l.offset = r.offset where length(r.value) = 1",
         [("a",)], ["value", "topic", "offset"]),
        ("select topic from `a` where (select max(offset) from `b`) = 1 and status is null",
         [("a",)], ["topic", "status", "offset"]),
        ("select offset from `a` union all select length(topic) from `b`", [(0,), (1,)],
         ["offset", "topic"]),
        ("with q as (select * from `a`) select x.kind from q x, q y where x.kind = y.kind",
         [("publish",)], ["kind"]),
        ("select headers, sender from `a` where exists (select 1 from `b` where b.offset > 0)",
         [(None, "somebody")], ["headers", "sender", "offset"]),
        ("select count(distinct message_id), min(year(timestamp)) from `a`", [(1, 2025)],
         ["timestamp", "message_id"]),
        ("select row_number() over (partition by protocol order by created) from `a`",
         [(1,)], ["protocol", "created"]),
        ("select explode(array(topic, sender)) from `a`", [("a",), ("somebody",)],
         ["topic", "sender"]),
    ],
)  # fmt: skip
def test_only_the_columns_that_a_query_needs_are_read(
    spark: SparkSession,
    source: dict[str, str],
    text: str,
    expected: list[tuple[Any, ...]],
    read: list[str],
) -> None:
    query = run_query(spark, text, tables={}, source=source)
    assert [tuple(row) for row in query.collect()] == expected
    plan = query._jdf.queryExecution().optimizedPlan().toString()
    scans = re.findall(r"MapInArrow .*?, \[(.*?)\], false", plan)
    assert "MapInArrow" in plan
    names = {re.sub(r"#\d+.*", "", name).strip() for each in scans for name in each.split(",")}
    assert names - {""} == set(read)


def test_a_query_of_all_columns_reads_all(spark: SparkSession, source: dict[str, str]) -> None:
    query = run_query(spark, "select * from `a`", tables={}, source=source)
    assert query.columns == record().names
    assert query.first() == scan(spark, subscribe="a", **source).first()
    described = run_query(spark, "describe `a`", tables={}, source=source).collect()
    assert [row[0] for row in described] == record().names


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("select * from a", "TABLE_OR_VIEW_NOT_FOUND"),
        ("select * from `a`.`b`", "TABLE_OR_VIEW_NOT_FOUND"),
        ("select nothing from `a`", "UNRESOLVED_COLUMN"),
        ("select * from `a/x` join `A/x`", "`a/x` and `A/x` differ only in case"),
    ],
)
def test_what_is_no_topic_is_told(
    spark: SparkSession, source: dict[str, str], text: str, says: str
) -> None:
    with pytest.raises(QueryFailed, match=says):
        rows(spark, source, text)


def test_a_query_that_is_asked_again_sees_what_came_since(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = {"path": str(tmp_path)}
    with WrittenLog(tmp_path) as log:
        for number in range(2):
            log.put(message("t", b"", number))
            assert rows(spark, source, "select count(*) from `t`") == [(number + 1,)]


class SparkError:
    """An error of Spark, as far as its condition and its parameters go."""

    def __init__(self, condition: str) -> None:
        self.condition = condition

    def getCondition(self) -> str:  # noqa: N802
        return self.condition

    def getMessageParameters(self) -> dict[str, str]:  # noqa: N802
        return {"relationName": "`a`"}


@pytest.mark.parametrize(
    ("condition", "topic"),
    [("TABLE_OR_VIEW_NOT_FOUND", "a"), ("TABLE_OR_VIEW_ALREADY_EXISTS", None)],
)
def test_only_a_missing_table_may_be_a_topic(condition: str, topic: str | None) -> None:
    error: Any = SparkError(condition)
    assert _missing_topic(error, "select * from `a`") == topic
