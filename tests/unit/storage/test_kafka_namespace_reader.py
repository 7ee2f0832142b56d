"""Records of namespaces are found by their places: read ahead, after a seek, and after removal."""

import contextlib
import secrets
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from penstock.errors import LogDamaged, OffsetBelowHorizon
from penstock.limits import KAFKA_NAMESPACE_AHEAD
from penstock.ports import Fetched, PartitionRange, new_topic_filter
from penstock.storage.kafka import namespace_reader, reader
from penstock.storage.kafka.client import Connection, RecordsRemoved
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.namespace_reader import NamespaceReader
from penstock.storage.kafka.options import KafkaOptions, KafkaReadOptions
from penstock.storage.kafka.range_reader import RangeReader
from tests.unit.storage.test_kafka_namespaces import LARGE, put, remove
from tests.unit.storage.test_kafka_unread import ErrorMessage
from tests.unit.storage.test_port import attached, run
from tools.kafka import KafkaBroker

SECONDS_MAX = 20.0


@pytest.fixture
def options(kafka: KafkaBroker) -> KafkaOptions:
    """A topic of its own, and two namespaces."""
    topic = f"places-{secrets.token_hex(4)}"
    return KafkaOptions(
        kafka.address,
        topic,
        commit_seconds_max=5.0,
        namespaces={"plant-a/#": f"{topic}-a", "plant-b/#": f"{topic}-b"},
    )


@pytest.fixture
def names(options: KafkaOptions) -> Iterator[NamespaceReader]:
    with contextlib.closing(NamespaceReader(Connection(options))) as found:
        yield found


def write(options: KafkaOptions, *topics: str) -> int:
    """Write a row group for each topic, each in a transaction of its own; return the log's id."""

    async def use() -> int:
        node = KafkaLog(options)
        async with attached(node) as used:
            for topic in topics:
                await put(used, topic)
        return node.log_id

    return run(use())


def place_of(number: int) -> int:
    """The place of a row group: each record has the marker of its transaction behind it."""
    return 2 * number


def test_records_of_other_namespaces_are_read_ahead_up_to_a_limit(
    options: KafkaOptions, names: NamespaceReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace_reader, "KAFKA_NAMESPACE_AHEAD_BYTES_MAX", 3 * LARGE)
    monkeypatch.setattr(namespace_reader, "_CONSUMED", 1)
    count = 12
    write(options, *["plant-a/1"] * count, *["plant-b/1"] * count)
    one, two = options.namespaces.values()

    def get(topic: str, number: int) -> int | None:
        return names.get(topic, 0, place_of(number), seconds_max=SECONDS_MAX).offset()

    pauses: list[str] = []
    consumer = names._consumer

    class Pausing:
        def __getattr__(self, name: str) -> object:
            return getattr(consumer, name)

        def pause(self, places: list[TopicPartition]) -> None:
            pauses.append(places[0].topic)
            consumer.pause(places)

    names._made = Pausing()  # type: ignore[assignment]
    assert get(one, 0) == 0
    for number in range(count):  # those of the first namespace come meanwhile
        assert get(two, number) == place_of(number)
    assert one in pauses
    ahead = names._ahead[one, 0]
    assert ahead.paused
    assert ahead.size < 6 * LARGE, "one record more than the limit, and what came with it"
    fetched = names.fetched
    for number in range(1, count):
        assert get(one, number) == place_of(number)
    assert not ahead.paused
    assert names._ahead[one, 0] is ahead, "it was read on, without a seek"
    assert names.fetched < fetched + count


def test_a_place_that_is_near_is_read_up_to_and_another_one_is_sought(
    options: KafkaOptions, names: NamespaceReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namespace_reader, "KAFKA_NAMESPACE_AHEAD", 4)
    monkeypatch.setattr(namespace_reader, "_CONSUMED", 1)
    write(options, *["plant-a/1"] * 40)
    topic = options.namespaces["plant-a/#"]
    assigned: list[int] = []
    assign = NamespaceReader._assign

    def counting(self: NamespaceReader) -> None:
        assigned.extend(ahead.next for ahead in self._ahead.values())
        assign(self)

    monkeypatch.setattr(NamespaceReader, "_assign", counting)
    for number in (0, 1, 30, 31, 2):
        place = place_of(number)
        assert names.get(topic, 0, place, seconds_max=SECONDS_MAX).offset() == place
    assert assigned == [0, place_of(30), place_of(2)]
    assert names.fetched < 40


