"""Messages of other nodes are delivered though librdkafka hangs, or Kafka fails in between.

librdkafka ends a client without a time limit, and a call may ignore its own. Consumers of librdkafka
are wrapped here, so that they do that.
"""

import asyncio
import dataclasses
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from penstock.core.answers import is_safe
from penstock.ports import Follower, LogReader, Stored
from penstock.storage.kafka import follower, log, reading_thread, state
from penstock.storage.kafka.client import Connection, Consumers, RecordsRemoved
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.kafka.partition import KafkaPartition
from penstock.storage.kafka.state import StateTopic
from tests.unit.storage.test_port import attached, run
from tools.kafka import KafkaBroker

HANG_SECONDS = 1.0


@pytest.fixture
def options(kafka: KafkaBroker) -> KafkaOptions:
    """A topic of its own."""
    return KafkaOptions(kafka.address, f"follow-{secrets.token_hex(4)}", commit_seconds_max=3.0)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Ends what hangs, at the end of the test at the latest."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def hangs_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call hang after a second instead of 30."""
    monkeypatch.setattr(log, "KAFKA_WATCH_SECONDS", 0.05)
    monkeypatch.setattr(reading_thread, "KAFKA_WATCH_SECONDS", 0.05)
    monkeypatch.setattr(reading_thread, "KAFKA_HANG_SECONDS_MAX", HANG_SECONDS)


class Target:
    """A follower that remembers the messages, by partition."""

    def __init__(self) -> None:
        self.offsets: dict[int, list[int]] = {}
        self.failed: list[tuple[int, int]] = []

    def partition_found(self, number: int, _reader: LogReader, _next_offset: int) -> None:
        self.offsets.setdefault(number, [])

    def messages_read(self, number: int, stored: Stored) -> None:
        self.offsets[number] += range(stored.base_offset, stored.base_offset + stored.count)

    def messages_failed(self, number: int, end: int) -> None:
        self.failed.append((number, end))

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_: None


class WrappedConsumer:
    """A consumer of librdkafka; `before` is called with the name of a method before it."""

    def __init__(self, consumer: Consumer, before: Callable[[str], None]) -> None:
        self._consumer = consumer
        self._before = before

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._consumer, name)

        def call(*arguments: Any, **more: Any) -> Any:
            self._before(name)
            return found(*arguments, **more)

        return call


def wrap_tails(monkeypatch: pytest.MonkeyPatch, before: Callable[[str], None]) -> None:
    """Wrap all consumers that follow partitions."""
    make = Connection.consumer

    def consumer(self: Connection, *, fetch_wait_ms: int = 5) -> Consumer:
        made = make(self, fetch_wait_ms=fetch_wait_ms)
        follows = fetch_wait_ms > 5
        return cast("Consumer", WrappedConsumer(made, before)) if follows else made

    monkeypatch.setattr(Connection, "consumer", consumer)


def other(options: KafkaOptions, node: int = 1) -> KafkaOptions:
    return dataclasses.replace(options, node=node)


def test_a_consumer_that_never_closes_does_not_stop_delivery(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    fails = threading.Event()

    def before(name: str) -> None:
        if name == "close":
            released.wait()
        if name == "poll" and fails.is_set():
            fails.clear()
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))

    wrap_tails(monkeypatch, before)

    async def use() -> float:
        node, target = KafkaLog(options), Target()
        async with attached(KafkaLog(other(options))) as writer:
            async with attached(node) as used:
                node.follow(cast("Follower", target))
                await writer.put("a")
                await used.until(lambda: target.offsets[1] == [0])
                for count in (2, 3):
                    fails.set()
                    await used.until(lambda: not fails.is_set())
                    await writer.put("b")
                    await used.until(lambda count=count: target.offsets[1] == [*range(count)])
                following = node.status().following
                assert following is not None
                assert following.replaced == 2
                started = time.monotonic()
            return time.monotonic() - started

    assert run(use()) < 20


@pytest.mark.usefixtures("hangs_soon")
@pytest.mark.parametrize("call", ["poll", "assign"])
def test_a_call_that_does_not_return_is_left_to_its_thread_and_another_one_goes_on(
    options: KafkaOptions,
    monkeypatch: pytest.MonkeyPatch,
    released: threading.Event,
    call: str,
) -> None:
    hangs, fails, returned = threading.Event(), threading.Event(), threading.Event()

    def before(name: str) -> None:
        if name == "poll" and fails.is_set():
            fails.clear()
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        if name == call and hangs.is_set():
            hangs.clear()
            released.wait()
            returned.set()

    wrap_tails(monkeypatch, before)

    async def use() -> None:
        node, target = KafkaLog(options), Target()
        async with attached(KafkaLog(other(options))) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            await writer.put("a")
            await used.until(lambda: target.offsets[1] == [0])
            hangs.set()
            if call == "assign":
                fails.set()  # another consumer is assigned the partitions
            await used.until(lambda: not hangs.is_set())
            await writer.put("b")
            await used.until(lambda: target.offsets[1] == [0, 1])
            released.set()
            await used.until(returned.is_set)
            await writer.put("c")
            await used.until(lambda: 2 in target.offsets[1])
            assert target.offsets[1] == [0, 1, 2], "the first thread passes nothing any more"

    run(use())


