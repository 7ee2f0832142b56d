"""Messages of other nodes that a node could not read: subscribers read them from the log.

There they come, or each reader gets an error that names the lost messages.
"""

import dataclasses
import errno
import secrets
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

from penstock.errors import (
    LogDamaged,
    LogError,
    LogFormatTooNew,
    OffsetBelowHorizon,
    OffsetPastEnd,
)
from penstock.limits import KAFKA_TAKE_ATTEMPTS_MAX
from penstock.ports import Fetched, Follower, LogReader, Stored
from penstock.storage.arrow.format import segment
from penstock.storage.kafka import committer, follower
from penstock.storage.kafka.client import RecordReader
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.kafka.partition import NotAsked
from penstock.storage.kafka.records import REFERENCE_HEADER, BadRecord, Heads
from tests.support.written_log import START_US
from tests.unit.storage.test_kafka import flipped
from tests.unit.storage.test_port import Attached, attached, run
from tools.kafka import KafkaBroker


@pytest.fixture
def options(kafka: KafkaBroker) -> KafkaOptions:
    """A topic of its own."""
    return KafkaOptions(kafka.address, f"unread-{secrets.token_hex(4)}", commit_seconds_max=3.0)


def other(options: KafkaOptions, node: int = 1) -> KafkaOptions:
    return dataclasses.replace(options, node=node)


class Target:
    """A follower that remembers the messages of each partition, and those that were left out."""

    def __init__(self) -> None:
        self.offsets: dict[int, list[int]] = {}
        self.failed: list[tuple[int, int]] = []
        self.readers: dict[int, LogReader] = {}

    def partition_found(self, number: int, reader: LogReader, _next_offset: int) -> None:
        self.offsets.setdefault(number, [])
        self.readers[number] = reader

    def messages_read(self, number: int, stored: Stored) -> None:
        self.offsets[number] += range(stored.base_offset, stored.base_offset + stored.count)

    def messages_failed(self, number: int, end: int) -> None:
        self.failed.append((number, end))

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_: None

    async def fetch(self, used: Attached, number: int, offset: int) -> Fetched | LogError:
        """Read from the log, as a session that is behind."""
        found: list[Fetched | LogError] = []
        self.readers[number].fetch(offset, found.append)
        await used.until(lambda: found)
        return found[0]


def remove(options: KafkaOptions, node: int, before: int) -> None:
    """Remove records of the first topic, as retention does."""
    admin = AdminClient({"bootstrap.servers": options.bootstrap})
    for future in admin.delete_records([TopicPartition(options.topic, node, before)]).values():
        future.result(timeout=30)


