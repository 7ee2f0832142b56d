"""Namespaces of a log on Kafka: their messages are in Kafka topics of their own, in one order."""

import asyncio
import contextlib
import dataclasses
import errno
import secrets
import time
import types
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from structlog.testing import capture_logs

from penstock._kernels import rheos2 as kernel
from penstock._kernels.batch import Batch, Sender
from penstock._kernels.topics import TopicTable
from penstock.core.answers import is_safe
from penstock.errors import (
    KafkaUnusable,
    LogDamaged,
    LogReplaced,
    OffsetBelowHorizon,
    OffsetPastEnd,
)
from penstock.limits import KAFKA_NAMESPACE_BYTES_MIN
from penstock.ports import Fetched, Follower, LogReader, PartitionRange, Stored, new_topic_filter
from penstock.ports.selection import Selection
from penstock.storage.kafka import (
    committer,
    followed_references,
    housekeeping,
    lost_references,
    partition,
)
from penstock.storage.kafka.client import Connection, RecordReader, RecordsRemoved
from penstock.storage.kafka.followed_references import FollowedReferences, PassedReferences
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.log_reader import KafkaLogReader
from penstock.storage.kafka.moving import import_log
from penstock.storage.kafka.namespace_reader import NamespaceReader
from penstock.storage.kafka.namespaces import Namespaces
from penstock.storage.kafka.options import KafkaOptions, KafkaReadOptions
from penstock.storage.kafka.partition import KafkaPartition
from penstock.storage.kafka.range_reader import RangeReader
from penstock.storage.kafka.records import BadRecord, Heads, Reference, ReferenceRecord
from penstock.storage.kafka.state import StateTopic
from penstock.storage.kafka.transaction import Transaction
from penstock.wire import rheos2
from penstock.wire.rheos import OpCode
from tests.support.written_log import START_US
from tests.unit.storage.test_kafka import flipped
from tests.unit.storage.test_port import Attached, attached, run
from tools.kafka import KafkaBroker

LARGE = KAFKA_NAMESPACE_BYTES_MIN
"""A value that makes a row group of a namespace."""


@pytest.fixture
def options(kafka: KafkaBroker) -> KafkaOptions:
    """A topic of its own, and two namespaces."""
    topic = f"spaces-{secrets.token_hex(4)}"
    return KafkaOptions(
        kafka.address,
        topic,
        commit_seconds_max=5.0,
        namespaces={"plant-a/#": f"{topic}-a", "plant-b/+/x": f"{topic}-b"},
    )


def batch(used: Attached, *topics: str, size: int = LARGE) -> Batch:
    """A batch with one message of a size for each topic."""
    found = Batch()
    frames = b"".join(
        rheos2.encode(rheos2.Event(bytes(16), OpCode.PUBLISH, name.encode(), b"v" * size))
        for name in topics
    )
    for name in topics:
        used.topics.intern(name)
    assert kernel.scan(frames, 0, found, used.topics, Sender(bytes(16), 7)) == len(frames)
    found.timestamp_us = START_US
    return found


async def put(used: Attached, *topics: str, size: int = LARGE) -> None:
    """Append messages in a commit of their own."""
    receipt = used.storage.append(batch(used, *topics, size=size), "sender")
    await used.storage.flush()
    assert is_safe(receipt, used.storage)


def counts(options: KafkaOptions, node: int = 0) -> list[int]:
    """How many committed records the first topic and those of the namespaces have."""
    found = []
    for topic in (options.topic, *options.namespaces.values()):
        consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "group.id": "count",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(topic, node, 0)])
        number = 0
        while (message := consumer.poll(10)) is not None and message.error() is None:
            number += 1
        found.append(number)
        consumer.close()
    return found


def remove(options: KafkaOptions, topic: str, node: int, before: int) -> None:
    """Remove records of a Kafka topic, as retention does."""
    admin = AdminClient({"bootstrap.servers": options.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, node, before)]).values():
        future.result(timeout=30)


def topics_of(rows: list[dict[str, Any]]) -> list[str]:
    return [each["topic"] for each in rows]