def test_a_partition_that_is_not_read_for_long_is_a_problem(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is assigned, but whose records never come: another consumer does not help."""
    monkeypatch.setattr(follower, "KAFKA_STILL_SECONDS", 0.5)
    monkeypatch.setattr(follower, "KAFKA_FOLLOW_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(reading_thread, "KAFKA_UNFOLLOWED_SECONDS_MAX", 2.0)
    stands = threading.Event()
    assign = follower.PartitionTail.assign

    def assign_others(self: Any, places: Any) -> None:
        stopped = (options.topic, 1) if stands.is_set() else None
        assign(self, [each for each in places if each[:2] != stopped])

    monkeypatch.setattr(follower.PartitionTail, "assign", assign_others)

    async def use() -> None:
        node, target = KafkaLog(options), Target()
        async with attached(KafkaLog(other(options))) as writer, attached(node) as used:
            stands.set()
            node.follow(cast("Follower", target))
            await writer.put("a")
            await used.until(lambda: node.follow_problem)
            expected = "partition 1: Kafka: no records of partitions [1], though it has some"
            assert node.follow_problem == expected
            following = node.status().following
            assert following is not None
            assert following.problem == expected
            assert following.late == {-1: False, 1: True}
            assert node.problem is None
            stands.clear()
            await used.until(lambda: target.offsets[1] == [0])
            await used.until(lambda: node.follow_problem is None)

    run(use())


@pytest.mark.usefixtures("hangs_soon")
def test_a_node_that_is_busy_keeps_its_reader(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread waits for the event loop, not for librdkafka."""
    monkeypatch.setattr(follower, "KAFKA_FOLLOW_BYTES_MAX", 1)

    async def use() -> None:
        node, target = KafkaLog(options), Target()
        async with attached(KafkaLog(other(options))) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            follows = node._follower
            drain = follows._drain
            waiting: list[Callable[[], None]] = []
            monkeypatch.setattr(follows, "_drain", lambda: waiting.append(drain))
            for _ in range(3):
                await writer.put("a")
            await used.until(lambda: waiting)
            steps = follows._thread._steps
            ends = time.monotonic() + 2 * HANG_SECONDS
            await used.until(lambda: time.monotonic() > ends)
            assert follows._thread._steps > steps
            assert follows.status.replaced == 0
            assert node.follow_problem is None
            monkeypatch.setattr(follows, "_drain", drain)
            waiting[0]()
            await used.until(lambda: target.offsets[1] == [0, 1, 2])

    run(use())


def test_a_new_partition_is_followed_though_the_next_one_cannot_be_read_yet(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, failures = KafkaPartition.load_bounds, [1]

    def load_bounds(self: KafkaPartition, *, end_min: int = 0) -> int:
        if self.number == 2 and threading.current_thread().name == "penstock-follow" and failures:
            failures.clear()
            raise OSError("Kafka: no answer for 10 seconds")
        return load(self, end_min=end_min)

    monkeypatch.setattr(KafkaPartition, "load_bounds", load_bounds)

    async def use() -> None:
        node, target = KafkaLog(options), Target()
        async with attached(node) as used:
            node.follow(cast("Follower", target))
            async with attached(KafkaLog(other(options, 2))) as last:
                await used.until(lambda: not failures)
                async with attached(KafkaLog(other(options))) as first:
                    await first.put("a")
                    await last.put("b")
                    await used.until(lambda: target.offsets == {1: [0], 2: [0]})

    run(use())


def test_a_record_that_cannot_be_taken_does_not_stop_those_behind_it(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "KAFKA_FOLLOW_RETRY_SECONDS", 0.05)
    names = follower.row_group_topics
    attempts = 0

    def topics(data: bytes, row_group: Any) -> Any:
        nonlocal attempts
        found = names(data, row_group)
        if "bad" in found:
            attempts += 1
            raise IndexError("a bug")
        return found

    monkeypatch.setattr(follower, "row_group_topics", topics)

    async def use() -> None:
        node, target = KafkaLog(options), Target()
        async with attached(KafkaLog(other(options))) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            for topic in ("a", "bad", "c"):
                await writer.put(topic)
            await used.until(lambda: target.offsets[1] == [0, 2])
            assert attempts == 3
            assert target.failed[0] == (1, 2), "sessions read it from the log"

    run(use())


def test_a_record_that_cannot_be_read_and_one_that_fails_later_are_left_to_the_log(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "KAFKA_FOLLOW_RETRY_SECONDS", 0.05)

    class Failing(Target):
        def messages_read(self, number: int, stored: Stored) -> None:
            if stored.base_offset == 3:
                raise IndexError("a bug")
            super().messages_read(number, stored)

    async def use() -> None:
        node, target = KafkaLog(options), Failing()
        async with attached(KafkaLog(other(options))) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            await writer.put("a")
            await used.until(lambda: target.offsets[1] == [0])
            read = node._heads.read
            fails = [None] * 3

            def reading(message: Message) -> Any:
                if fails and threading.current_thread().name == "penstock-follow":
                    fails.pop()
                    raise IndexError("a bug")
                return read(message)

            monkeypatch.setattr(node._heads, "read", reading)
            for _ in range(4):
                await writer.put("b")
            await used.until(lambda: target.offsets[1] == [0, 2, 4])
            assert [each for each in target.failed if each[1] > 1] == [(1, 2), (1, 4)]

    run(use())


def test_topics_are_learned_though_the_consumer_no_longer_gets_the_state_topic(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "KAFKA_STILL_SECONDS", 0.2)
    tails: list[Any] = []
    assign = follower.PartitionTail.assign

    def first_without_state(self: Any, places: Any) -> None:
        if not tails or self is tails[0]:
            tails[:] = [self]
            places = [each for each in places if each[0] != options.state_topic]
        assign(self, places)

    monkeypatch.setattr(follower.PartitionTail, "assign", first_without_state)

    class Topics(Target):
        created: list[str] = []  # noqa: RUF012

        def topic_created(self, topic: Any) -> None:
            self.created.append(topic.name)

    async def use() -> None:
        node, target = KafkaLog(options), Topics()
        async with attached(KafkaLog(other(options))) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            receipt = writer.storage.add_topic("empty", b"")
            await writer.storage.flush()
            await writer.safe(receipt)
            await used.until(lambda: "empty" in target.created)

    run(use())


class NeverFreed:
    """A producer of Kafka that cannot commit, and does not end when it is freed."""

    def __init__(self, producer: Producer, released: threading.Event, freed_by: list[str]) -> None:
        self._producer = producer
        self._released = released
        self._freed_by = freed_by

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def commit_transaction(self, _seconds: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))

    def __del__(self) -> None:
        self._freed_by.append(threading.current_thread().name)
        self._released.wait()


def test_a_producer_that_does_not_end_is_replaced(
    options: KafkaOptions, released: threading.Event
) -> None:
    freed_by: list[str] = []

    async def use() -> None:
        node = KafkaLog(options)
        async with attached(node) as used:
            await used.put("a")
            committer = node._committer
            assert committer._producer is not None
            committer._producer = cast(
                "Producer", NeverFreed(committer._producer, released, freed_by)
            )
            failed = node.append(used.batch("b"), "x")
            await asyncio.wait_for(node.flush(), 10)
            assert not is_safe(failed, node)
            await used.until(lambda: freed_by)
            assert freed_by == ["penstock-close"]
            await used.until(lambda: node.problem is None)
            await used.put("c")
            assert [each["topic"] for each in used.rows()] == ["a", "c"]

    run(use())


# --- Readers --------------------------------------------------------------------------------------


class BrokenConsumer:
    """A consumer that has no answer."""

    def get_watermark_offsets(self, _: TopicPartition, *, timeout: float) -> tuple[int, int]:
        assert timeout > 0
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    def close(self) -> None:
        """Disconnect."""


def test_a_reader_that_failed_is_not_used_again() -> None:
    consumers = Consumers(Connection(KafkaOptions("127.0.0.1:1", "log")))
    with consumers.take() as broken:
        broken.close()
        broken._consumer = cast("Consumer", BrokenConsumer())
    with pytest.raises(OSError, match="authorization"), consumers.take() as again:
        again.bounds("log", 0)
    assert again is broken
    with consumers.take() as second:
        assert second is not broken
    with consumers.take() as third:
        assert third is second, "one that works is used again"
    consumers.close()


def test_the_state_topic_is_read_again_from_its_start_if_records_were_removed(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    KafkaLog(options).close()  # creates the topics, and writes who owns the partition
    read = StateTopic(Connection(options))
    reader = read._cursor.reader
    records = reader.records

    def removed(_topic: str, _partition: int, _offset: int, *, end: int) -> Iterator[Message]:
        assert end > 0
        monkeypatch.setattr(reader, "records", records)
        raise RecordsRemoved

    monkeypatch.setattr(reader, "records", removed)
    read.refresh()
    assert read.get("node/0") is None
    read.refresh()
    assert read.get("node/0") is not None
    read.close()


def test_a_reader_of_the_state_topic_that_hangs_is_replaced(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    monkeypatch.setattr(state, "KAFKA_STATE_SECONDS_MAX", 0.2)
    KafkaLog(options).close()  # creates the topics
    hangs, failures = threading.Event(), []
    read = StateTopic(Connection(options))
    cursor = read._cursor
    bounds = cursor.reader.bounds

    def hang(topic: str, partition: int) -> tuple[int, int]:
        hangs.set()
        released.wait()
        return bounds(topic, partition)

    monkeypatch.setattr(cursor.reader, "bounds", hang)

    def refresh() -> None:
        try:
            read.refresh()
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=refresh)
    thread.start()
    assert hangs.wait(10)
    with pytest.raises(OSError, match=r"no answer for 0\.2 seconds"):
        read.refresh()
    read.refresh()
    assert read.get("node/0") is not None
    released.set()
    thread.join(20)
    assert not thread.is_alive()
    assert not failures
    read.close()
