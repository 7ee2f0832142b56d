"""Messages of other nodes that a node could not read: subscribers read them from the log.

There they come, or each reader gets an error that names the lost messages.
"""

import dataclasses
import secrets
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.errors import LogDamaged, LogError, OffsetBelowHorizon
from penstock.ports import Fetched, Follower, LogReader, Stored
from penstock.storage.kafka import committer, follower
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
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
    stands, fails = threading.Event(), threading.Event()
    read = follower.PartitionTail.next

    def standing(self: Any) -> list[Message]:
        if fails.is_set():
            fails.clear()
            stands.clear()
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        return [] if stands.is_set() else read(self)

    monkeypatch.setattr(follower.PartitionTail, "next", standing)
    monkeypatch.setattr(follower, "KAFKA_FOLLOW_RETRY_SECONDS", 0.05)

    async def use() -> None:
        node, target = KafkaLog(options), Target()
        async with attached(KafkaLog(other(options))) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            await writer.put("a")
            await used.until(lambda: target.offsets[1] == [0])
            stands.set()
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
