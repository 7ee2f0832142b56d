"""Options have Kafka's names and meaning; a wrong one is named with what is allowed."""

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from penstock.ports.selection import Selection
from penstock.spark.data_source import PenstockDataSource
from penstock.spark.errors import InvalidOption, InvalidSchema
from penstock.spark.kafka_place import KafkaPlace
from penstock.spark.offset_spec import NamedOffset
from penstock.spark.options import Broker, read_options, write_options
from penstock.spark.schema import check_columns

TLS = Path(__file__).parents[1] / "support" / "tls"
NOON = dt.datetime(2026, 11, 1, 12, tzinfo=dt.UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000


def read(*, streaming: bool = False, **options: str) -> Any:
    return read_options({"path": "/data", **options}, streaming=streaming)


def test_what_is_not_given_is_as_with_kafka() -> None:
    batch, stream = read(), read(streaming=True)
    assert batch.where == Path("/data")
    assert batch.selection == Selection()
    assert (batch.starting.named, stream.starting.named) == (
        NamedOffset.EARLIEST,
        NamedOffset.LATEST,
    )
    assert batch.ending.named is NamedOffset.LATEST
    assert (batch.fail_on_data_loss, batch.include_headers) == (True, True)
    assert (batch.tasks, stream.offsets_max, stream.group) == (None, None, None)


def test_names_do_not_depend_on_case() -> None:
    found = read(SUBSCRIBE="a, b/+ ,c", MinPartitions="7", failondataloss="FALSE")
    assert found.selection == Selection(topics=frozenset({"a", "c"}), patterns=("b/+",))
    assert (found.tasks, found.fail_on_data_loss) == (7, False)
    assert read(subscribePattern="a.*").selection == Selection(expression="a.*")


def test_offsets_and_times_are_kafkas() -> None:
    assert read(startingOffsets='{"0": 5, "1": -2}').starting.offsets == {
        0: 5,
        1: NamedOffset.EARLIEST,
    }
    assert read(endingOffsets='{"0": -1}').ending.offsets == {0: NamedOffset.LATEST}
    assert read(startingTimestamp="1700000000000").starting.timestamp_us == 1_700_000_000_000_000
    for text in ("2026-11-01T12:00:00Z", "2026-11-01T12:00", "2026-11-01T14:00:00+02:00"):
        assert read(endingTimestamp=text).ending.timestamp_us == NOON_US
    both = read(startingTimestamp="1", startingOffsets="earliest").starting
    assert both.timestamp_us == 1000


def test_offsets_and_times_are_by_topic() -> None:
    found = read(startingOffsets='{"a": {"0": 23, "1": -2}, "b": {"0": -2}}')
    assert found.starting.topics == {
        "a": {0: 23, 1: NamedOffset.EARLIEST},
        "b": {0: NamedOffset.EARLIEST},
    }
    by_time = {"startingOffsetsByTimestamp": '{"a": {"0": 1000}}', "startingOffsets": "earliest"}
    found = read(**by_time, endingOffsetsByTimestamp='{"a": {"0": 2000}}')
    assert found.starting.topic_timestamps_us == {"a": {0: 1_000_000}}
    assert found.ending.topic_timestamps_us == {"a": {0: 2_000_000}}
    assert not found.starting.must_match
    found = read(**by_time, startingTimestamp="5", startingOffsetsByTimestampStrategy="ERROR")
    assert (found.starting.timestamp_us, found.starting.must_match) == (5000, True)
    found = read(assign='{"a": [0, 1], "b": [1, 0]}')
    assert found.selection == Selection(topics=frozenset({"a", "b"}))
    assert found.partitions == {0, 1}


def test_a_delay_has_units_of_time() -> None:
    for text, seconds in (
        ("15m", 900),
        ("500", 0.5),
        ("250 ms", 0.25),
        ("2H", 7200),
        ("1d", 86400),
    ):
        assert read(streaming=True, maxTriggerDelay=text).delay_seconds_max == seconds
    assert read(streaming=True).delay_seconds_max == 900


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/St_Johns", "UTC"])
def test_a_time_without_a_zone_is_utc_wherever_a_job_runs(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for text in ("2026-11-01T12:00:00Z", "2026-11-01T12:00", "2026-11-01T14:00:00+02:00"):
            assert read(startingTimestamp=text).starting.timestamp_us == NOON_US
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_broker_is_read_by_its_address() -> None:
    found = read_options({"endpoint": "grpc://host:1", "token": "secret"}, streaming=True)
    assert found.where == Broker("grpc://host:1", "secret")
    assert "secret" not in repr(found)


def test_a_certificate_is_read_by_the_driver() -> None:
    where = {"endpoint": "grpc+tls://localhost:1", "certificate": str(TLS / "localhost.pem")}
    pem = (TLS / "localhost.pem").read_bytes()
    for streaming in (False, True):
        found = read_options(where, streaming=streaming).where
        assert found == Broker("grpc+tls://localhost:1", certificate=pem)
        assert write_options(where, streaming=streaming).broker == found
        assert "CERTIFICATE" not in repr(found)
    for wrong, problem in (
        ({"endpoint": "grpc://localhost:1"}, "is without TLS"),
        ({"certificate": "/nowhere.pem"}, "/nowhere.pem cannot be read: no such file"),
        ({"certificate": str(TLS / "localhost.key")}, "localhost.key has none"),
    ):
        with pytest.raises(InvalidOption, match=f"option certificate: .*{problem}"):
            read_options({**where, **wrong}, streaming=False)


@pytest.mark.parametrize(
    ("options", "streaming", "problem"),
    [
        ({"foo": "1"}, False, r"option foo: there is no such option; allowed: path, endpoint"),
        (
            {"maxOffsetsPerTrigger": "5"},
            False,
            "option maxOffsetsPerTrigger: it is not for a batch",
        ),
        ({"endingOffsets": "latest"}, True, "option endingOffsets: it is not for a stream"),
        ({"group": "g"}, False, "option group: it is not for a batch"),
        ({"group": "../g"}, True, "option group: '../g' is no name for a group"),
        ({"topic": "t"}, True, "option topic: it is not for a stream"),
        ({"traces": "127.0.0.1:4318"}, True, "option traces: '127.0.0.1:4318' is no HTTP URL"),
        ({"endpoint": "grpc://h:1"}, False, "option endpoint: there is path too"),
        ({"token": "t"}, False, "option token: files ask for none"),
        ({"certificate": "c"}, False, "option certificate: files ask for none"),
        ({"path": " "}, False, "option path: it is empty"),
        ({"path": "s3://b/x"}, False, "option path: 's3://b/x' is not supported"),
        ({"filterPushdown": "true"}, False, "filterpushdown: it was removed"),
        ({"kafka.bootstrap.servers": "h:1"}, True, "option kafka.bootstrap.servers: there is path"),
        ({"kafka.fetch.min.bytes": "1"}, False, "a setting of Kafka's clients, and has a meaning"),
        ({"kafkaTopic": "t"}, False, "option kafkaTopic: it is for a log on Kafka"),
        ({"subscribe": "a", "subscribePattern": "b"}, False, "there is subscribe too"),
        ({"subscribe": "a,,b"}, False, "option subscribe: .*allowed: names of topics"),
        ({"subscribe": "a/#/b"}, False, "option subscribe: .*a/#/b"),
        ({"subscribePattern": "("}, False, "option subscribePattern: '\\('"),
        ({"startingOffsets": "latest"}, False, "a batch cannot begin at the end"),
        ({"startingOffsets": '{"0": -1}'}, False, "a batch cannot begin at the end"),
        ({"startingOffsets": "first"}, True, "'first' is neither a word nor JSON.*earliest"),
        ({"startingOffsets": '{"t": 1}'}, True, "'t' is no partition"),
        ({"startingOffsets": '{"t": {"x": 1}}'}, True, "'x' is no partition"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, True, "-3 is no offset"),
        ({"startingOffsets": '{"t": {}}'}, True, "'t' has {}, which is not by partition"),
        ({"startingOffsets": '{"t": {"0": 1}, "0": 2}'}, True, "'0' has 2, which is not by part"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, False, "a batch cannot begin at the end"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, False, "a batch cannot end at the beginning"),
        (
            {"subscribe": "a", "startingOffsets": '{"b": {"0": 1}}'},
            True,
            "option startingOffsets: 'b' is not among the topics to read",
        ),
        (
            {"subscribe": "a, b, c/+", "endingOffsets": '{"b": {"0": 1}, "c/d": {"0": 1}}'},
            False,
            "option endingOffsets: 'a' is missing; allowed: all topics that subscribe",
        ),
        (
            {"startingOffsets": '{"a": {"0": 9}}', "endingOffsets": '{"a": {"0": 8}}'},
            False,
            "option endingOffsets: 'a' ends before it starts",
        ),
        (
            {"startingOffsets": json.dumps({f"t{n}": {"0": 1} for n in range(1001)})},
            True,
            "it has 1001 topics; allowed: at most 1000",
        ),
        (
            {"startingOffsetsByTimestamp": "1000"},
            True,
            "'1000' is no JSON of times; allowed: JSON of milliseconds",
        ),
        ({"startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, True, "-1 is no time"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, True, "'earliest' is neither"),
        ({"endingOffsetsByTimestamp": "{}"}, True, "endingOffsetsByTimestamp: it is not for a st"),
        ({"assign": "a"}, False, "option assign: 'a' is no JSON of partitions by topic"),
        ({"assign": '{"a": 0}'}, False, "option assign: 'a' has 0, no partitions"),
        ({"assign": '{"a": [-1]}'}, False, "option assign: -1 is no partition"),
        ({"assign": '{"a/#": [0]}'}, False, "option assign: 'a/#' is a pattern"),
        ({"assign": '{"": [0]}'}, False, "option assign: "),
        ({"assign": '{"a": [0], "b": [1]}'}, False, "topics have different partitions"),
        ({"assign": '{"a": [0]}', "subscribe": "a"}, False, "assign: there is subscribe too"),
        ({"maxRecordsPerPartition": "0"}, False, "option maxRecordsPerPartition: '0'"),
        ({"minOffsetsPerTrigger": "5"}, False, "minOffsetsPerTrigger: it is not for a batch"),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            True,
            "option minOffsetsPerTrigger: 5 is more than maxOffsetsPerTrigger",
        ),
        ({"maxTriggerDelay": "soon"}, True, "option maxTriggerDelay: 'soon' is no time span"),
        ({"maxTriggerDelay": "5 weeks"}, True, "option maxTriggerDelay: '5 weeks'"),
        ({"startingOffsets": '{"0": -3}'}, True, "-3 is no offset"),
        ({"startingOffsets": '{"0": true}'}, True, "True is no offset"),
        ({"startingOffsets": "{}"}, True, "neither a word nor JSON"),
        ({"endingOffsets": "earliest"}, False, "a batch cannot end at the beginning"),
        ({"startingTimestamp": "noon"}, False, "option startingTimestamp: 'noon' is no time"),
        ({"minPartitions": "0"}, False, "option minPartitions: '0' is out of range"),
        ({"maxOffsetsPerTrigger": "many"}, True, "option maxOffsetsPerTrigger: 'many'"),
        ({"failOnDataLoss": "no"}, False, "option failOnDataLoss: 'no' is neither"),
        ({"includeHeaders": "1"}, False, "option includeHeaders: '1' is neither"),
        ({"columns": "topic,,key"}, False, "option columns: 'topic,,key' has an empty name"),
        ({"columns": ""}, True, "option columns: '' has an empty name"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], streaming: bool, problem: str) -> None:  # noqa: FBT001
    with pytest.raises(InvalidOption, match=problem) as caught:
        read(streaming=streaming, **options)
    assert "allowed: " in str(caught.value)


def test_somewhere_must_be_named() -> None:
    with pytest.raises(InvalidOption, match="endpoint: it is missing; allowed: path"):
        read_options({}, streaming=False)
    with pytest.raises(InvalidOption, match="CREATE TABLE … USING: use CREATE TEMPORARY VIEW"):
        read_options({}, streaming=False)
    with pytest.raises(InvalidOption, match="'host' is no address"):
        read_options({"endpoint": "host"}, streaming=False)


def test_a_sink_takes_a_writer_with_its_epoch() -> None:
    where = {"endpoint": "host:1"}
    assert write_options(where, streaming=False).writer is None
    found = write_options({**where, "writer": "w", "epoch": "3", "topic": "t"}, streaming=False)
    assert (found.writer, found.epoch, found.topic) == ("w", 3, "t")
    ours = {"checkpointLocation": "/c", "queryName": "q", "writer": "w"}
    assert write_options({**where, **ours}, streaming=True).writer == "w"
    for options, streaming, problem in (
        ({"writer": "w"}, False, "option epoch: it is missing beside writer"),
        ({"epoch": "1"}, False, "option writer: it is missing beside epoch"),
        ({"epoch": "1"}, True, "option epoch: it is not for a sink of a stream"),
        ({"path": "/data"}, False, "option path: it is not for a sink"),
        ({"writer": "a/b"}, True, "option writer: 'a/b'"),
    ):
        with pytest.raises(InvalidOption, match=problem):
            write_options({**where, **options}, streaming=streaming)
    with pytest.raises(InvalidOption, match="endpoint: it is missing"):
        write_options({}, streaming=True)


def test_a_schema_is_of_columns_that_there_are() -> None:
    source = PenstockDataSource({"path": "/data"})
    assert len(source.schema()) == 15
    assert "headers" not in PenstockDataSource({"includeHeaders": "false"}).schema().fieldNames()
    some = PenstockDataSource({"path": "/data", "columns": "value, topic"})
    assert some.schema().names == ["value", "topic"]
    with pytest.raises(InvalidOption, match="option columns: there is a schema too"):
        some.reader(StructType([StructField("topic", StringType())]))
    with pytest.raises(InvalidSchema, match="column size: there is no such column"):
        PenstockDataSource({"path": "/data", "columns": "size"}).schema()
    check_columns(StructType([StructField("topic", StringType())]))
    for name, problem in (("offset", "it is bigint, not string"), ("x", "there is no such column")):
        with pytest.raises(InvalidSchema, match=f"column {name}: {problem}; allowed: key binary"):
            check_columns(StructType([StructField(name, StringType())]))


def test_a_log_on_kafka_is_named_by_options_or_a_url() -> None:
    given = {"Kafka.Bootstrap.Servers": "a:9092, b:9092", "kafkaTopic": "plant", "group": "g"}
    found = read_options({**given, "kafka.security.protocol": "SSL"}, streaming=True).where
    assert found == KafkaPlace("a:9092, b:9092", "plant", (("security.protocol", "SSL"),))
    assert found.options.location == "kafka://a:9092, b:9092/plant"
    url = read_options({"path": "kafka://a:9092,b:9092"}, streaming=False).where
    assert url == KafkaPlace("a:9092,b:9092", "penstock")
    secret = {"path": "kafka://a:9092/t", "kafka.sasl.password": "hush"}
    assert "hush" not in repr(read_options(secret, streaming=False))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"endpoint": "grpc://h:1"}, "option endpoint: Kafka is read without a broker"),
        ({"token": "t"}, "option token: Kafka is read without a broker"),
        ({"kafkaTopic": "a/b"}, "option kafkaTopic: 'a/b' is no topic of Kafka"),
        ({"kafka.bootstrap.servers": "h"}, "option kafka.bootstrap.servers: 'h' is no address"),
        ({"kafka.group.id": "g"}, "option kafka.group.id: .* is the option group"),
        ({"kafka.isolation.level": "x"}, "kafka.isolation.level: Penstock sets it itself"),
        ({"path": "/data"}, "option kafka.bootstrap.servers: there is path too"),
        ({"path": "kafka://h:1"}, "option kafka.bootstrap.servers: there is path too"),
        ({"kafkaConsumer.pollTimeoutMs": "1"}, "an option of Spark's Kafka source, and calls are"),
    ],
)
def test_an_option_that_a_log_on_kafka_does_not_have_is_an_error(
    given: dict[str, str], problem: str
) -> None:
    with pytest.raises(InvalidOption, match=problem):
        read_options({"kafka.bootstrap.servers": "h:1", **given}, streaming=True)


@pytest.mark.parametrize("url", ["kafka://", "kafka://h", "kafka://h:1/t?node=1", "kafka://u@h:1"])
def test_a_url_of_kafka_has_addresses_and_a_topic_only(url: str) -> None:
    with pytest.raises(InvalidOption, match=r"option path: .*kafka://host:port/topic"):
        read_options({"path": url}, streaming=False)
