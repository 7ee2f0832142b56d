"""Over Arrow Flight a job reads what the folder has, and publishes each row once."""

import dataclasses
import json
import pickle
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from penstock.flight.client import FlightClient
from penstock.flight.errors import NoAnswer
from penstock.spark.epoch_publisher import EpochPublisher
from penstock.spark.errors import InvalidOption, InvalidSchema, OtherLog
from penstock.spark.flight_source import FlightTask
from penstock.spark.options import Broker, read_options, write_options
from penstock.spark.reader import BatchReader
from penstock.spark.schema import RECORD, record
from penstock.spark.stream import StreamReader
from penstock.spark.writer import BatchWriter, Staged, StreamWriter
from penstock.storage.arrow.read.follow import LogFollower
from penstock.storage.group_offsets import GroupOffsets
from penstock.storage.options import LogOptions, Retention
from penstock.transport.addresses import Address
from tests.support.flight import rows as flight_rows
from tests.support.flight import serve_tables
from tests.support.live import LiveBroker

SECONDS_MAX = 60
TLS = Path(__file__).parents[1] / "support" / "tls"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def endpoint(data: Path) -> Iterator[str]:
    with LiveBroker(data=data) as broker:
        yield serve_tables(broker, data)


def publish(frame: DataFrame, endpoint: str, **options: str) -> None:
    writer = frame.write.format("penstock").mode("append")
    writer.options(endpoint=endpoint, **options).save()


def read(spark: SparkSession, **options: str) -> DataFrame:
    return spark.read.format("penstock").options(**options).load()


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.orderBy("offset").collect()]


def test_what_is_published_is_read_the_same_by_both_ways(
    spark: SparkSession, endpoint: str, data: Path
) -> None:
    frame = (
        spark.range(1000)
        .repartition(3)
        .selectExpr(
            "concat('plant/', id % 3) as topic",
            "cast(id as string) as value",
            "if(id % 2 = 0, encode(cast(id as string), 'utf-8'), null) as key",
            "array(struct('k' as key, cast('v' as binary) as value)) as headers",
        )
    )
    publish(frame, endpoint)
    publish(frame.select("value"), endpoint, topic="all")
    by_file, by_flight = read(spark, path=str(data)), read(spark, endpoint=endpoint)
    assert by_flight.schema == record()
    found = rows(by_flight)
    assert found == rows(by_file)
    assert sorted(int(row[1]) for row in found) == sorted([*range(1000)] * 2)
    assert {row[8] for row in found} == {"flight"}
    options = {"endpoint": endpoint, "subscribe": "plant/+", "minPartitions": "2"}
    some = read(spark, **options).where("offset < 500 and topic like '%1' and protocol = 'flight'")
    assert [row[4] for row in rows(some)] == [
        row[4] for row in found if row[4] < 500 and row[2] == "plant/1"
    ]
    with pytest.raises(PySparkException, match="no answer by Arrow Flight"):
        read(spark, endpoint="127.0.0.1:1").count()


def test_an_epoch_that_is_written_again_comes_once(
    spark: SparkSession, endpoint: str, data: Path
) -> None:
    frame = spark.range(10).selectExpr("'t' as topic", "cast(id as string) as value")
    for epoch in ("0", "0", "1"):
        publish(frame, endpoint, writer="gold", epoch=epoch)
    assert read(spark, path=str(data)).count() == 20


