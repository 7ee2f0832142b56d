"""A node that is killed or suspended in a transaction does not stop the others.

Until its transaction ends, Kafka does not show what others write to the state topic after it.
"""

import asyncio
import contextlib
import dataclasses
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final, cast

import pytest
from confluent_kafka import Producer

from penstock.core.answers import is_safe
from penstock.errors import GroupElsewhere, KafkaUnusable
from penstock.ports import Follower, GroupProgress, KeptSession, PartitionRange, Stored
from penstock.storage.kafka import follower
from penstock.storage.kafka.client import Connection
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.log_reader import KafkaLogReader
from penstock.storage.kafka.options import KafkaOptions, KafkaReadOptions
from penstock.storage.kafka.range_reader import RangeReader
from penstock.storage.kafka.state import StateTopic
from tests.unit.storage.test_port import attached, run
from tools.kafka import KafkaBroker


@pytest.fixture
def options(kafka: KafkaBroker) -> KafkaOptions:
    """A topic of its own."""
    return KafkaOptions(kafka.address, f"open-{secrets.token_hex(4)}", commit_seconds_max=3.0)


def other(options: KafkaOptions, node: int = 1) -> KafkaOptions:
    return dataclasses.replace(options, node=node)


class Target:
    """A follower that remembers offsets, by partition, and the names of topics."""

    def __init__(self) -> None:
        self.offsets: dict[int, list[int]] = {}
        self.topics: list[str] = []
        self.failed: list[tuple[int, int]] = []

    def messages_read(self, number: int, stored: Stored) -> None:
        found = range(stored.base_offset, stored.base_offset + stored.count)
        self.offsets.setdefault(number, []).extend(found)

    def messages_failed(self, number: int, end: int) -> None:
        self.failed.append((number, end))

    def topic_created(self, topic: Any) -> None:
        self.topics.append(topic.name)

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_: None


class OpenTransaction:
    """The transaction of a suspended node, which has changed the state in it."""

    def __init__(self, options: KafkaOptions) -> None:
        self._producer = Producer(
            {"bootstrap.servers": options.bootstrap, "transactional.id": f"{options.topic}-open"}
        )
        self._producer.init_transactions(30)
        self._producer.begin_transaction()
        self._producer.produce(options.state_topic, b"{}", b"topic/open", partition=0)
        assert self._producer.flush(30) == 0

    def abort(self) -> None:
        self._producer.abort_transaction(30)


def test_messages_of_a_node_that_starts_meanwhile_are_delivered(options: KafkaOptions) -> None:
    """Their records name a head that Kafka does not show yet."""

    async def use() -> None:
        node, target = KafkaLog(options), Target()
        async with attached(node) as used:
            node.follow(cast("Follower", target))
            suspended = OpenTransaction(options)
            late = await asyncio.to_thread(KafkaLog, other(options, 2))
            async with attached(late) as writer:
                await writer.put("a")
                await used.until(lambda: target.offsets.get(2) == [0])
                assert not target.failed
            suspended.abort()

    run(use())


def test_readers_read_messages_of_a_node_that_starts_meanwhile(options: KafkaOptions) -> None:
    async def use() -> None:
        KafkaLog(options).close()  # creates the topics
        suspended = OpenTransaction(options)
        async with attached(await asyncio.to_thread(KafkaLog, other(options, 2))) as writer:
            await writer.put("a")
            reading = KafkaReadOptions(options.bootstrap, options.topic)
            with KafkaLogReader(reading) as reader:
                assert reader.refresh()[2] == (0, 1)
            with contextlib.closing(RangeReader(reading, log_id=0, heads={})) as ranges:
                span = PartitionRange(2, 0, 1)
                assert [each.base_offset for each in ranges.records(span, 0)] == [0]
        suspended.abort()

    run(use())


def test_topics_that_are_created_meanwhile_are_known_before_their_messages(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "KAFKA_TOPIC_SECONDS_MAX", 60.0)

    async def use() -> None:
        node, target = KafkaLog(options), Target()
        async with attached(KafkaLog(other(options))) as writer, attached(node) as used:
            node.follow(cast("Follower", target))
            suspended = OpenTransaction(options)
            await writer.put("new")
            await used.until(lambda: target.offsets.get(1) == [0])
            assert target.topics == ["new"]
            suspended.abort()

    run(use())