MIXED = ["plant-a/1", "other", "plant-b/1/x", "plant-b/1/y", "plant-a/2", "plant-a"]


# --- Writing and reading --------------------------------------------------------------------------


def test_messages_of_namespaces_are_apart_and_all_are_read_in_one_order(
    options: KafkaOptions, tmp_path: Path
) -> None:
    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            for name in MIXED:
                await put(used, name)
            await put(used, "plant-a/small", size=1)
            assert counts(options) == [7, 3, 1]
            expected = [*MIXED, "plant-a/small"]
            assert topics_of(used.rows()) == expected
            assert [each["offset"] for each in used.rows()] == [*range(7)]
            assert topics_of(used.rows(selection=Selection(patterns=("plant-b/#",)))) == MIXED[2:4]
        async with attached(KafkaLog(options)) as again:  # nothing is in memory
            assert again.storage.next_offset == 7
            assert topics_of(again.rows()) == expected
            assert topics_of(again.rows(start=1, end=5)) == expected[1:5]
            for offset, name in enumerate(expected):
                found = await again.fetch(offset)
                assert isinstance(found, Fetched)
                assert [each.base_offset for each in found.groups] == [offset]
                assert again.storage.offset_at(0, START_US + 1) == 7
                assert name
            assert again.storage.offset_at(0, START_US) == 0
            await put(again, "plant-a/1")
            assert topics_of(again.rows()) == [*expected, "plant-a/1"]
        with KafkaLogReader(KafkaReadOptions(options.bootstrap, options.topic)) as reader:
            assert reader.refresh()[0] == (0, 8)
            span = PartitionRange(0, 0, 8)
            batches = reader.scanner.scan(span, Selection(), ["topic"])
            names = [row["topic"] for each in batches for row in each.to_pylist()]
            assert names == [*expected, "plant-a/1"]
        place = KafkaReadOptions(options.bootstrap, options.topic)
        moved = import_log(
            place, tmp_path, partition=0, damaged=pytest.fail, progress=lambda _: None
        )
        assert (moved.messages, moved.start, moved.end) == (8, 0, 8)

    run(use())


def test_runs_of_one_commit_are_split_where_it_pays(options: KafkaOptions) -> None:
    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            storage = used.storage
            for name in ("other", "plant-a/1", "plant-b/1/x", "plant-b/1/x", "plant-a/2"):
                storage.append(batch(used, name), "x")
            await storage.flush()
            assert counts(options) == [4, 2, 1]
            assert topics_of(used.rows()) == [
                "other", "plant-a/1", "plant-b/1/x", "plant-b/1/x", "plant-a/2",
            ]  # fmt: skip
            for name in ("plant-a/1", "other", "plant-b/1/x", "other"):
                storage.append(batch(used, name, size=1), "x")
            await storage.flush()
            assert counts(options) == [5, 2, 1]

    run(use())


def test_without_namespaces_a_node_reads_those_of_others(options: KafkaOptions) -> None:
    async def use() -> None:
        plain = dataclasses.replace(options, namespaces={})
        async with attached(KafkaLog(options)) as used:
            await put(used, "plant-a/1")
        async with attached(KafkaLog(plain)) as used:
            await put(used, "plant-a/1")
            assert counts(options) == [2, 1, 0]
            assert topics_of(used.rows()) == ["plant-a/1"] * 2

    run(use())


