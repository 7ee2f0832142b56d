"""`scan` gives the rows that `spark.read` gives, and says at once what is wrong."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import CannotRead
from penstock.spark import scan
from penstock.spark.errors import InvalidOption, InvalidSchema
from penstock.spark.schema import record
from tests.support.flight import serve_tables
from tests.support.live import LiveBroker
from tests.support.written_log import WrittenLog, message


def test_a_scan_has_the_rows_of_the_source(spark: SparkSession, log: WrittenLog) -> None:
    log.put_many(60)
    log.put(message("käse", bytes(range(256)), 180, headers=[("ä", b"\0")]))
    found = scan(spark, path=str(log.data), minPartitions=5)
    expected = spark.read.format("penstock").load(str(log.data))
    assert found.schema == expected.schema == record()
    assert found.rdd.getNumPartitions() == 5
    assert found.orderBy("offset").collect() == expected.orderBy("offset").collect()


def test_a_scan_has_the_columns_and_rows_that_are_asked_for(
    spark: SparkSession, log: WrittenLog
) -> None:
    log.put_many(50)
    options = {"path": str(log.data), "subscribe": "b", "startingOffsets": '{"0": 140}'}
    found = scan(spark, columns=["offset", "topic"], **options)
    assert found.columns == ["offset", "topic"]
    assert sorted(map(tuple, found.collect())) == [(each, "b") for each in range(141, 150, 2)]
    assert scan(spark, columns=[], **options).count() == 5
    assert scan(spark, columns="topic,offset", **options).columns == ["topic", "offset"]
    read = spark.read.format("penstock").options(columns="offset, topic", **options).load()
    assert sorted(map(tuple, read.collect())) == sorted(map(tuple, found.collect()))
    assert "headers" not in scan(spark, includeHeaders=False, **options).columns
    assert scan(spark, path=str(log.data), subscribe="none").count() == 0


def test_a_scan_ends_where_the_log_ended(spark: SparkSession, log: WrittenLog) -> None:
    log.put_many(10)
    found = scan(spark, path=str(log.data), columns=["offset"])
    log.put_many(10)
    assert found.count() == found.count() == 30


def test_times_do_not_move_with_the_zone_of_the_session(
    spark: SparkSession, log: WrittenLog
) -> None:
    log.put_many(1)
    zone = spark.conf.get("spark.sql.session.timeZone")
    expected = spark.read.format("penstock").load(str(log.data)).select("timestamp").toArrow()
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        rows = scan(spark, path=str(log.data)).selectExpr("unix_micros(timestamp) as us").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
    micros = expected.column(0).cast("int64").to_pylist()
    assert [row.us for row in rows] == micros


def test_spark_does_not_take_a_long_log_for_a_short_one(
    spark: SparkSession, log: WrittenLog
) -> None:
    log.put_many(100)
    found = scan(spark, path=str(log.data), minPartitions=2)
    size = found._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    assert 300 * 100 < size < 300 * 1000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"foo": "1"}, "option foo: there is no such option"),
        ({"group": "g"}, "option group: it is not for a batch"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss: 'maybe' is neither"),
    ],
)
def test_a_wrong_option_is_told_at_once(
    spark: SparkSession, log: WrittenLog, options: dict[str, str], says: str
) -> None:
    log.put_many(1)
    with pytest.raises(InvalidOption, match=says):
        scan(spark, path=str(log.data), **options)


def test_a_wrong_place_or_column_is_told_at_once(
    spark: SparkSession, log: WrittenLog, tmp_path: Path
) -> None:
    log.put_many(1)
    with pytest.raises(InvalidSchema, match="size: there is no such column"):
        scan(spark, path=str(log.data), columns=["offset", "size"])
    with pytest.raises(CannotRead):
        scan(spark, path=str(tmp_path / "nowhere"))


def test_a_scan_over_flight_counts_and_takes_options_that_are_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with LiveBroker(data=data) as broker:
        endpoint = serve_tables(broker, data)
        rows = spark.range(10).selectExpr("'t' as topic", "cast(id as string) as value")
        rows.write.format("penstock").option("endpoint", endpoint).mode("append").save()
        assert scan(spark, endpoint=endpoint, columns=[], subscribe=None).count() == 10


def test_a_column_that_is_there_twice_is_told(spark: SparkSession, log: WrittenLog) -> None:
    log.put_many(1)
    with pytest.raises(InvalidSchema, match="offset: it is listed twice"):
        scan(spark, path=str(log.data), columns=["offset", "offset"])