def test_a_stream_through_spark_comes_once_through_restarts(
    spark: SparkSession, endpoint: str, data: Path, tmp_path: Path
) -> None:
    def run() -> None:
        query = (
            spark.readStream.format("penstock")
            .options(endpoint=endpoint, subscribe="in", startingOffsets="earliest")
            .options(maxOffsetsPerTrigger="60", group="copy")
            .load()
            .selectExpr("'out' as topic", "value")
            .writeStream.format("penstock")
            .options(endpoint=endpoint, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(SECONDS_MAX), "the stream did not end in time"

    numbers = spark.range(100).selectExpr("'in' as topic", "cast(id as string) as value")
    publish(numbers, endpoint)
    run()
    commits = sorted(
        (tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name)
    )
    commits[-1].unlink()  # as if the driver had died between publishing and its own note of it
    run()
    publish(numbers, endpoint)
    run()
    out = read(spark, path=str(data), subscribe="out").selectExpr(
        "cast(cast(value as string) as int)"
    )
    assert sorted(row[0] for row in out.collect()) == sorted([*range(100)] * 2)
    with FlightClient(endpoint) as client:
        assert client.groups()["copy"][0].offset > 0
    assert GroupOffsets(data).load("copy") is not None


def test_rows_that_no_broker_takes_are_named(spark: SparkSession, endpoint: str) -> None:
    frame = spark.range(1)
    for columns, problem in (
        (["'t' as topic"], "column value: it is missing"),
        (["'v' as value"], "column topic: it is missing, and there is no option topic"),
        (["'t' as topic", "id as value"], "column value: bigint cannot be published"),
        (["'t' as topic", "'v' as value", "id"], "column id: there is no such column"),
    ):
        schema = frame.selectExpr(*columns).schema
        options = write_options({"endpoint": endpoint}, streaming=False)
        with pytest.raises(InvalidSchema, match=f"{problem}; allowed: topic string"):
            BatchWriter(options, schema)
    with pytest.raises(PySparkException, match="there is no such column"):
        publish(frame.selectExpr("'t' as topic", "'v' as value", "id"), endpoint)
    with pytest.raises(PySparkException, match=r"'a/\+'|wildcard"):
        publish(frame.selectExpr("'a/+' as topic", "'v' as value"), endpoint)
    with pytest.raises(
        PySparkException, match="option mode: published messages cannot be overwritten"
    ):
        frame.selectExpr("'t' as topic", "'v' as value").write.format("penstock").option(
            "endpoint", endpoint
        ).mode("overwrite").save()


def test_a_broker_with_tls_is_known_by_its_certificate(tmp_path: Path) -> None:
    secure = dataclasses.replace(
        Address("tls", "127.0.0.1", 0),
        certificate=str(TLS / "localhost.pem"),
        key=str(TLS / "localhost.key"),
    )
    with LiveBroker(data=tmp_path) as live:
        place = serve_tables(live, tmp_path, address=secure)
        endpoint = place.replace("grpc://127.0.0.1", "grpc+tls://localhost")
        where = {"endpoint": endpoint, "certificate": str(TLS / "localhost.pem")}
        broker = write_options(where, streaming=False).broker
        with broker.client(expected=False) as client:
            client.stage([sink(["one", "two"])], writer="w", epoch=0, partition=0)
            client.publish_epoch("w", 0, [0])
        options = read_options(where, streaming=False)
        found = [
            batch.column("value").to_pylist()
            for task in BatchReader(options, RECORD).partitions()
            for batch in BatchReader(options, RECORD).read(task)
        ]
        assert found == [[b"one", b"two"]]
        with (
            Broker(endpoint).client(expected=False) as client,
            pytest.raises(NoAnswer, match="no answer by Arrow Flight"),
        ):
            client.bounds()


def test_a_row_is_for_the_partition_that_there_is(
    spark: SparkSession, endpoint: str, data: Path
) -> None:
    frame = spark.range(4).repartition(2)
    good = ["'t' as topic", "cast(id as string) as value", "if(id > 1, 0, null) as partition"]
    publish(frame.selectExpr(*good), endpoint)
    assert read(spark, path=str(data)).count() == 4
    good[2] = "int(if(id = 3, 7, 0)) as partition"
    with pytest.raises(PySparkException, match="column partition: a row has 7; allowed: 0 or null"):
        publish(frame.selectExpr(*good), endpoint)
    good[2] = "id as partition"
    with pytest.raises(PySparkException, match="column partition: bigint cannot be published"):
        publish(frame.selectExpr(*good), endpoint)
    assert read(spark, path=str(data)).count() == 4, "nothing of it was published"


def test_aggregates_are_published_in_modes_complete_and_update(
    spark: SparkSession, endpoint: str, data: Path, tmp_path: Path
) -> None:
    def run(mode: str) -> None:
        counts = (
            spark.readStream.format("penstock")
            .options(endpoint=endpoint, subscribe="in", startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", 3)
            .load()
            .groupBy("value")
            .count()
            .selectExpr(f"'{mode}' as topic", "concat(string(value), count) as value")
        )
        sink = counts.writeStream.outputMode(mode).trigger(availableNow=True)
        sink = sink.option("checkpointLocation", str(tmp_path / mode))
        if mode == "update":
            sink = sink.foreachBatch(EpochPublisher("totals", endpoint=endpoint))
        else:
            sink = sink.format("penstock").option("endpoint", endpoint)
        assert sink.start().awaitTermination(SECONDS_MAX), "the stream did not end in time"

    def published(topic: str) -> list[str]:
        found = read(spark, path=str(data), subscribe=topic).selectExpr("string(value)")
        return sorted(row[0] for row in found.collect())

    with FlightClient(endpoint) as client:
        client.stage(
            [flight_rows([b"a", b"b", b"a", b"b"], topic="in")], writer="w", epoch=0, partition=0
        )
        client.publish_epoch("w", 0, [0])
    for mode in ("complete", "update"):
        run(mode)
    assert published("complete") == ["a2", "a2", "b1", "b2"]
    assert published("update") == ["a2", "b1", "b2"]
    commits = (tmp_path / "update" / "commits").glob("[0-9]*")
    max(commits, key=lambda path: int(path.name)).unlink()  # as if the driver had died
    run("update")
    assert published("update") == ["a2", "b1", "b2"]
    with pytest.raises(InvalidOption, match="option path: it is not for a sink"):
        EpochPublisher("totals", endpoint=endpoint, path="x")


def test_topics_have_ranges_of_their_own_by_both_ways(endpoint: str, data: Path) -> None:
    with FlightClient(endpoint) as client:
        for epoch in range(5):
            batch = flight_rows([b"x"] * 4, topics=["a", "b", "c", "d/e"])
            client.stage([batch], writer="w", epoch=epoch, partition=0)
            client.publish_epoch("w", epoch, [0])

    def offsets(**options: str) -> list[int]:
        found = []
        for where in ({"path": str(data)}, {"endpoint": endpoint}):
            reading = read_options({**where, **options}, streaming=False)
            reader = BatchReader(reading, record(["offset", "value"]))
            tasks = pickle.loads(pickle.dumps(reader.partitions()))  # noqa: S301 - as Spark does
            batches = [batch for task in tasks for batch in reader.read(task)]
            found.append(sorted(n for batch in batches for n in batch["offset"].to_pylist()))
            if "endingOffsets" not in options and "subscribe" in options:
                streaming = read_options({**where, **options}, streaming=True)
                streamed = StreamReader(streaming, RECORD)
                start = streamed.initialOffset()
                end = streamed.latestOffset(start, ReadAllAvailable())
                rows = [
                    each for task in streamed.partitions(start, end) for each in streamed.read(task)
                ]
                found.append(sorted(n for batch in rows for n in batch["offset"].to_pylist()))
        assert all(each == found[0] for each in found)
        return found[0]

    starts, ends = '{"a": {"0": 4}, "b": {"0": -2}}', '{"a": {"0": 13}, "b": {"0": 6}}'
    both = {"startingOffsets": starts, "endingOffsets": ends}
    assert offsets(subscribe="a,b", **both) == [1, 4, 5, 8, 12]
    assert offsets(assign='{"a": [0], "b": [0]}', **both) == [1, 4, 5, 8, 12]
    assert offsets(subscribe="a,b", **both, maxRecordsPerPartition="2") == [1, 4, 5, 8, 12]
    assert offsets(subscribe="a,b", startingOffsets=starts, minPartitions="4") == [
        1, 4, 5, 8, 9, 12, 13, 16, 17,
    ]  # fmt: skip
    others = [n for n in range(20) if n % 4 > 1]
    assert offsets(**both) == sorted([1, 4, 5, 8, 12, *others])
    assert offsets(subscribePattern="[abc]", **both) == sorted([1, 4, 5, 8, 12, *others[::2]])
    with pytest.raises(InvalidOption, match=r"option assign: .* has no 1; allowed: partitions 0"):
        offsets(assign='{"a": [0, 1]}')
    with pytest.raises(InvalidOption, match=r"option endingOffsets: .* has no 1; allowed"):
        offsets(endingOffsets='{"a": {"1": 5}}')
    with pytest.raises(InvalidOption, match="21 of partition 0 is after the end of the log"):
        offsets(endingOffsets='{"a": {"0": 21}}')


def test_a_batch_that_is_written_once_is_not_remembered_for_ever(
    spark: SparkSession, endpoint: str, data: Path
) -> None:
    frame = spark.range(1).selectExpr("'t' as topic", "cast(id as string) as value")
    publish(frame, endpoint)
    publish(frame, endpoint, writer="daily", epoch="1")
    states = [json.loads(path.read_bytes()) for path in data.glob("sinks/*/writer.json")]
    assert {each["writer"].startswith("batch-"): each["final"] for each in states} == {
        True: True,
        False: False,
    }


def test_a_batch_that_is_aborted_leaves_no_staged_rows(endpoint: str, data: Path) -> None:
    schema = StructType([StructField("topic", StringType()), StructField("value", BinaryType())])
    options = {"endpoint": endpoint}
    query = StreamWriter(write_options(options, streaming=True), schema)
    options["writer"] = "named"
    named = StreamWriter(write_options(options, streaming=True), schema)

    def staged() -> list[str]:
        return sorted(path.name for path in data.glob("sinks/*/*") if path.name != "writer.json")

    with FlightClient(endpoint) as client:
        for writer in ("named", "query"):
            client.stage([flight_rows([b"x"])], writer=writer, epoch=3, partition=0)
        assert staged() == ["3-0.arrows"] * 2
        query.abort([Staged("query", 3, 0, "token"), None], 3)
        assert len(staged()) == 1
        named.abort([None], 2)
        assert len(staged()) == 1, "another batch"
        named.abort([None], 3)
        assert staged() == [], "also of tasks that failed before they told what they staged"


def test_a_stream_of_a_quiet_topic_costs_its_own_rows(endpoint: str) -> None:
    options = read_options({"endpoint": endpoint, "subscribe": "quiet"}, streaming=True)
    stream = StreamReader(options, RECORD)

    def put(*topics: str) -> None:
        writer = f"w{uuid.uuid4().hex}"
        batch = flight_rows([b"x"] * len(topics), topics=list(topics))
        client.stage([batch], writer=writer, epoch=0, partition=0)
        client.publish_epoch(writer, 0, [0])

    with FlightClient(endpoint) as client:
        start = stream.initialOffset()
        for _ in range(2):
            put("busy", "busy")
            assert stream.latestOffset(start, ReadAllAvailable()) == start
        put("quiet", "busy", "quiet", "quiet", "busy")
        counts = []
        while (end := stream.latestOffset(start, ReadMaxRows(2))) != start:
            tasks = stream.partitions(start, end)
            counts.append(sum(len(batch) for task in tasks for batch in stream.read(task)))
            start = end
        assert counts == [2, 1]
        put("busy")
        assert stream.latestOffset(start, ReadAllAvailable()) == start
        assert stream.reportLatestOffset() == start
        options = {"endpoint": endpoint, "subscribe": "busy, quiet", "newTopics": "earliest"}
        both = StreamReader(read_options(options, streaming=True), RECORD)
        joined = []
        while (end := both.latestOffset(start, ReadMaxRows(4))) != start:
            tasks = both.partitions(start, end)
            joined += [
                topic
                for task in tasks
                for batch in both.read(task)
                for topic in batch.column("topic").to_pylist()
            ]
            start = end
        assert joined == ["busy"] * 7


def test_a_wrong_address_is_told_before_rows_are_computed(spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr(
        "'t' as topic", "cast(raise_error('a row came') as string) as value"
    )
    with pytest.raises(PySparkException, match="no answer by Arrow Flight") as caught:
        publish(frame, "127.0.0.1:1")
    assert "a row came" not in str(caught.value)


def sink(values: list[str]) -> pa.RecordBatch:
    return pa.record_batch({"topic": ["t"] * len(values), "value": values})


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_what_retention_took_behind_a_reader_is_not_given_again(
    data: Path, fail_on_data_loss: str
) -> None:
    """The broker goes away, and comes back with less: the reader has had what is gone."""
    count, size = 48, 1 << 20
    options = LogOptions(segment_bytes_max=4 * size)
    with LiveBroker(data=data, log_options=options) as broker:
        endpoint = serve_tables(broker, data)
        with FlightClient(endpoint) as client:
            for epoch in range(count // 2):
                client.stage([sink(["x" * size] * 2)], writer="w", epoch=epoch, partition=0)
                client.publish_epoch("w", epoch, [0])
        asked = {"endpoint": endpoint, "failOnDataLoss": fail_on_data_loss, "minPartitions": "1"}
        reader = BatchReader(read_options(asked, streaming=False), record(["offset", "value"]))
        (task,) = reader.partitions()
        batches = iter(reader.read(task))
        given: list[int] = []
        while len(given) < 12:
            given += next(batches).column("offset").to_pylist()
    kept = dataclasses.replace(options, retention=Retention(bytes_max=(count - 6) * size))
    with LiveBroker(data=data, log_options=kept) as broker:
        deadline = time.monotonic() + SECONDS_MAX
        while not LogFollower(data).bounds().horizon and time.monotonic() < deadline:
            time.sleep(0.05)
        assert 0 < LogFollower(data).bounds().horizon < len(given)
        port = int(endpoint.rpartition(":")[2])
        serve_tables(broker, data, address=Address("tcp", "127.0.0.1", port))
        for batch in batches:
            given += batch.column("offset").to_pylist()
    assert given == list(range(count))


def test_a_task_does_not_read_the_log_of_another_broker_at_the_same_address(
    endpoint: str,
) -> None:
    where = {"endpoint": endpoint}
    with FlightClient(endpoint) as client:
        client.stage([flight_rows([b"x"] * 10)], writer="w", epoch=0, partition=0)
        client.publish_epoch("w", 0, [0])
    for fails in ("true", "false"):
        options = read_options({**where, "failOnDataLoss": fails}, streaming=False)
        reader = BatchReader(options, RECORD)
        (task,) = reader.partitions()
        assert isinstance(task, FlightTask)
        assert [len(each) for each in reader.read(task)] == [10]
        task.span = task.span._replace(log="0123456789ab")
        if fails == "true":
            with pytest.raises(OtherLog, match=r"of log 0123456789ab, and partition 0, grpc://"):
                list(reader.read(task))
        else:
            assert list(reader.read(task)) == []