def test_a_removed_record_is_an_error_and_later_ones_are_read(
    options: KafkaOptions, names: NamespaceReader
) -> None:
    write(options, *["plant-a/1"] * 6)
    topic = options.namespaces["plant-a/#"]
    remove(options, topic, 0, place_of(4))
    for number in (0, 3):
        with pytest.raises(RecordsRemoved):
            names.get(topic, 0, place_of(number), seconds_max=SECONDS_MAX)
    assert names.get(topic, 0, place_of(4), seconds_max=SECONDS_MAX).offset() == place_of(4)
    assert names.get(topic, 0, place_of(5), seconds_max=SECONDS_MAX).offset() == place_of(5)
    assert place_of(6) < KAFKA_NAMESPACE_AHEAD


def test_a_record_behind_removed_ones_is_read_though_the_reader_was_on_its_way_to_it(
    options: KafkaOptions, names: NamespaceReader
) -> None:
    write(options, *["plant-a/1"] * 3)
    topic = options.namespaces["plant-a/#"]
    assert names.get(topic, 0, 0, seconds_max=SECONDS_MAX).offset() == 0
    names.leave(topic, 0)
    remove(options, topic, 0, place_of(2))
    names._ahead[topic, 0] = namespace_reader._Ahead(1)  # it goes on where it was
    names._assign()
    assert names.get(topic, 0, place_of(2), seconds_max=SECONDS_MAX).offset() == place_of(2)


def test_a_namespace_that_kafka_refuses_is_an_error_for_its_own_readers_only(
    options: KafkaOptions, names: NamespaceReader
) -> None:
    write(options, "plant-a/1", "plant-b/1")
    one, two = options.namespaces.values()
    errors: list[ErrorMessage] = []
    consumer = names._consumer

    class Refused:
        def __getattr__(self, name: str) -> object:
            return getattr(consumer, name)

        def poll(self, seconds: float) -> object:
            return errors.pop() if errors else consumer.poll(seconds)

    names._made = Refused()  # type: ignore[assignment]
    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    names._ahead[two, 0] = namespace_reader._Ahead(0)
    errors.append(ErrorMessage(two, 0, refused))
    assert names.get(one, 0, 0, seconds_max=SECONDS_MAX).offset() == 0
    assert not errors
    errors.append(ErrorMessage(two, 0, refused))
    names.leave(two, 0)
    with pytest.raises(OSError, match="authorization"):
        names.get(two, 0, 0, seconds_max=SECONDS_MAX)
    assert names.get(two, 0, 0, seconds_max=SECONDS_MAX).offset() == 0, "with another consumer"


# --- Reads for sessions ---------------------------------------------------------------------------


def test_a_fetch_passes_over_some_references_and_the_next_one_continues(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "KAFKA_REFERENCES_PASSED_MAX", 3)
    write(options, *["plant-a/1"] * 9, "other")

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:  # nothing is in memory
            ends, position, wanted = [], 0, new_topic_filter(["other"])
            while True:
                found = await used.fetch(position, wanted)
                assert isinstance(found, Fetched)
                position = found.end
                ends.append(position)
                if found.groups:
                    break
            # The reference at the position, and three behind it.
            assert ends == [4, 8, 10]
            assert [each.base_offset for each in found.groups] == [9]

    run(use())


# --- Ranges ---------------------------------------------------------------------------------------


def offsets(options: KafkaOptions, log_id: int, span: PartitionRange, place: int = 0) -> list[int]:
    """The first offsets of the row groups of a range, as a task of Spark reads them."""
    reading = KafkaReadOptions(options.bootstrap, options.topic)
    with contextlib.closing(RangeReader(reading, log_id=log_id, heads={})) as found:
        return [each.base_offset for each in found.records(span, place)]


def test_a_range_whose_end_kafka_has_lost_is_damaged(options: KafkaOptions) -> None:
    log_id = write(options, "a", "b")
    with pytest.raises(LogDamaged, match="Kafka has lost the end of the partition") as raised:
        offsets(options, log_id, PartitionRange(0, 0, 5))
    assert (raised.value.offset, raised.value.resumes_at) == (2, 5)


def test_the_place_of_a_range_is_looked_up_again_after_removal(options: KafkaOptions) -> None:
    log_id = write(options, "a", "b", "c", "d")
    assert offsets(options, log_id, PartitionRange(0, 2, 4)) == [2, 3]
    consumer = Consumer({"bootstrap.servers": options.bootstrap, "group.id": "end"})
    end = consumer.get_watermark_offsets(TopicPartition(options.topic, 0))[1]
    consumer.close()
    # Each of the last two records has the marker of its transaction behind it.
    remove(options, options.topic, 0, end - 2 * 2)
    assert offsets(options, log_id, PartitionRange(0, 2, 4)) == [2, 3]
    with pytest.raises(OffsetBelowHorizon) as raised:
        offsets(options, log_id, PartitionRange(0, 1, 4))
    assert (raised.value.offset, raised.value.horizon) == (1, 2)