def test_a_group_and_a_session_that_are_written_meanwhile_are_seen_by_other_nodes(
    options: KafkaOptions,
) -> None:
    async def use() -> None:
        one, two = KafkaLog(options), KafkaLog(other(options))
        async with attached(one) as used, attached(two):
            suspended = OpenTransaction(options)
            progress = GroupProgress(0, partitions={0: 1}, used=True)
            one.groups.commit("job", {0: 1}, progress=progress)
            with pytest.raises(GroupElsewhere):
                two.groups.commit("job", {0: 1}, progress=progress)
            found: list[KeptSession | None] = []
            kept = KeptSession(0, 0, {"x": {0: 1}}, until_us=time.time_ns() // 1000 + 60_000_000)
            one.sessions.put("c", kept)

            def look() -> bool:
                two.sessions.find("c", found.append)
                return kept in found

            await used.until(look)
            assert two._state.get("topic/open") is None, "it is not committed"
            suspended.abort()
            await used.until(lambda: two._state.refresh() or two._state.unsettled() == {})
            assert two._state.get("topic/open") is None
            assert one.groups.load("job") == two.groups.load("job")

    run(use())


def test_of_two_processes_of_a_node_the_newer_one_goes_on(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older one cannot see yet that it was replaced. It must not fence the newer one."""
    monkeypatch.setattr("penstock.storage.appends.LOG_RETRY_SECONDS", 0.1)
    lost: list[str] = []

    async def use() -> None:
        async with contextlib.AsyncExitStack() as stack:
            old = KafkaLog(options, lost=lambda _: lost.append("old"))
            using_old = await stack.enter_async_context(attached(old))
            await using_old.put("a")
            suspended = OpenTransaction(options)
            new = await asyncio.to_thread(KafkaLog, options, lost=lambda _: lost.append("new"))
            using_new = await stack.enter_async_context(attached(new))
            receipt = old.append(using_old.batch("b"), "x")
            await using_old.until(lambda: old.problem is not None)
            failures = old.status().failures
            await using_old.until(lambda: "it is not known yet" in str(old._committer.problem))
            for name in "cde":
                await using_new.put(name)
            assert not is_safe(receipt, old)
            assert old.status().failures == failures
            assert lost == []
            suspended.abort()
            await using_old.until(lambda: lost)
            await using_new.put("f")
            assert lost == ["old"]
            assert [each["topic"] for each in using_new.rows()] == ["a", *"cdef"]

    run(use())


KILLED: Final = """
import sys, time
from penstock.storage.kafka.client import Connection
from penstock.storage.kafka.options import KafkaOptions

options = KafkaOptions(sys.argv[1], sys.argv[2], node=2, commit_seconds_max=1.0)
producer = Connection(options).transactional(1 << 20)
producer.init_transactions(30)
producer.begin_transaction()
producer.produce(options.state_topic, b"{}", b"topic/open", partition=0)
assert producer.flush(30) == 0
print("open", flush=True)
time.sleep(600)
"""
"""A process that writes to the state topic in a transaction, and ends in it."""


def test_kafka_aborts_the_transaction_of_a_process_that_was_killed(options: KafkaOptions) -> None:
    KafkaLog(options).close()  # creates the topics
    command = [sys.executable, "-c", KILLED, options.bootstrap, options.topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        process.kill()
    state = StateTopic(Connection(options))
    started = time.monotonic()
    try:
        state.put("group/job", b"{}")
        while state.unsettled():
            assert time.monotonic() < started + 30, "Kafka's default is 60 seconds"
            state.refresh()
    finally:
        state.close()
    assert state.get("group/job") == b"{}"
    assert state.get("topic/open") is None


def test_a_commit_time_beyond_kafkas_longest_transaction_is_refused(options: KafkaOptions) -> None:
    with pytest.raises(KafkaUnusable, match=r"max\.transaction\.timeout"):
        KafkaLog(dataclasses.replace(options, commit_seconds_max=1000.0))


def test_a_commit_time_shorter_than_the_socket_timeout_is_allowed(options: KafkaOptions) -> None:
    async def use() -> None:
        settings = {"socket.timeout.ms": "60000"}
        short = dataclasses.replace(options, commit_seconds_max=0.5, settings=settings)
        async with attached(KafkaLog(short)) as used:
            await used.put("a")

    run(use())
