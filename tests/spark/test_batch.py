"""A batch has the rows of the log, all columns, each once, whatever the way it is cut."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import StructType

from penstock.errors import CannotRead
from penstock.model import Kind
from penstock.protocols.fleximq import FLEXIMQ
from penstock.protocols.lamamq import LAMAMQ
from penstock.spark.errors import InvalidSchema
from penstock.spark.folder_source import FileTask
from penstock.spark.options import read_options
from penstock.spark.reader import BatchReader
from penstock.spark.schema import RECORD, check_columns, record
from penstock.storage.arrow.format.log_state import LogState, load_state, save_state
from penstock.storage.arrow.read.browse import LogView
from penstock.storage.arrow.read.records import plain_records, record_batches
from penstock.storage.arrow.write.removal_record import RemovalRecord
from penstock.storage.arrow.write.retention import remove_segments
from penstock.storage.files import Files
from tests.support.written_log import WrittenLog, message


def table(spark: SparkSession, log: WrittenLog, schema: str = "", **options: str) -> DataFrame:
    reader = spark.read.format("penstock").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(log.data))


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def tasks(log: WrittenLog, **options: str) -> list[FileTask]:
    """What a reader plans, without Spark."""
    reader = BatchReader(read_options({"path": str(log.data), **options}, streaming=False), RECORD)
    planned = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301 - as Spark does
    return [each for each in planned if isinstance(each, FileTask)]


def let_go(log: WrittenLog, segments: int, *, recorded: bool = True) -> int:
    """Remove the oldest segments as retention does; return the new horizon.

    Without `recorded`, as versions before the record of removed topics.
    """
    bases = [int(path.stem) for path in log.segments()]
    state = load_state(Files(), log.folder)
    assert state is not None
    horizon = bases[segments]
    if recorded:
        record = RemovalRecord(Files(), log.folder, horizon=state.horizon)
        record.save(bases[:segments], horizon)
    save_state(
        Files(), log.folder, LogState(state.log_id, 0, state.next_offset, state.end, horizon)
    )
    remove_segments(Files(), log.folder, bases[:segments])
    return horizon


def test_a_batch_is_the_log_in_all_columns(spark: SparkSession, log: WrittenLog) -> None:
    log.put_many(60)
    log.put(
        message("käse/\N{CHEESE WEDGE}", bytes(range(256)), 180, protocol=LAMAMQ,
                headers=[("ä", b"\0"), ("", b"")]),
        message("r", b"", 181, protocol=FLEXIMQ, kind=Kind.REPLY, correlation="c-1",
                status=-7, sender_name="client \N{SNOWMAN}"),
    )  # fmt: skip
    frame = table(spark, log)
    assert frame.schema == record()
    found = frame.orderBy("offset").toArrow()
    view = LogView(log.data)
    expected = pa.Table.from_batches(plain_records(record_batches(view)))
    assert found.schema.names == expected.schema.names
    for name in expected.schema.names:
        values = expected.column(name).to_pylist()
        if name == "headers":  # none is null, as in Spark's Kafka source
            values = [each or None for each in values]
        assert found.column(name).to_pylist() == values, name
    assert len(log.segments()) > 3
    assert " ".join(frame.columns[:8]) == (
        "key value topic partition offset timestamp timestampType headers"
    )


def test_tasks_are_as_many_as_asked_and_have_each_row_once(
    spark: SparkSession, log: WrittenLog
) -> None:
    log.put_many(50)
    frame = table(spark, log, minPartitions="7")
    assert frame.rdd.getNumPartitions() == 7
    assert offsets(frame) == list(range(150))
    assert len(tasks(log)) == 1  # so little is not worth two
    assert len(tasks(log, minPartitions="1000")) == 50  # groups are not cut
    assert tasks(log, subscribe="none") == []
    assert table(spark, log, subscribe="none").count() == 0


def test_a_range_is_what_the_options_say(spark: SparkSession, log: WrittenLog) -> None:
    log.put_many(50)
    small = "offset BIGINT"
    times = {"startingTimestamp": "1763200000030", "endingTimestamp": "2025-11-15T09:46:40.040Z"}
    both = (
        table(spark, log, small, startingOffsets='{"0": 10}', endingOffsets='{"0": 20}')
        .unionAll(table(spark, log, small, **times))
        .unionAll(table(spark, log, small, subscribe="b", startingOffsets='{"0": 140}'))
    )
    expected = [*range(10, 20), *range(30, 40), 141, 143, 145, 147, 149]
    assert offsets(both) == expected
    for options, problem in (
        (
            {"endingOffsets": '{"0": 151}'},
            "151 of partition 0 is after the end of the log; allowed",
        ),
        ({"startingOffsets": '{"7": 1}'}, "has no 7; allowed: partitions 0"),
        ({"foo": "1"}, "option foo: there is no such option"),
    ):
        with pytest.raises(PySparkException, match=problem):
            table(spark, log, small, **options).count()


def test_a_frame_that_is_used_again_has_all_its_rows(spark: SparkSession, log: WrittenLog) -> None:
    log.put_many(10)
    frame = table(spark, log)
    one, other = frame.where("topic = 'a'"), frame.where("topic = 'b' and offset < 10")
    twice = one.unionAll(other).groupBy("topic").count().collect()
    assert dict(map(tuple, twice)) == {"a": 15, "b": 5}
    pairs = one.alias("a").join(other.alias("b"), F.expr("a.offset + 1 = b.offset"))
    assert pairs.count() == 5
    assert one.unionAll(frame).count() == 45
    assert frame.count() == 30
    # Spark would apply the filters of the last scan to all scans of the DataFrame.
    with pytest.raises(PySparkException, match=r"option filterPushdown|filterpushdown: it was rem"):
        table(spark, log, filterPushdown="true").count()


def test_a_view_stays_as_it_was_first_used(spark: SparkSession, log: WrittenLog) -> None:
    """docs/spark.md says so; a new version of Spark may change it."""
    create = f"CREATE OR REPLACE TEMPORARY VIEW seen USING penstock OPTIONS (path '{log.data}')"
    count = "SELECT count(*) FROM seen"
    log.put_many(2)
    spark.sql(create)
    assert spark.sql(count).head() == (6,)
    log.put_many(1)
    spark.sql("REFRESH TABLE seen")
    assert spark.sql(count).head() == (6,)
    spark.sql(create)
    assert spark.sql(count).head() == (9,)
    with pytest.raises(PySparkException):
        spark.sql("INSERT INTO seen SELECT * FROM seen")


def test_a_table_of_the_catalog_says_to_use_a_view(spark: SparkSession, log: WrittenLog) -> None:
    log.put_many(1)
    spark.sql(f"CREATE TABLE kept USING penstock OPTIONS (path '{log.data}')")
    try:
        with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
            spark.sql("SELECT count(*) FROM kept").head()
    finally:
        spark.sql("DROP TABLE kept")


def test_columns_that_are_left_out_are_not_read(spark: SparkSession, log: WrittenLog) -> None:
    log.put_many(4)
    frame = table(spark, log, "topic STRING, offset BIGINT", subscribe="a")
    assert [tuple(row) for row in frame.orderBy("offset").collect()][:2] == [("a", 0), ("a", 2)]
    (task,) = tasks(log)
    options = read_options({"path": str(log.data)}, streaming=False)
    for schema, expected in ((RECORD, 15), (record(RECORD.names[:14]), 14), (RECORD[:1], 1)):
        (batch,) = BatchReader(options, schema).read(task)
        assert (batch.num_columns, batch.num_rows) == (expected, 12)
    for wrong, problem in (
        ("offset STRING", "column offset: it is bigint, not string"),
        ("created TIMESTAMP NOT NULL", "column created: it may be null"),
    ):
        with pytest.raises(PySparkException, match=problem):
            table(spark, log, wrong).count()
    with pytest.raises(InvalidSchema, match="column offset: it is listed twice"):
        check_columns(StructType([record()["offset"], record()["offset"]]))


def test_what_retention_took_is_an_error_or_a_gap(
    spark: SparkSession, log: WrittenLog, tmp_path: Path
) -> None:
    log.put_many(60)
    before = tasks(log, minPartitions="4")
    horizon = let_go(log, 2)
    small = "offset BIGINT"
    assert offsets(table(spark, log, small)) == list(range(horizon, 180))
    options = {"startingOffsets": '{"0": 3}'}
    problem = f"offsets 3 to {horizon - 1} of partition 0.*failOnDataLoss"
    with pytest.raises(PySparkException, match=problem):
        table(spark, log, small, **options).count()
    lossy = table(spark, log, small, failOnDataLoss="false", **options)
    assert offsets(lossy) == list(range(horizon, 180))
    # Tasks that were planned before it went.
    strict, lenient = (
        BatchReader(
            read_options({"path": str(log.data), "failOnDataLoss": flag}, streaming=False), RECORD
        )
        for flag in ("true", "false")
    )
    with pytest.raises(Exception, match="failOnDataLoss to false"):
        list(strict.read(before[0]))
    found = [
        offset
        for task in before
        for batch in lenient.read(task)
        for offset in batch.column("offset").to_pylist()
    ]
    assert found == list(range(horizon, 180))
    with pytest.raises(CannotRead, match="there is no such folder"):
        BatchReader(
            read_options({"path": str(tmp_path / "none")}, streaming=False), RECORD
        ).partitions()
