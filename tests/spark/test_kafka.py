"""A log on Kafka: Spark reads the messages of all nodes from Kafka itself."""

import dataclasses
import pickle
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.errors import CannotReadKafka, LogDamaged
from penstock.spark import scan
from penstock.spark.errors import InvalidOption, OtherLog, RangeLost
from penstock.spark.log_source import Task
from penstock.spark.options import read_options
from penstock.spark.reader import BatchReader
from penstock.spark.schema import record
from penstock.spark.stream import StreamReader
from penstock.spark.stream_offsets import parse_stream_offsets
from penstock.storage.kafka import cluster_topics, committer
from penstock.storage.kafka.client import RecordReader
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.namespaces import Namespaces
from penstock.storage.kafka.options import KafkaOptions
from tests.support.kafka_node import TOPIC, Node
from tests.support.written_log import START_US, WrittenStorage
from tools.kafka import KafkaBroker

COLUMNS = ["partition", "offset", "topic", "value"]
Row = tuple[int, int, str, bytes]


class Nodes:
    """Nodes of one log, in this process."""

    def __init__(self, kafka: KafkaBroker) -> None:
        self.options = KafkaOptions(kafka.address, f"spark-{secrets.token_hex(4)}")
        self.admin = AdminClient({"bootstrap.servers": kafka.address})
        self.written: dict[int, WrittenStorage] = {}
        self.where = {
            "kafka.bootstrap.servers": kafka.address,
            "kafkaTopic": self.options.topic,
        }

    def __getitem__(self, node: int) -> WrittenStorage:
        if node not in self.written:
            options = dataclasses.replace(self.options, node=node)
            self.written[node] = WrittenStorage(KafkaLog(options))
        return self.written[node]

    def close(self) -> None:
        for each in self.written.values():
            each.close()
        self.written.clear()

    def remove_before(self, node: int, kafka_offset: int, *, topic: str = "") -> None:
        """Remove records as retention does."""
        before = TopicPartition(topic or self.options.topic, node, kafka_offset)
        for future in self.admin.delete_records([before]).values():
            future.result(timeout=30)

    def replace(self) -> None:
        """Delete the topics, and begin a new log."""
        self.close()
        topics = [self.options.topic, self.options.state_topic]
        for future in self.admin.delete_topics(topics).values():
            future.result(timeout=30)
        while set(topics) & set(self.admin.list_topics(timeout=30).topics):
            pass

    # --- Reading, as Spark does

    def reader(self, **options: str) -> BatchReader:
        found = read_options({**self.where, **options}, streaming=False)
        return BatchReader(found, record(COLUMNS))

    def stream(self, **options: str) -> StreamReader:
        found = read_options({**self.where, **options}, streaming=True)
        return StreamReader(found, record(COLUMNS))

    def rows(self, **options: str) -> list[Row]:
        """The rows of a batch, read by tasks that were pickled."""
        reader = self.reader(**options)
        return read(reader, reader.partitions())


def read(reader: BatchReader | StreamReader, tasks: list[Any]) -> list[Row]:
    copies = pickle.loads(pickle.dumps(tasks))  # noqa: S301
    found = [
        tuple(row[name] for name in COLUMNS)
        for task in copies
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]
    return sorted(found)  # type: ignore[arg-type]


def expected(node: int, offsets: range, topics: tuple[str, ...] = ("a", "b")) -> list[Row]:
    return [(node, each, topics[each % len(topics)], b"%d" % each) for each in offsets]


@pytest.fixture
def nodes(kafka: KafkaBroker) -> Iterator[Nodes]:
    made = Nodes(kafka)
    yield made
    made.close()


# --- Batches --------------------------------------------------------------------------------------