def test_a_fetch_for_other_topics_reads_no_namespace(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            for name in ("plant-a/1", "plant-b/1/x", "plant-a/1", "other", "plant-a/1"):
                await put(used, name)
        async with attached(KafkaLog(options)) as used:
            monkeypatch.setattr(partition, "NamespaceReader", None)
            monkeypatch.setattr(RecordReader, "at", None)
            found = await used.fetch(0, new_topic_filter(["other", "plant-b/2/x/y"]))
            assert isinstance(found, Fetched)
            assert ([each.base_offset for each in found.groups], found.end) == ([3], 4)
            found = await used.fetch(4, new_topic_filter(["other"]))
            assert found == Fetched((), 5)

    run(use())


def test_sessions_that_wait_for_a_namespace_do_not_hold_up_other_reads(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few threads read for all sessions; Kafka does not return a record of the namespace."""
    seconds = 0.3

    def hanging(*_: object, **_more: object) -> None:
        time.sleep(seconds)
        raise OSError(errno.EIO, "no answer")

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            for name in ("plant-a/1", "other"):
                await put(used, name)
        async with attached(KafkaLog(options)) as used:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(RecordReader, "at", hanging)
                started = time.monotonic()
                waiting = [asyncio.ensure_future(used.fetch(0)) for _ in range(20)]
                await asyncio.sleep(0)
                assert isinstance(await used.fetch(1), Fetched)
                assert time.monotonic() - started < 5 * seconds
                for each in asyncio.as_completed(waiting):
                    assert isinstance(await each, OffsetPastEnd)
            assert isinstance(await used.fetch(0), OffsetPastEnd), "it is asked again later"
            monkeypatch.setattr(partition, "time", types.SimpleNamespace(monotonic=lambda: 1e12))
            assert isinstance(await used.fetch(0), Fetched)

    run(use())


# --- Retention ------------------------------------------------------------------------------------


def test_removed_messages_of_a_namespace_are_below_the_horizon(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            for name in ("plant-a/1", "other", "plant-a/2", "other", "plant-a/3"):
                await put(used, name)
        # Each record of a namespace has the marker of its transaction behind it.
        remove(options, f"{options.topic}-a", 0, 3)
        async with attached(KafkaLog(options)) as used:
            assert used.storage.bounds()[0] == (3, 5)
            assert topics_of(used.rows()) == ["other", "plant-a/3"]
            assert isinstance(await used.fetch(2), OffsetBelowHorizon)
            await put(used, "other")
        with KafkaLogReader(KafkaReadOptions(options.bootstrap, options.topic)) as reader:
            assert reader.refresh()[0] == (3, 6)
            monkeypatch.setattr(StateTopic, "ends", lambda *_: {})
            remove(options, f"{options.topic}-a", 0, 5)
            assert reader.refresh()[0] == (3, 6)  # no record is left that would tell
            with pytest.raises(OffsetBelowHorizon) as raised:
                list(reader.scanner.partition(0).walk(3, 6))
            assert raised.value.horizon == 5
            assert reader.refresh()[0] == (5, 6)

    run(use())


def test_an_import_goes_on_behind_messages_of_a_namespace_that_were_removed(
    options: KafkaOptions, tmp_path: Path
) -> None:
    """No record of the namespace is left, so only the references tell of them."""

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            for name in ("other", "plant-a/1", "other"):
                await put(used, name)

    run(use())
    remove(options, f"{options.topic}-a", 0, 1)
    lost: list[tuple[int, int]] = []
    moved = import_log(
        KafkaReadOptions(options.bootstrap, options.topic),
        tmp_path,
        partition=0,
        damaged=lambda error: lost.append((error.offset, error.resumes_at)),
        progress=lambda _: None,
    )
    assert (moved.messages, moved.end) == (2, 3)
    assert lost == [(1, 2)]


def test_the_last_messages_of_a_namespace_that_were_removed_are_below_the_horizon(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left in its Kafka topic that would tell: the node that wrote them has."""
    topic = f"{options.topic}-a"

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            for name in ("plant-a/1", "other", "plant-a/2", "other"):
                await put(used, name)
        async with attached(KafkaLog(options)) as used:  # one that starts tells it too
            remove(options, topic, 0, 3)
            with KafkaLogReader(KafkaReadOptions(options.bootstrap, options.topic)) as reader:
                assert reader.refresh()[0] == (3, 4)
            assert topics_of(used.rows(start=3)) == ["other"]
        monkeypatch.setattr(housekeeping, "LOG_RETENTION_SECONDS", 0.2)
        async with attached(KafkaLog(options)) as used:
            assert used.storage.bounds()[0] == (3, 4)
            await put(used, "plant-a/3")
            assert used.storage.bounds()[0] == (3, 5)
            remove(options, topic, 0, 5)
            await used.until(lambda: used.storage.bounds()[0] == (5, 5))

    run(use())


def test_a_namespace_whose_kafka_topic_was_deleted_delays_nothing(options: KafkaOptions) -> None:
    """It may be deleted when retention has removed its messages."""

    async def use() -> None:
        plain = dataclasses.replace(options, namespaces={})
        reading = KafkaReadOptions(options.bootstrap, options.topic)
        async with attached(KafkaLog(options)) as used:
            for name in ("plant-a/1", "plant-b/1/x", "other"):
                await put(used, name)
        with KafkaLogReader(reading) as reader:
            async with attached(KafkaLog(plain)) as used:
                assert reader.refresh()[0] == (0, 3)
                admin = AdminClient({"bootstrap.servers": options.bootstrap})
                for future in admin.delete_topics([f"{options.topic}-a"]).values():
                    future.result(timeout=30)
                started = time.monotonic()
                await put(used, "other")
                await used.until(lambda: reader.refresh()[0].end == 4)  # Kafka shows it soon
                storage = cast("KafkaLog", used.storage)
                for _ in range(2):
                    storage._own.load_horizon()
                    storage._own.load_bounds()
                assert time.monotonic() - started < 8

    run(use())


class WithoutLeader:
    """A consumer of Kafka that gets no answer about some topics."""

    def __init__(self, consumer: Consumer, topics: Collection[str]) -> None:
        self._consumer = consumer
        self._topics = topics

    def get_watermark_offsets(self, place: TopicPartition, *, timeout: float) -> tuple[int, int]:
        if place.topic in self._topics:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return self._consumer.get_watermark_offsets(place, timeout=timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


def test_a_namespace_without_a_leader_does_not_stop_the_node(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its readers wait for it; commits, the horizon and readers of other topics do not."""
    for module in (lost_references, partition):
        monkeypatch.setattr(module, "KAFKA_REFERENCE_SECONDS_MAX", 0.3)
    monkeypatch.setattr(lost_references, "KAFKA_REFERENCE_AGAIN_SECONDS_MAX", 0.1)
    monkeypatch.setattr(housekeeping, "LOG_RETENTION_SECONDS", 0.2)
    silent: set[str] = set()
    make = Connection.consumer

    def consumer(self: Connection, *, fetch_wait_ms: int = 5) -> Consumer:
        return cast("Consumer", WithoutLeader(make(self, fetch_wait_ms=fetch_wait_ms), silent))

    monkeypatch.setattr(Connection, "consumer", consumer)

    async def use() -> None:
        topic = f"{options.topic}-a"
        node = KafkaLog(options)
        async with attached(node) as used:
            for name in ("other", "plant-b/1/x", "plant-a/1"):
                await put(used, name)
            silent.add(topic)
            with monkeypatch.context() as patch:
                patch.setattr(Transaction, "places", failing)
                receipt = used.storage.append(batch(used, "other"), "x")
                await used.storage.flush()
                assert not is_safe(receipt, used.storage)
            await used.until(lambda: used.storage.problem is None)
            await put(used, "other")
            remove(options, options.topic, 0, 1)
            await used.until(lambda: used.storage.bounds()[0].horizon == 1)
            with KafkaLogReader(KafkaReadOptions(options.bootstrap, options.topic)) as reader:
                assert reader.refresh()[0].horizon == 1
            remove(options, topic, 0, 1)
            silent.clear()
            await used.until(lambda: used.storage.bounds()[0].horizon == 3)

    def failing(_: Transaction) -> None:
        raise OSError(errno.EIO, "no answer")

    run(use())


# --- Tasks of Spark -------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [3, 4])
def test_a_task_looks_a_place_up_again_three_times(options: KafkaOptions, times: int) -> None:
    reading = KafkaReadOptions(options.bootstrap, options.topic)
    span = PartitionRange(0, 0, 2)

    async def use() -> int:
        node = KafkaLog(options)
        async with attached(node) as used:
            await used.put("a")
            await used.put("b")
        return node.log_id

    starts: list[int] = []
    with contextlib.closing(RangeReader(reading, log_id=run(use()), heads={})) as reader:
        read = reader._reader.records

        def failing(topic: str, number: int, place: int) -> Iterator[Message]:
            starts.append(place)
            if len(starts) <= times:
                raise RecordsRemoved
            return read(topic, number, place)

        reader._reader.records = failing  # type: ignore[method-assign]
        if times == 3:
            assert [each.base_offset for each in reader.records(span, 0)] == [0, 1]
        else:
            with pytest.raises(LogDamaged, match="Kafka does not return them"):
                list(reader.records(span, 0))
    assert len(starts) == 4


@pytest.mark.parametrize("kept", ["", "-a"])
def test_a_task_notices_a_new_log_though_it_wants_none_of_its_messages(
    options: KafkaOptions, kept: str
) -> None:
    """A reference does not name its log. The Kafka topic of the namespace may be that of before."""
    reading = KafkaReadOptions(options.bootstrap, options.topic)
    span = PartitionRange(0, 0, 3)

    async def use() -> int:
        node = KafkaLog(options)
        async with attached(node) as used:
            for _ in range(3):
                await put(used, "plant-a/1")
        return node.log_id

    def offsets(*, wanted: bool) -> list[int]:
        with contextlib.closing(RangeReader(reading, log_id=log_id, heads={})) as reader:
            return [each.base_offset for each in reader.records(span, 0, lambda _: wanted)]

    log_id = run(use())
    assert offsets(wanted=False) == []
    assert offsets(wanted=True) == [0, 1, 2]
    names = [options.topic, options.state_topic, *options.namespaces.values()]
    names = [each for each in names if not kept or not each.endswith(kept)]
    admin = AdminClient({"bootstrap.servers": options.bootstrap})
    for future in admin.delete_topics(names).values():
        future.result(timeout=30)
    while set(names) & set(admin.list_topics(timeout=30).topics):
        pass
    options = dataclasses.replace(options, namespaces={"plant-a/#": f"{options.topic}-c"})
    assert run(use()) != log_id
    for wanted in (False, True):
        with pytest.raises(LogReplaced):
            offsets(wanted=wanted)


# --- Kafka's topics -------------------------------------------------------------------------------


def test_topics_of_namespaces_are_created_like_the_first(options: KafkaOptions) -> None:
    admin = AdminClient({"bootstrap.servers": options.bootstrap})
    config = {"retention.ms": "86400000", "max.message.bytes": "5000000"}
    first = NewTopic(options.topic, 1, 1, config=config)
    state = NewTopic(options.state_topic, 1, 1, config={"cleanup.policy": "compact"})
    for future in admin.create_topics([first, state]).values():
        future.result(timeout=30)
    KafkaLog(dataclasses.replace(options, node=2)).close()
    from confluent_kafka.admin import ConfigResource  # noqa: PLC0415

    for topic in options.namespaces.values():
        assert len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == 3
        (future,) = admin.describe_configs([ConfigResource("topic", topic)]).values()
        found = future.result(timeout=30)
        assert {name: found[name].value for name in config} == config


def test_a_topic_of_a_namespace_that_is_compacted_is_refused(options: KafkaOptions) -> None:
    admin = AdminClient({"bootstrap.servers": options.bootstrap})
    topic = f"{options.topic}-b"
    wanted = NewTopic(topic, 1, 1, config={"cleanup.policy": "compact"})
    for future in admin.create_topics([wanted]).values():
        future.result(timeout=30)
    with pytest.raises(KafkaUnusable, match=f"{topic}' has cleanup.policy 'compact'"):
        KafkaLog(options)


def test_a_topic_of_a_namespace_that_belongs_to_another_log_is_refused(
    options: KafkaOptions,
) -> None:
    """Each record names the end of the one before it: two logs would mix these."""
    shared = f"{options.topic}-a"

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            await put(used, "plant-a/1")

    run(use())
    other = dataclasses.replace(options, topic=f"other-{options.topic}")
    for topic, node in ((shared, 0), (shared, 1), (options.topic, 0)):
        with pytest.raises(KafkaUnusable) as raised:
            KafkaLog(dataclasses.replace(other, node=node, namespaces={"plant-a/#": topic}))
        assert f"topic '{topic}' of a namespace has messages of another log" in str(raised.value)
        assert "give the namespace a Kafka topic that no other log uses" in str(raised.value)
    KafkaLog(dataclasses.replace(options, node=1)).close()
    run(use())
    # A log that was created anew is another one, also with the state of the one before.
    admin = AdminClient({"bootstrap.servers": options.bootstrap})
    for future in admin.delete_topics([options.topic]).values():
        future.result(timeout=30)
    while options.topic in admin.list_topics(timeout=30).topics:
        pass
    with pytest.raises(KafkaUnusable, match=f"topic '{shared}' of a namespace has messages of"):
        KafkaLog(options)


# --- Following ------------------------------------------------------------------------------------


class Target:
    """A follower that wants some patterns, and remembers offsets by partition."""

    def __init__(self) -> None:
        self.wanted: set[str] = set()
        self.patterns: list[str] = []
        self.offsets: list[int] = []
        self.passed: list[tuple[int, int]] = []
        self.order: list[int] = []

    def wants(self, pattern: str) -> bool:
        return pattern in self.wanted

    def pattern_found(self, pattern: str) -> None:
        self.patterns.append(pattern)

    def partition_found(self, _number: int, _reader: LogReader, _next_offset: int) -> None: ...

    def messages_read(self, _number: int, stored: Stored) -> None:
        self.offsets += range(stored.base_offset, stored.base_offset + stored.count)
        self.order.append(stored.base_offset)

    def messages_passed_over(
        self, _number: int, first: int, end: int, _patterns: Collection[str]
    ) -> None:
        self.passed.append((first, end))
        self.order.append(first)

    @property
    def end(self) -> int:
        return max([*(each[1] for each in self.passed), *(each + 1 for each in self.offsets), 0])

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_: None


def test_a_node_reads_only_the_namespaces_that_it_needs(options: KafkaOptions) -> None:
    async def use() -> None:
        target = Target()
        node = KafkaLog(options)
        other = KafkaLog(dataclasses.replace(options, node=1))
        async with attached(other) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            assert sorted(target.patterns) == ["plant-a/#", "plant-b/+/x"]
            target.wanted = {"plant-a/#"}
            names = ["plant-a/1", "plant-b/1/x", "plant-b/1/x", "other", "plant-a/2"]
            for name in names:
                await put(writer, name)
            await used.until(lambda: target.end == 5)
            assert target.offsets == [0, 3, 4]
            assert sum(end - first for first, end in target.passed) == 2
            assert target.order == sorted(target.order)
            following = node.status().following
            assert following is not None
            read = following.references
            assert (read.read, read.passed) == (2, 2)
            assert read.read_bytes > 2 * LARGE
            target.wanted = {"plant-b/+/x"}
            for name in names:
                await put(writer, name)
            await used.until(lambda: target.end == 10)
            assert target.offsets[3:] == [6, 7, 8]
            # The last messages are passed over, and the event loop hears of them soon.
            target.wanted = set()
            await put(writer, "plant-a/1")
            await used.until(lambda: target.end == 11)
            assert target.offsets[3:] == [6, 7, 8]
            assert {each.number: each.end for each in node.nodes()}[1] == 11

    run(use())


def test_a_record_that_was_removed_is_left_to_those_who_read_the_log(
    options: KafkaOptions,
) -> None:
    async def use() -> None:
        target = Target()
        target.wanted = {"plant-a/#"}
        async with attached(KafkaLog(dataclasses.replace(options, node=1))) as writer:
            await put(writer, "other")
            node = KafkaLog(options)
            async with attached(node) as used:
                state_seen = KafkaLog._discover

                def from_the_start(self: KafkaLog, *arguments: Any, **_more: Any) -> Iterator[Any]:
                    return state_seen(self, *arguments, at_end=False)

                for name in ("plant-a/1", "plant-a/1", "other"):
                    await put(writer, name)
                remove(options, f"{options.topic}-a", 1, 1)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(KafkaLog, "_discover", from_the_start)
                    node.follow(cast("Follower", target))
                await used.until(lambda: target.end == 4)
                assert (1, 2) in {(first, min(end, 2)) for first, end in target.passed}
                assert target.order == sorted(target.order)

    run(use())


def test_a_consumer_of_namespaces_that_failed_is_replaced(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it could not read comes from the log; later messages are read again."""
    monkeypatch.setattr(followed_references, "KAFKA_REFERENCE_SECONDS_MAX", 0.5)
    read = NamespaceReader._read
    fails = [2]

    def failing(self: NamespaceReader, wanted: tuple[str, int]) -> None:
        if fails[0] and self._waits_ms > 5:
            fails[0] -= 1
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        read(self, wanted)

    async def use() -> None:
        target = Target()
        target.wanted = {"plant-a/#"}
        node = KafkaLog(options)
        other = KafkaLog(dataclasses.replace(options, node=1))
        async with attached(other) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            monkeypatch.setattr(NamespaceReader, "_read", failing)
            for number in range(3):
                await put(writer, "plant-a/1")
                await used.until(lambda number=number: target.end == number + 1)
                await asyncio.sleep(1.1)
            assert target.passed == [(0, 1), (1, 2)]
            assert target.offsets == [2]

    run(use())


def test_a_damaged_row_group_of_a_namespace_is_told_and_left_to_those_who_read_the_log(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        target = Target()
        target.wanted = {"plant-a/#"}
        node = KafkaLog(options)
        other = KafkaLog(dataclasses.replace(options, node=1))
        async with attached(other) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            with capture_logs() as events:
                with monkeypatch.context() as patch:
                    encode = flipped(committer.encode_row_group)
                    patch.setattr(committer, "encode_row_group", encode)
                    await put(writer, "plant-a/1")
                await put(writer, "other")
                await used.until(lambda: target.end == 2)
            assert (target.passed, target.offsets) == ([(0, 1)], [1])
            (told,) = [each for each in events if each["log_level"] == "error"]
            assert told["event"] == "record cannot be read"
            assert (told["topic"], told["partition"]) == (options.topic, 1)

    run(use())


def test_a_report_of_one_partition_that_fails_does_not_lose_those_of_others() -> None:
    told: list[tuple[int, int, int]] = []

    def tell(number: int, first: int, end: int, _patterns: Collection[str]) -> None:
        if number == 1:
            raise IndexError("a bug")
        told.append((number, first, end))

    passed = PassedReferences(tell)
    record = ReferenceRecord(0, Reference(3, 2, 0, 0, "a/#", "names-a", 0))
    for number in range(3):
        passed.add(number, record)
    passed()
    assert told == [(0, 3, 5), (2, 3, 5)]


def test_namespaces_that_kafka_does_not_return_take_a_small_share_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One thread follows all partitions: others wait meanwhile."""
    now, waited = [0.0], [0.0]
    clock = types.SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(followed_references, "time", clock)

    class Hanging:
        def get(self, *_: object, seconds_max: float, step: object) -> None:  # noqa: ARG002
            now[0] += seconds_max
            waited[0] += seconds_max
            raise OSError(errno.EIO, "no answer")

    references = FollowedReferences(Heads(0, 0, lambda _: None), "kafka://", lambda: None)
    partitions = [cast("KafkaPartition", types.SimpleNamespace(number=each)) for each in range(8)]
    record = ReferenceRecord(0, Reference(0, 1, 0, 0, "a/#", "names-a", 0))
    while now[0] < 600:
        for each in partitions:
            assert references.read(each, cast("NamespaceReader", Hanging()), record) is None
        now[0] += 0.1
    assert waited[0] < 0.25 * now[0]


def test_a_record_whose_place_kafka_does_not_tell_is_not_acknowledged(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reference without a place could not be read by anyone."""
    noting = Transaction._noting
    untold = [1]

    def without_place(self: Transaction, places: dict[int, int], number: int) -> Any:
        noted = noting(self, places, number)
        if places is not self._apart or not untold:
            return noted
        untold.pop()
        untold_place = types.SimpleNamespace(offset=lambda: None)
        return lambda error, _: noted(error, cast("Message", untold_place))

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            await put(used, "plant-a/1")
            monkeypatch.setattr(Transaction, "_noting", without_place)
            receipt = used.storage.append(batch(used, "plant-a/2"), "x")
            await used.storage.flush()
            assert not is_safe(receipt, used.storage)
            await used.until(lambda: used.storage.problem is None)
            await put(used, "plant-a/3")
            assert topics_of(used.rows()) == ["plant-a/1", "plant-a/3"]
            assert counts(options) == [2, 2, 0]

    run(use())


def test_versions_that_know_no_references_do_not_take_them_for_row_groups(
    options: KafkaOptions,
) -> None:
    """They log the record, and readers report damage: `parse` is all that they have."""

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            await put(used, "plant-a/1")

    run(use())
    consumer = Consumer({"bootstrap.servers": options.bootstrap, "group.id": "old"})
    consumer.assign([TopicPartition(options.topic, 0, 0)])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    heads = Heads(0, 0, lambda _: None)
    assert isinstance(heads.read(message), ReferenceRecord)
    with pytest.raises(BadRecord, match="not a row group of Penstock"):
        heads.parse(message)


def test_patterns_are_tried_in_order() -> None:
    spaces = Namespaces({"a/b": "one", "a/#": "two", "#": "three"})
    assert spaces.topics == ["one", "two", "three"]
    assert [spaces.of_topic(name) for name in ("a/b", "a/c", "a", "b", "")] == [1, 2, 2, 3, 0]
    assert spaces.common([b"a/c", b"a"]) == ("a/#", "two")
    assert spaces.common([b"a/c", b"b"]) is None
    assert spaces.common([b"a/c", b""]) is None
    assert spaces.common([]) is None


def test_only_topics_that_are_used_are_compared_with_patterns() -> None:
    """A node may know a million topics when it starts."""
    compared: list[str] = []

    class Counting(Namespaces):
        def of_topic(self, name: str) -> int:
            compared.append(name)
            return super().of_topic(name)

    spaces = Counting({"a/#": "one", "b/#": "two"})
    topics = TopicTable()
    for name in ("c", "a/1", "a/2", "b/1", "d"):
        topics.intern(name)

    def of(*names: str) -> int:
        found = Batch()
        frames = b"".join(
            rheos2.encode(rheos2.Event(bytes(16), OpCode.PUBLISH, name.encode(), b"v"))
            for name in names
        )
        assert kernel.scan(frames, 0, found, topics, Sender(bytes(16), 7)) == len(frames)
        return spaces.of_batch(found, topics)

    assert of() == 0
    assert [of("a/1"), of("a/1", "a/2", "a/1"), of("c", "a/1")] == [1, 1, 0]
    assert sorted(compared) == ["a/1", "a/2", "c"]
    assert [of("a/1", "b/1"), of("a/1", "c"), of("a/2", "a/3")] == [0, 0, 1]
    assert [of("b/1"), of("b/1", "a/1", "b/1")] == [2, 0]
    assert sorted(compared) == ["a/1", "a/2", "a/3", "b/1", "c"]


def test_a_writer_that_is_replaced_in_a_transaction_leaves_no_reference(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        send = Transaction._send_reference
        lost: list[Exception] = []
        async with attached(KafkaLog(options, lost=lost.append)) as old:
            await put(old, "plant-a/1")
            newer: list[KafkaLog] = []

            def replaced(self: Transaction, *arguments: Any) -> None:
                if not newer:  # its record is in Kafka, its reference is not
                    newer.append(KafkaLog(options))
                send(self, *arguments)

            monkeypatch.setattr(Transaction, "_send_reference", replaced)
            receipt = old.storage.append(batch(old, "plant-a/2"), "x")
            await old.until(lambda: newer)
            async with attached(newer[0]) as new:
                await put(new, "plant-a/3", "plant-a/4")
                await asyncio.wait_for(old.storage.flush(), 30)
                assert not is_safe(receipt, old.storage)
                await old.until(lambda: lost)
                started = time.monotonic()
                assert topics_of(new.rows()) == ["plant-a/1", "plant-a/3", "plant-a/4"]
                assert time.monotonic() - started < 10
                assert counts(options) == [2, 2, 0]

    run(use())