def test_live_subscribers_are_told_of_a_record_that_cannot_be_read(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        node, target = KafkaLog(options), Target()
        async with attached(KafkaLog(other(options))) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            await writer.put("a")
            with monkeypatch.context() as patch:
                patch.setattr(committer, "encode_row_group", flipped(committer.encode_row_group))
                await writer.put("b", "b")
            await writer.put("c")
            await used.until(lambda: target.offsets[1] == [0, 3])
            assert target.failed[-1] == (1, 3)
            found = await target.fetch(used, 1, 1)
            assert isinstance(found, LogDamaged)
            assert (found.offset, found.resumes_at) == (1, 3)

    run(use())


def test_live_subscribers_are_told_of_messages_that_retention_has_removed(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower is behind, and Kafka removes messages that it has not read yet."""
    stands, stood, fails = threading.Event(), threading.Event(), threading.Event()
    read = follower.PartitionTail.next

    def standing(self: Any) -> list[Message]:
        if fails.is_set():
            fails.clear()
            stands.clear()
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        if stands.is_set():
            stood.set()
            return []
        return read(self)

    monkeypatch.setattr(follower.PartitionTail, "next", standing)
    monkeypatch.setattr(follower, "KAFKA_FOLLOW_RETRY_SECONDS", 0.05)

    async def use() -> None:
        node, target = KafkaLog(options), Target()
        async with attached(KafkaLog(other(options))) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            await writer.put("a")
            await used.until(lambda: target.offsets[1] == [0])
            stands.set()
            await used.until(stood.is_set)
            for _ in range(3):
                await writer.put("b")
            place = writer.storage._own.place_at(3)  # type: ignore[attr-defined]
            remove(options, 1, place)
            fails.set()  # the next consumer has no records that are removed
            await used.until(lambda: target.offsets[1] == [0, 3])
            assert target.failed[-1] == (1, 3)
            found = await target.fetch(used, 1, 1)
            assert isinstance(found, OffsetBelowHorizon)
            assert found.horizon == 3

    run(use())


# --- Later versions -------------------------------------------------------------------------------


def test_records_of_a_later_version_hold_up_no_other_partition(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        node, target = KafkaLog(options), Target()
        async with attached(KafkaLog(other(options))) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            with monkeypatch.context() as patch:
                patch.setattr(segment, "FORMAT", segment.FORMAT + 1)
                newer = KafkaLog(other(options, 2))
            with capture_logs() as events:
                async with attached(newer) as late:
                    await late.put("a")
                    await late.put("b")
                    await writer.put("c")
                    await used.until(lambda: target.offsets[1] == [0])
                    places = node._follower._places
                    await used.until(lambda: places.get(2, 0) > 2)  # both records are passed
                    await used.until(lambda: 2 in target.offsets)
            assert len(unreadable(events)) == 2
            assert f"log format {segment.FORMAT + 1}" in unreadable(events)[0]
            assert target.offsets[2] == []
            assert node._follower.status.replaced == 0
            again, started = KafkaLog(other(options, 3)), Target()
            async with attached(again) as last:
                again.follow(cast("Follower", started))
                await writer.put("d")
                await last.until(lambda: started.offsets[1] == [1])
        with pytest.raises(LogFormatTooNew):  # it would write its messages in their place
            KafkaLog(other(options, 2))

    run(use())


def unreadable(events: list[Any]) -> list[str]:
    """The reasons of records that cannot be read."""
    return [each["error"] for each in events if each["event"] == "record cannot be read"]


class FormMessage:
    """A record of Kafka with a reference of some format."""

    def __init__(self, form: bytes, number: int) -> None:
        self._form = form
        self._number = number

    def headers(self) -> list[tuple[str, bytes]]:
        return [(REFERENCE_HEADER, self._form)]

    def value(self) -> bytes:
        return b"{}"

    def offset(self) -> int:
        return 0

    def partition(self) -> int:
        return self._number


@pytest.mark.parametrize(
    ("form", "number", "expected"),
    [
        (b"2", 1, BadRecord),
        (b"2", 0, LogFormatTooNew),
        (b"x", 0, BadRecord),
        (b"9" * 5000, 0, BadRecord),
    ],
)
def test_a_reference_of_a_later_version_is_passed_over_in_partitions_of_others_only(
    form: bytes, number: int, expected: type[Exception]
) -> None:
    heads = Heads(0, 0, lambda _: None, passes_newer=True)
    with pytest.raises(expected):
        heads.read(cast("Message", FormMessage(form, number)))
    if expected is LogFormatTooNew:
        with pytest.raises(LogFormatTooNew):  # a reader does not take it for damage
            Heads(0, 0, lambda _: None).read(cast("Message", FormMessage(form, 7)))


# --- Reads for sessions ---------------------------------------------------------------------------


def test_a_read_that_fails_unexpectedly_is_tried_again_and_then_one_row_group_is_passed_over(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        node = KafkaLog(options)
        async with attached(node) as used:
            await used.put("a", "a")
            await used.put("b")
            find = node._reader._find
            failures: list[Exception] = []

            def failing(offset: int, topics: Any) -> Fetched:
                if offset == 0 and failures:
                    raise failures.pop()
                return find(offset, topics)

            monkeypatch.setattr(node._reader, "_find", failing)
            failures += [RuntimeError("can't start new thread")] * 2
            assert isinstance(await used.fetch(0), OffsetPastEnd)
            assert isinstance(await used.fetch(0), OffsetPastEnd)
            assert isinstance(await used.fetch(0), Fetched)
            failures += [IndexError("a bug")] * 10
            for _ in range(KAFKA_TAKE_ATTEMPTS_MAX - 1):
                assert isinstance(await used.fetch(0), OffsetPastEnd)
            found = await used.fetch(0)
            assert isinstance(found, LogDamaged)
            assert (found.offset, found.resumes_at) == (0, 2)
            assert isinstance(await used.fetch(2), Fetched)
            failures[:] = [MemoryError()] * 10
            while failures:
                assert isinstance(await used.fetch(0), OffsetPastEnd)

    run(use())


def test_a_read_that_fails_wherever_it_begins_passes_over_nothing(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        node = KafkaLog(options)
        async with attached(node) as used:
            await used.put("a")

            def failing(*_: object) -> None:
                raise IndexError("a bug")

            with monkeypatch.context() as patch:
                patch.setattr(node._own, "find_record", failing)
                for _ in range(5):
                    assert isinstance(await used.fetch(0), OffsetPastEnd)
            assert isinstance(await used.fetch(0), Fetched)

    run(use())


def test_a_time_that_kafka_does_not_answer_is_to_be_asked_for_again(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        node = KafkaLog(options)
        async with attached(node) as used:
            await used.put("a")
            found: list[int | LogError] = []

            async def find() -> int | LogError:
                found.clear()
                node.find_time(START_US, found.append)
                await used.until(lambda: found)
                return found[0]

            for error, events in (
                (OSError(errno.EIO, "no answer"), ["kafka not read"]),
                (NotAsked(errno.EIO, "asked a moment ago"), []),
            ):
                with monkeypatch.context() as patch, capture_logs() as logged:
                    patch.setattr(RecordReader, "at_time", raising(error))
                    assert isinstance(await find(), OffsetPastEnd)
                assert [each["event"] for each in logged] == events
            with monkeypatch.context() as patch:
                patch.setattr(RecordReader, "at_time", raising(IndexError("a bug")))
                assert isinstance(await find(), LogDamaged)
            assert await find() == 0

    run(use())


def raising(error: Exception) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise error

    return call


# --- Errors of the consumer -----------------------------------------------------------------------


class ErrorMessage:
    """What a consumer returns instead of a record."""

    def __init__(self, topic: str, number: int, code: int) -> None:
        self._place = topic, number
        self._code = code

    def error(self) -> KafkaError:
        return KafkaError(self._code)

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("code", "replaced"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, 1),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, 1),
        (KafkaError._TRANSPORT, 0),
    ],
)
def test_a_consumer_with_an_error_that_stays_is_replaced(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch, code: int, replaced: int
) -> None:
    monkeypatch.setattr(follower, "KAFKA_FOLLOW_RETRY_SECONDS", 0.05)
    errors: list[ErrorMessage] = []
    read = follower.PartitionTail.next

    def failing(self: Any) -> list[Any]:
        return [errors.pop()] if errors else read(self)

    monkeypatch.setattr(follower.PartitionTail, "next", failing)

    async def use() -> None:
        node, target = KafkaLog(options), Target()
        async with attached(KafkaLog(other(options))) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            await writer.put("a")
            await used.until(lambda: target.offsets[1] == [0])
            errors.append(ErrorMessage(options.topic, 1, code))
            await used.until(lambda: not errors)
            await writer.put("b")
            await used.until(lambda: target.offsets[1] == [0, 1])
            assert node._follower.status.replaced == replaced
            assert not target.failed

    run(use())


def test_a_state_topic_that_was_truncated_is_read_again_from_its_start(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unclean election of a leader may lose its last records."""
    monkeypatch.setattr(follower, "KAFKA_STILL_SECONDS", 1000.0)

    class Topics(Target):
        created: list[str] = []  # noqa: RUF012

        def topic_created(self, topic: Any) -> None:
            self.created.append(topic.name)

    async def use() -> None:
        node, target = KafkaLog(options), Topics()
        async with attached(KafkaLog(other(options))) as writer, attached(node) as used:
            node._state_place = 1_000_000
            with capture_logs() as events:
                node.follow(cast("Follower", target))
                receipt = writer.storage.add_topic("empty", b"")
                await writer.storage.flush()
                await writer.safe(receipt)
                await used.until(lambda: "empty" in target.created)
            (overtaken,) = [each for each in events if each["event"] == "partition overtaken"]
            assert overtaken["partition"] == -1

    run(use())