def test_a_batch_has_the_messages_of_all_nodes_once(nodes: Nodes) -> None:
    nodes[0].put_many(20)
    nodes[1].put_many(9)
    zero, one = expected(0, range(60)), expected(1, range(27))
    assert nodes.rows() == zero + one
    reader = nodes.reader(minPartitions="6")
    tasks = reader.partitions()
    assert len(tasks) >= 6
    assert all(isinstance(task, Task) and task.rows_max < 60 for task in tasks)
    assert read(reader, tasks) == zero + one
    assert nodes.rows(subscribe="a") == [row for row in zero + one if row[2] == "a"]
    assert nodes.rows(subscribePattern="b|c") == [row for row in zero + one if row[2] == "b"]
    assert nodes.rows(assign='{"b": [1]}') == [row for row in one if row[2] == "b"]
    assert nodes.rows(startingOffsets='{"0": 58, "1": -2}', endingOffsets='{"0": -1, "1": 4}') == (
        zero[58:] + one[:4]
    )
    since = str(START_US // 1000 + 20)  # node 1 has 27 messages, a millisecond apart
    assert nodes.rows(startingTimestamp=since, endingTimestamp=str(int(since) + 5)) == (
        zero[20:25] + one[20:25]
    )
    small = nodes.reader(maxRecordsPerPartition="7", subscribe="a")
    assert max(len(read(small, [task])) for task in small.partitions()) == 7
    with pytest.raises(InvalidOption, match="has no 2; allowed: partitions 0, 1"):
        nodes.rows(assign='{"a": [2]}')


def test_a_log_that_is_not_there_is_an_error_at_once(kafka: KafkaBroker) -> None:
    where = {"path": f"kafka://{kafka.address}/no-such-log"}
    reader = BatchReader(read_options(where, streaming=False), record(COLUMNS))
    with pytest.raises(CannotReadKafka, match="no-such-log: Kafka has no such topic"):
        reader.partitions()
    where = {"path": f"kafka://{kafka.address}/penstock", "kafka.acks.of.java": "1"}
    reader = BatchReader(read_options(where, streaming=False), record(COLUMNS))
    with pytest.raises(CannotReadKafka, match=r"No such configuration property: .acks\.of\.java"):
        reader.partitions()


def test_a_kafka_that_does_not_answer_is_an_error_first_and_waited_for_later(
    nodes: Nodes,
    kafka: KafkaBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes[0].put_many(10)
    stream = nodes.stream(startingOffsets="earliest")
    start = stream.initialOffset()
    tasks = stream.partitions(start, stream.latestOffset(start, ReadAllAvailable()))
    monkeypatch.setattr(cluster_topics, "KAFKA_READ_SECONDS_MAX", 0.5)
    monkeypatch.setitem(RecordReader.records.__kwdefaults__, "seconds_max", 0.5)
    kafka.freeze(frozen=True)
    try:
        with pytest.raises(CannotReadKafka, match=r"no answer for 0\.5 seconds"):
            nodes.rows()
        threading.Timer(1.0, lambda: kafka.freeze(frozen=False)).start()
        assert read(stream, tasks) == expected(0, range(30))
    finally:
        kafka.freeze(frozen=False)
    assert "retrying until kafka answers" in capsys.readouterr().out
    assert stream.latestOffset(start, ReadAllAvailable()) != start


def test_what_kafka_removed_is_an_error_or_a_gap(nodes: Nodes) -> None:
    nodes[0].put_many(10)
    reader = nodes.reader(minPartitions="3")
    tasks = reader.partitions()
    places = [getattr(task, "place", 0) for task in tasks]
    assert len(set(places)) == 3
    nodes.remove_before(0, places[1])
    with pytest.raises(RangeLost, match="of partition 0, kafka://"):
        read(reader, tasks)
    kept = nodes.rows()
    first = kept[0][1]
    assert 0 < first < 30
    assert kept == expected(0, range(first, 30))
    with pytest.raises(RangeLost, match=f"offsets 2 to {first - 1} of partition 0"):
        nodes.rows(startingOffsets='{"0": 2}')
    lenient = nodes.reader(failOnDataLoss="false", startingOffsets='{"0": 2}')
    assert read(lenient, lenient.partitions()) == kept
    assert read(nodes.reader(failOnDataLoss="false"), tasks) == kept, "planned before"


def test_damaged_messages_are_an_error_or_a_gap_and_other_records_are_passed_over(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes[0].put_many(2)
    producer = Producer({"bootstrap.servers": nodes.options.bootstrap})
    producer.produce(nodes.options.topic, b"of another program", partition=0)
    assert producer.flush(30) == 0
    nodes[0].put_many(1)
    assert nodes.rows() == expected(0, range(9))
    with monkeypatch.context() as patched:
        patched.setattr(
            committer, "encode_row_group", flipped(committer.encode_row_group, b"91011")
        )
        nodes[0].put_many(1)  # its values are 9, 10 and 11
    nodes[0].put_many(2)
    with pytest.raises(LogDamaged) as caught:
        nodes.rows()
    assert (caught.value.offset, caught.value.resumes_at) == (9, 12)
    kept = expected(0, range(9)) + expected(0, range(12, 18))
    assert nodes.rows(failOnDataLoss="false") == kept
    assert nodes.rows(failOnDataLoss="false", minPartitions="4") == kept
    assert nodes.rows(failOnDataLoss="false", startingOffsets='{"0": 10}') == kept[9:]


def flipped(encode: Callable[..., Any], values: bytes) -> Callable[..., Any]:
    """Turn a bit of the first value of a row group before it is written."""

    def damaged(*arguments: Any, **more: Any) -> Any:
        encoded = encode(*arguments, **more)
        whole = bytearray(b"".join(encoded.buffers))
        whole[whole.index(values)] ^= 1
        return encoded._replace(buffers=[bytes(whole)])

    return damaged


# --- Streams --------------------------------------------------------------------------------------


def positions(offsets: Any) -> dict[int, int]:
    return {number: each.offset for number, each in parse_stream_offsets(offsets).items()}


def test_a_stream_has_an_offset_for_each_partition(nodes: Nodes) -> None:
    nodes[0].put_many(10)
    stream = nodes.stream(startingOffsets="earliest", group="readers")
    start = stream.initialOffset()
    log_id = f"{nodes[0].log.status().log_id:012x}"
    assert start[log_id] == {"0": 0}
    middle = stream.latestOffset(start, ReadAllAvailable())
    assert middle[log_id] == {"0": 30}
    assert read(stream, stream.partitions(start, middle)) == expected(0, range(30))
    assert stream.latestOffset(middle, ReadAllAvailable()) == middle
    nodes[1].put_many(10)  # a node that is new to the stream
    nodes[0].put_many(10)
    end = stream.latestOffset(middle, ReadMaxRows(20))
    assert positions(end) == {0: 40, 1: 10}
    rows = read(stream, stream.partitions(middle, end))
    assert rows == expected(0, range(30, 40)) + expected(1, range(10))
    again = nodes.stream(startingOffsets="earliest")
    assert read(again, again.partitions(middle, end)) == rows, "after a restart"
    stream.commit(end)
    state = nodes[0].log.groups.load("readers")
    assert state is not None
    assert state.offsets == {0: 40, 1: 10}


def test_a_stream_of_some_topics_is_exact_and_stays_while_others_get_messages(
    nodes: Nodes,
) -> None:
    nodes[0].put_many(10, rows=9, topics=("a", "b", "b", "b"))  # 23 messages of a
    nodes[1].put_many(4, topics=("b",))
    stream = nodes.stream(subscribe="a", startingOffsets="earliest")
    position, counts, rows = stream.initialOffset(), [], []
    while (end := stream.latestOffset(position, ReadMaxRows(10))) != position:
        found = read(stream, stream.partitions(position, end))
        counts.append(len(found))
        rows += found
        position = end
    assert [row[1] for row in rows] == list(range(0, 90, 4))
    assert max(counts) <= 10
    nodes[1].put_many(2, topics=("b",))
    assert stream.latestOffset(position, ReadAllAvailable()) == position
    assert stream.count_after(position) == 0
    nodes[1].put_many(1, topics=("a",))
    end = stream.latestOffset(position, ReadAllAvailable())
    found = read(stream, stream.partitions(position, end))
    assert found == expected(1, range(18, 21), ("a",))
    whole = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    assert positions(whole) == {0: 90, 1: 21}


def test_a_log_that_was_created_anew_is_another_log(nodes: Nodes) -> None:
    nodes[0].put_many(10)
    stream = nodes.stream(startingOffsets="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    tasks = stream.partitions(start, end)
    nodes.replace()
    nodes[0].put_many(2)
    with pytest.raises(OtherLog, match=r"of log [0-9a-f]{12}, and partition 0, kafka://"):
        read(stream, tasks)
    with pytest.raises(OtherLog):
        stream.latestOffset(end, ReadAllAvailable())
    lenient = nodes.stream(startingOffsets="earliest", failOnDataLoss="false")
    assert read(lenient, tasks) == []
    new = lenient.latestOffset(end, ReadAllAvailable())
    assert read(lenient, lenient.partitions(end, new)) == expected(0, range(6))


# --- Spark ----------------------------------------------------------------------------------------


def test_spark_reads_what_two_nodes_write(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = f"two-{secrets.token_hex(4)}"
    where = {"kafka.bootstrap.servers": kafka.address, "kafkaTopic": topic}
    table = tmp_path / "table"

    def publish(node: Node, numbers: range) -> None:
        with node.connect() as client:
            for number in numbers:
                client.publish(TOPIC, b"%d" % number)

    def store() -> None:
        stream = spark.readStream.format("penstock").options(**where, startingOffsets="earliest")
        query = (
            stream.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(table))
        )
        assert query.awaitTermination(120)

    with (
        ThreadPoolExecutor(2) as threads,
        Node(kafka.address, tmp_path / "0", topic=topic, number=0) as first,
        Node(kafka.address, tmp_path / "1", topic=topic, number=1) as second,
    ):
        for turn in range(2):
            numbers = range(200 * turn, 200 * turn + 100)
            others = range(200 * turn + 100, 200 * turn + 200)
            list(threads.map(publish, (first, second), (numbers, others)))
            store()
    batch = spark.read.format("penstock").options(**where).load()
    for frame in (
        spark.read.parquet(str(table)),
        batch,
        scan(spark, path=f"kafka://{kafka.address}/{topic}", columns=COLUMNS),
    ):
        assert sorted(values(frame)) == list(range(400))
    places = {(row.partition, row.offset) for row in batch.select("partition", "offset").collect()}
    assert places == {(node, offset) for node in (0, 1) for offset in range(200)}


def values(frame: DataFrame) -> list[int]:
    return [int(row.value) for row in frame.select("value").collect()]


# --- Namespaces -----------------------------------------------------------------------------------


@pytest.fixture
def spaces(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    """Nodes with a namespace for the topic "a"; row groups of any size are in it."""
    monkeypatch.setattr(Namespaces, "run_bytes_min", 0)
    namespaces = {"a": f"{nodes.options.topic}-a"}
    nodes.options = dataclasses.replace(nodes.options, namespaces=namespaces)
    return nodes


def test_messages_of_namespaces_are_read_once_each(spaces: Nodes) -> None:
    for node in (0, 1):
        for topics in (("a",), ("b",), ("a",), ("a", "b"), ("b",), ("a",)):
            spaces[node].put_many(4, topics=topics)
    rows = spaces.rows(startingOffsets="earliest")
    assert [row[:2] for row in rows] == [(node, each) for node in (0, 1) for each in range(72)]
    assert [row[3] for row in rows] == [b"%d" % each for each in range(72)] * 2
    for topic in ("a", "b"):
        found = spaces.rows(startingOffsets="earliest", subscribe=topic)
        assert found == [row for row in rows if row[2] == topic]
    assert len(spaces.reader(minPartitions="7").partitions()) >= 7
    assert spaces.rows(startingOffsets="earliest", minPartitions="7") == rows
    stream = spaces.stream(startingOffsets="earliest")
    start = stream.initialOffset()
    spaces[0].put_many(2, topics=("a",))
    end = stream.latestOffset(start, ReadAllAvailable())
    found = read(stream, stream.partitions(start, end))
    assert len(found) == 150


def test_messages_of_a_namespace_that_were_removed_are_a_named_error(spaces: Nodes) -> None:
    for topics in (("a",), ("b",), ("a",), ("b",)):
        spaces[0].put_many(1, topics=topics)
    reader = spaces.reader(startingOffsets="earliest")
    tolerant = spaces.reader(startingOffsets="earliest", failOnDataLoss="false")
    tasks, others = reader.partitions(), tolerant.partitions()
    spaces.remove_before(0, 2, topic=f"{spaces.options.topic}-a")
    with pytest.raises(RangeLost):
        read(reader, tasks)
    assert [row[1] for row in read(tolerant, others)] == [*range(3, 12)]
    # One that starts now begins behind what was removed.
    assert [row[1] for row in spaces.rows(startingOffsets="earliest")] == [*range(3, 12)]
    only = spaces.rows(startingOffsets="earliest", subscribe="b")
    assert [row[1] for row in only] == [3, 4, 5, 9, 10, 11]
