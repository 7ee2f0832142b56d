"""The log on Kafka, beyond what every storage promises: one writer, outages, foreign records."""

import asyncio
import dataclasses
import errno
import itertools
import random
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from structlog.testing import capture_logs

from penstock._kernels import lamamq as lamamq_kernel
from penstock._kernels.batch import Batch, Sender
from penstock.core.answers import is_safe
from penstock.errors import (
    GroupDamaged,
    KafkaUnusable,
    LogDamaged,
    LogUnavailable,
    NodeTakenOver,
    OffsetBelowHorizon,
    OperatorError,
)
from penstock.limits import KAFKA_STEPS_BACK_MIN
from penstock.ports import Follower, KeptSession, PartitionRange, Prepared, Stored
from penstock.ports.selection import Selection
from penstock.protocols import FLIGHT
from penstock.protocols.lamamq import LAMAMQ
from penstock.storage.kafka import cluster_topics, partition, session_records
from penstock.storage.kafka import state as kafka_state
from penstock.storage.kafka.client import Connection, RecordReader
from penstock.storage.kafka.cluster_topics import Copies, TopicAdmin, TopicFacts
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.kafka.partition import KafkaPartition
from penstock.storage.kafka.record_cache import RecordCache
from penstock.storage.kafka.records import RowGroupRecord
from penstock.storage.kafka.state import KafkaGroups, StateTopic
from penstock.storage.schema import ROWS_SCHEMA
from tests.support.publishes import publish
from tests.support.written_log import START_US, message
from tests.unit.storage.test_port import Attached, attached, run
from tools.kafka import KafkaBroker

EVERYTHING = Selection()


@pytest.fixture
def options(kafka: KafkaBroker) -> KafkaOptions:
    """A topic of its own."""
    return KafkaOptions(kafka.address, f"kafka-{secrets.token_hex(4)}", commit_seconds_max=3.0)


def admin(options: KafkaOptions) -> AdminClient:
    return AdminClient({"bootstrap.servers": options.bootstrap})


def create(options: KafkaOptions, *, state: str = "compact", **config: str) -> None:
    topics = [
        NewTopic(options.topic, 1, 1, config=config),
        NewTopic(options.state_topic, 1, 1, config={"cleanup.policy": state}),
    ]
    client = admin(options)  # it must outlive its futures
    for future in client.create_topics(topics).values():
        future.result(timeout=30)


def produce(options: KafkaOptions, value: bytes, **more: Any) -> None:
    """Put a record that is none of Penstock's into the topic."""
    producer = Producer({"bootstrap.servers": options.bootstrap})
    producer.produce(options.topic, value, partition=options.node, **more)
    assert producer.flush(30) == 0


# --- One writer -----------------------------------------------------------------------------------


def test_a_newer_process_takes_over_and_the_older_one_acknowledges_nothing(
    options: KafkaOptions,
) -> None:
    async def use() -> None:
        lost: list[OperatorError] = []
        async with attached(KafkaLog(options, lost=lost.append)) as old:
            first = await old.put("a")
            async with attached(KafkaLog(options)) as new:
                assert new.storage.next_offset == 1
                receipt = old.storage.append(old.batch("b", "b"), "x")
                await asyncio.wait_for(old.storage.flush(), 30)
                assert not is_safe(receipt, old.storage)
                assert is_safe(first, old.storage)
                await old.until(lambda: lost)
                assert isinstance(lost[0], NodeTakenOver)
                assert lost[0].node == 0
                with pytest.raises(LogUnavailable, match="taken over node 0"):
                    old.storage.append(old.batch("c"), "x")
                later = await new.put("d")
                assert later.first_offset == 1
                assert [each["topic"] for each in new.rows()] == ["a", "d"]
                ids = {each["message_id"] for each in new.rows()}
                assert len(ids) == 2

    run(use())


def test_a_process_that_finds_a_newer_one_fails_the_commits_that_wait(
    options: KafkaOptions,
) -> None:
    async def use() -> None:
        lost: list[OperatorError] = []
        old_log = KafkaLog(options, lost=lost.append)
        async with attached(old_log) as old, attached(KafkaLog(options)):
            with capture_logs() as events:
                old_log._committer.later(old_log._committer.check_owner)
                receipt = old_log.append(old.batch("a"), "x")
                await asyncio.wait_for(old_log.flush(), 30)
                await old.until(lambda: lost)
            assert not is_safe(receipt, old_log)
            (failed,) = [each for each in events if each["event"] == "append failed"]
            assert "another process writes this partition" in failed["error"]

    run(use())


def test_nodes_write_partitions_of_their_own_with_ids_of_their_own(options: KafkaOptions) -> None:
    async def use() -> None:
        other = KafkaOptions(options.bootstrap, options.topic, node=2)
        async with attached(KafkaLog(options)) as one, attached(KafkaLog(other)) as two:
            assert one.storage.log_id == two.storage.log_id
            assert [(await one.put("a")).first_offset, (await two.put("b")).first_offset] == [0, 0]
            rows = one.rows() + two.rows()
            assert [(each["partition"], each["topic"]) for each in rows] == [(0, "a"), (2, "b")]
            assert len({each["message_id"] for each in rows}) == 2
            one.storage.groups.commit("job", {0: 1})
            two.storage.groups.commit("job", {2: 1})
            state = one.storage.groups.load("job")
            assert state is not None
            assert state.offsets == {0: 1, 2: 1}

    run(use())


def test_nodes_that_start_together_create_the_topics_once(options: KafkaOptions) -> None:
    nodes = [dataclasses.replace(options, node=number) for number in (2, 0, 1)]
    with ThreadPoolExecutor(len(nodes)) as threads:
        logs = list(threads.map(KafkaLog, nodes))
    try:
        assert [each.partition for each in logs] == [2, 0, 1]
        assert len({each.log_id for each in logs}) == 1
    finally:
        for each in logs:
            each.close()
    found = admin(options).list_topics(options.topic, timeout=30).topics[options.topic]
    assert len(found.partitions) == 3


def test_offsets_are_not_given_again_after_retention_has_removed_everything(
    options: KafkaOptions,
) -> None:
    async def first() -> None:
        async with attached(KafkaLog(options)) as used:
            await used.put("a", "b", "c")

    async def second() -> None:
        async with attached(KafkaLog(options)) as used:
            storage = used.storage
            assert storage.horizon == storage.end == storage.next_offset >= 3
            await used.put("d")
            assert [each["topic"] for each in used.rows()] == ["d"]
            with pytest.raises(OffsetBelowHorizon):
                used.rows(0)

    run(first())
    everything = TopicPartition(options.topic, 0, -1)  # up to the high watermark
    client = admin(options)  # it must outlive its futures
    for future in client.delete_records([everything]).values():
        future.result(timeout=30)
    run(second())


def test_a_partition_of_which_nothing_is_left_begins_with_its_next_message(
    options: KafkaOptions,
) -> None:
    other = dataclasses.replace(options, node=1)

    async def use() -> None:
        async with attached(KafkaLog(other)) as writer:
            await writer.put("a", "b", "c")
        client = admin(options)  # it must outlive its futures
        for future in client.delete_records([TopicPartition(options.topic, 1, -1)]).values():
            future.result(timeout=30)
        target, node = Target(), KafkaLog(options)
        async with attached(node) as used:
            node.follow(cast("Follower", target))
            async with attached(KafkaLog(other)) as writer:
                first = (await writer.put("d", "e")).first_offset
                assert first >= 3
                await used.until(lambda: target.offsets == [first, first + 1])
            status = {each.number: each for each in node.nodes()}[1]
            assert (status.horizon, status.end) == (first, first + 2)

    run(use())


def test_a_first_message_that_is_known_is_not_read_again(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, starts = RecordReader.records, []

    def counting(
        self: RecordReader, topic: str, partition: int, place: int, *, end: int
    ) -> Iterator[Message]:
        starts.append(place)
        return read(self, topic, partition, place, end=end)

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            for _ in range(KAFKA_STEPS_BACK_MIN):  # the last ones are looked for from later on
                await used.put("a")
            partition = cast("KafkaLog", used.storage)._own
            partition.load_bounds()
            monkeypatch.setattr(RecordReader, "records", counting)
            partition.load_bounds()
            assert len(starts) == 1
            assert starts[0] > partition.first_place
            assert partition.bounds == (0, KAFKA_STEPS_BACK_MIN)

    run(use())


def test_a_producer_that_kafka_gave_up_is_replaced_while_the_node_is_ours(
    options: KafkaOptions,
) -> None:
    """Kafka fences a producer also when a transaction took too long: nobody has taken over."""

    async def use() -> None:
        lost: list[OperatorError] = []
        async with attached(KafkaLog(options, lost=lost.append)) as used:
            storage = used.storage
            await used.put("a")
            stranger = Producer(
                {
                    "bootstrap.servers": options.bootstrap,
                    "transactional.id": options.transactional_id,
                }
            )
            stranger.init_transactions(30)
            failed = storage.append(used.batch("b"), "x")
            await asyncio.wait_for(storage.flush(), 30)
            assert not is_safe(failed, storage)
            assert storage.problem is not None
            assert storage.problem.startswith(f"partition 0 of topic {options.topic}: Kafka: ")
            async with asyncio.timeout(30):
                await used.until(lambda: storage.problem is None)
            after = await used.put("c")
            assert after.first_offset == 2
            assert [each["topic"] for each in used.rows()] == ["a", "c"]
            assert not lost

    run(use())


# --- Finding --------------------------------------------------------------------------------------


def test_a_reader_that_is_behind_undoes_nothing_of_the_state(options: KafkaOptions) -> None:
    create(options)
    state = StateTopic(Connection(options))
    try:
        for value in (b"first", b"second"):
            state.put("group/job", value)
        state.apply({"group/job": b"first"}, place=0)  # the follower comes to it only now
        assert state.get("group/job") == b"second"
        state.apply({"group/job": b"third"}, place=2)
        state.refresh()  # reads the first two
        assert state.get("group/job") == b"third"
    finally:
        state.close()


def test_a_state_of_a_group_that_cannot_be_read_is_not_taken_for_none(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(options)
    elsewhere, state = (StateTopic(Connection(options)) for _ in range(2))
    try:
        groups = KafkaGroups(state)
        assert groups.load("job") is None
        KafkaGroups(elsewhere).commit("job", {0: 10})

        def refresh() -> None:
            raise OSError(errno.ETIMEDOUT, "Kafka does not answer")

        monkeypatch.setattr(state, "refresh", refresh)
        for call in (
            lambda: groups.load("job"),
            lambda: groups.commit("job", {0: 1}),
            lambda: groups.forget("job"),
        ):
            with pytest.raises(OSError, match="does not answer"):
                call()
        assert groups.all() == {}, "the last reports that are known"
        monkeypatch.undo()
        assert list(groups.all()) == ["job"]
        elsewhere.put("group/job", b"{")
        for call in (lambda: groups.load("job"), lambda: groups.commit("job", {0: 1})):
            with pytest.raises(GroupDamaged, match="job is damaged"):
                call()
        groups.forget("job")
        assert groups.load("job") is None
    finally:
        elsewhere.close()
        state.close()


def test_a_reader_that_is_behind_brings_nothing_back_that_was_deleted(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_state, "KAFKA_DELETIONS_MAX", 3)
    create(options)
    state = StateTopic(Connection(options))
    try:
        state.put("group/job", b"first")
        state.apply({"group/job": None}, place=7)
        state.apply({"group/job": b"first"}, place=0)
        assert state.get("group/job") is None
        state.apply({"group/job": b"new"}, place=8)
        assert state.get("group/job") == b"new"
        state.send("group/job", None)
        state.apply({"group/job": b"new"}, place=8)
        assert state.get("group/job") is None, "this process has deleted it"
        for number in range(5):
            state.apply({f"group/{number}": b"x"}, place=10)
            state.apply({f"group/{number}": None}, place=11)
        assert len(state._deleted) == 3
    finally:
        state.close()


class Fatal:
    """A producer that has failed for good."""

    def produce(self, *_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL, "broken"))

    def flush(self, _: float) -> int:
        return 0


def test_a_writer_of_the_state_that_failed_for_good_is_replaced(options: KafkaOptions) -> None:
    create(options)
    connection = Connection(options)
    state = StateTopic(connection)
    try:
        state._producer = cast("Producer", Fatal())
        with capture_logs() as events:
            state.put("group/job", b"first")
        assert [each["event"] for each in events] == ["state writer replaced"]
        state._producer = cast("Producer", Fatal())
        state.send("group/other", b"x")
        state.refresh()
        state._values.clear()
        state._cursor.place = 0
        state._places.clear()

        def written() -> set[str]:
            state.refresh()
            return set(state.values("group/"))

        deadline = time.monotonic() + 10
        while written() != {"job", "other"}:
            assert time.monotonic() < deadline
    finally:
        state.close()


@pytest.mark.parametrize(
    ("messages", "state", "lost"),
    [
        ((1, 1), (1, 1), "messages and topic 't-state'"),
        ((3, 1), (3, 2), "messages"),
        ((3, 2), (3, 1), "topic 't-state'"),
        ((3, 2), (3, 2), ""),
    ],
)
def test_a_start_says_what_the_loss_of_a_broker_may_lose(
    messages: tuple[int, int], state: tuple[int, int], lost: str
) -> None:
    options = KafkaOptions("h:1", "t")
    facts = TopicFacts(1, 1, *messages, 1 << 20)
    with capture_logs() as events:
        cluster_topics._report(options, facts, state=Copies(*state))
    (event,) = events
    assert event["event"] == "log on kafka"
    assert event["log_level"] == ("warning" if lost else "info")
    assert event.get("hint", "").partition(":")[0] == (
        f"the loss of one Kafka broker may lose {lost}" if lost else ""
    )
    assert (event["state_replication_factor"], event["state_min_insync_replicas"]) == state


def test_a_state_topic_that_kafka_refuses_to_write_is_refused(options: KafkaOptions) -> None:
    config = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    topics = [
        NewTopic(options.topic, 1, 1, config={"max.message.bytes": "5000000"}),
        NewTopic(options.state_topic, 1, 1, config=config),
    ]
    client = admin(options)  # it must outlive its futures
    for future in client.create_topics(topics).values():
        future.result(timeout=30)
    with pytest.raises(KafkaUnusable, match=f"'{options.state_topic}' has 1 replicas, and min"):
        KafkaLog(options)


def kept_session(*, until_us: int = 0, claim: int = 0, node: int = 0) -> bytes:
    return msgspec.json.encode(
        KeptSession(node, node, {"x": {0: 1}}, until_us=until_us, claim=claim)
    )


def test_clients_whose_time_is_over_are_not_loaded_and_are_removed(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_us = time.time_ns() // 1000
    late = kept_session(until_us=now_us - 1, node=9)
    good = kept_session(until_us=now_us + 60_000_000)

    async def use() -> None:
        other = KafkaLog(dataclasses.replace(options, node=1))
        async with attached(KafkaLog(options)) as used:
            node = cast("KafkaLog", used.storage)
            node._state.put("session/late", late)
            node._state.put("session/old", kept_session(node=9))
            other_late = kept_session(until_us=now_us - 1, node=1)
            node._state.put("session/other", other_late)
            for number in range(3):
                node._state.put(f"session/{number}", good)
            async with attached(other):
                state = other._state
                state.refresh()
                assert set(state.values("session/")) == {"old", "0", "1", "2"}
                node.sessions.remove_expired()
                assert state.is_running(1)
                node._state.refresh()
                assert "session/other" in node._state._sessions._facts, "its node removes it"
                other.sessions.remove_expired()
            state = StateTopic(Connection(options))

            def records() -> set[str]:
                state.refresh()
                return {key.rpartition("/")[2] for key in state._sessions._facts}

            try:
                await used.until(lambda: records() == {"old", "0", "1", "2"})
                monkeypatch.setattr(session_records, "KAFKA_SESSIONS_MAX", 2)
                node.sessions.remove_expired()
                await used.until(lambda: records() == {"1", "2"})  # the oldest go first
            finally:
                state.close()

    run(use())


def test_a_state_of_a_client_with_a_lower_claim_does_not_count(options: KafkaOptions) -> None:
    create(options)
    state = StateTopic(Connection(options))
    try:
        now = kept_session(claim=3)
        for value in (now, kept_session(claim=2), b"nonsense"):
            state.put("session/c", value)
            assert state.get("session/c") == now
        state.put("session/c", None)
        state.put("session/c", kept_session(claim=1))
        assert state.get("session/c") == kept_session(claim=1)
    finally:
        state.close()


def test_records_of_the_state_topic_without_a_key_are_passed_over(options: KafkaOptions) -> None:
    create(options, state="delete")  # a compacted topic takes no such records
    stranger = Producer({"bootstrap.servers": options.bootstrap})
    stranger.produce(options.state_topic, b"nonsense")
    assert stranger.flush(30) == 0
    state = StateTopic(Connection(options))
    try:
        state.put("group/job", b"first")
        state.refresh()
        assert state.values("") == {"group/job": b"first"}
        assert state.place == 2
    finally:
        state.close()


class Target:
    """A follower that remembers the offsets of its messages."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def messages_read(self, _number: int, stored: Stored) -> None:
        self.offsets += range(stored.base_offset, stored.base_offset + stored.count)

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_: None


class NoAnswer:
    """A producer of Kafka whose commit succeeds, but whose answer is lost."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def commit_transaction(self, seconds: float) -> None:
        self._producer.commit_transaction(max(seconds, 10.0))
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.mark.parametrize("reads_fail", [False, True])
def test_what_a_commit_without_an_answer_has_written_is_delivered_once(
    options: KafkaOptions, *, reads_fail: bool
) -> None:
    """It failed for its publishers, but it is in the log: with deliver = "committed", too."""

    async def use() -> None:
        log = KafkaLog(dataclasses.replace(options, deliver_committed=True))
        target = Target()
        async with attached(log) as node:
            log.follow(cast("Follower", target))
            await node.put("a")
            committer = log._committer
            assert committer._producer is not None
            committer._producer = cast("Producer", NoAnswer(committer._producer))
            if reads_fail:
                fail_once(committer._partition)
            receipt = log.append(node.batch("b", "b"), "x")
            await asyncio.wait_for(log.flush(), 30)
            assert not is_safe(receipt, log)
            assert "partition 0 of topic" in str(log.problem)
            with pytest.raises(LogUnavailable):
                log.append(node.batch("refused"), "x")
            await node.until(lambda: log.problem is None)
            later = await node.put("c")
            await node.until(lambda: later.first_offset in target.offsets)
            assert [each["topic"] for each in node.rows()] == ["a", "b", "b", "c"]
            assert target.offsets == [each["offset"] for each in node.rows()]

    run(use())


def fail_once(partition: KafkaPartition) -> None:
    """Let the next walk over a partition fail, as one does that waits too long for Kafka."""
    walk = partition.walk

    def failing(_start: int, _end: int) -> Iterator[RowGroupRecord]:
        partition.walk = walk  # type: ignore[method-assign]
        raise OSError(errno.EIO, "Kafka: no answer for 10 seconds")

    partition.walk = failing  # type: ignore[method-assign]


def test_a_scan_waits_for_committed_messages_that_kafka_does_not_show_yet(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka marks records as committed a moment after it has said that they are."""
    records = RecordReader.records
    hidden = [5]

    def late(self: RecordReader, *args: Any, **named: Any) -> Iterator[Message]:
        hides = hidden[0] > 0
        hidden[0] -= 1
        for each in records(self, *args, **named):
            if hides and each.offset() != 0:
                return
            yield each

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            for name in "abc":
                await used.put(name)
            monkeypatch.setattr(RecordCache, "get", lambda *_: None)
            monkeypatch.setattr(RecordReader, "records", late)
            assert [row["topic"] for row in used.rows()] == ["a", "b", "c"]
            assert hidden[0] < 0
            monkeypatch.setattr(partition, "KAFKA_READ_SECONDS_MAX", 0.2)
            monkeypatch.setattr(RecordReader, "records", lambda *_, **__: iter(()))
            with pytest.raises(OSError, match=r"no answer for 0\.2 seconds"):
                used.rows()

    run(use())


class EarlyEnd:
    """The end of a partition, as a leader tells it that does not know all records yet."""

    def __init__(self, place: int) -> None:
        self._place = place

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._PARTITION_EOF)

    def offset(self) -> int:
        return self._place


def end_early(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let each read of records begin with an end that is too early; count them."""
    records, following = RecordReader.records, RecordReader._next
    ends: list[int] = []
    waiting: dict[RecordReader, int] = {}

    def begin(
        self: RecordReader, topic: str, number: int, place: int, **more: Any
    ) -> Iterator[Message]:
        waiting[self] = place
        return records(self, topic, number, place, **more)

    def told(self: RecordReader) -> list[Message]:
        place = waiting.pop(self, None)
        if place is None:
            return following(self)
        ends.append(place)
        return [cast("Message", EarlyEnd(place))]

    monkeypatch.setattr(RecordReader, "records", begin)
    monkeypatch.setattr(RecordReader, "_next", told)
    return ends


def test_records_that_a_new_leader_does_not_show_yet_are_waited_for(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fill() -> None:
        async with attached(KafkaLog(options)) as used:
            for name in "abcde":
                await used.put(name)

    async def use() -> None:
        ends = end_early(monkeypatch)
        async with attached(KafkaLog(options)) as used:
            storage = used.storage
            assert storage.next_offset == 5, "no offset is assigned twice"
            assert ends
            assert {each.name for each in storage.known_topics} == set("abcde")
            assert [row["offset"] for row in used.rows()] == [0, 1, 2, 3, 4]
            own = cast("KafkaLog", storage)._own
            for offset in random.Random(7).sample(range(5), 5):
                own._anchors.clear()
                own._cache = RecordCache(0)
                assert own.find_record(offset).base_offset == offset
            assert own.offset_at(START_US) == 0
            own._anchors.clear()
            assert own.offset_after_place(own.first_place) == 0

    run(fill())
    run(use())


def test_offsets_are_found_without_an_index(options: KafkaOptions) -> None:
    sizes = [1, 300, 2, 2, 50, 1, 1, 1, 700, 3, 1, 40]

    async def fill() -> None:
        async with attached(KafkaLog(options)) as used:
            for number, size in enumerate(sizes):
                await used.put(*[f"t/{number}"] * size, timestamp_us=START_US + number)

    async def use() -> None:
        forgetful = dataclasses.replace(options, cache_bytes_max=0)
        async with attached(KafkaLog(forgetful)) as used:
            storage = used.storage
            starts = list(itertools.accumulate(sizes, initial=0))
            assert (storage.horizon, storage.end) == (0, starts[-1])
            offsets = [*starts[:-1], *(end - 1 for end in starts[1:])]
            random.Random(1).shuffle(offsets)
            for offset in offsets:
                answers: list[Any] = []
                storage.fetch(offset, answers.append)
                await used.until(lambda answers=answers: answers)
                (found,) = answers[0].groups
                assert found.base_offset == max(each for each in starts if each <= offset)
                assert found.base_offset <= offset < found.base_offset + found.count
            for number in range(len(sizes)):
                assert storage.offset_at(0, START_US + number) == starts[number]
            client = admin(options)
            first = TopicPartition(options.topic, 0, 2 * 4)  # each group has a marker behind it
            for future in client.delete_records([first]).values():
                future.result(timeout=30)
            answers = []
            storage.fetch(0, answers.append)
            await used.until(lambda: answers)
            assert isinstance(answers[0], OffsetBelowHorizon)
            assert answers[0].horizon == storage.horizon == starts[4]
            assert len(used.rows()) == sum(sizes[4:])

    run(fill())
    run(use())


# --- Topics of Kafka ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"cleanup.policy": "compact"}, "cleanup.policy 'compact'"),
        ({"state": "delete"}, "-state' has cleanup.policy 'delete'"),
        ({"max.message.bytes": "1000"}, "max.message.bytes 1000"),
        (
            {"min.insync.replicas": "2", "max.message.bytes": "5000000"},
            "1 replicas, and min.insync.replicas 2",
        ),
    ],
    ids=["compact", "state", "small", "replicas"],
)
def test_a_topic_that_cannot_keep_its_promises_is_refused(
    options: KafkaOptions, config: dict[str, str], reason: str
) -> None:
    create(options, **config)
    with pytest.raises(KafkaUnusable, match=reason):
        KafkaLog(options)


def test_a_partition_that_kafka_adds_late_is_waited_for(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(options)
    admins = TopicAdmin(Connection(dataclasses.replace(options, node=1)))
    before = admins.describe(options.topic)
    describe, asked = admins.describe, itertools.count()
    monkeypatch.setattr(
        admins, "describe", lambda topic: before if next(asked) < 3 else describe(topic)
    )
    assert len(before.partitions) == 1
    assert len(admins.with_partition(options.topic).partitions) == 2


def test_groups_fit_into_the_records_of_a_topic_with_a_small_limit(options: KafkaOptions) -> None:
    create(options, **{"max.message.bytes": "4194304"})

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            topics = [f"t/{number % 7}/{'x' * 90}" for number in range(9000)]
            await used.put(*topics)
            assert [each["topic"] for each in used.rows()] == topics

    run(use())


# --- Records that are not Penstock's --------------------------------------------------------------


def test_records_of_other_producers_are_passed_over(options: KafkaOptions) -> None:
    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            produce(options, b"nonsense")
            await used.put("a", "a")
            produce(options, b"\xff" * 4000, headers=[("penstock.head", b"00000000")])
            await used.put("b")
            produce(options, b"", headers=[("penstock.head", b"\xff")])

    async def again() -> None:
        async with attached(KafkaLog(options)) as used:
            await used.put("c")
            assert [each["topic"] for each in used.rows()] == ["a", "a", "b", "c"]
            assert used.storage.match(used.whole(), EVERYTHING)[:2] == (4, 4)
            for start, end in itertools.combinations(range(5), 2):
                assert [each["offset"] for each in used.rows(start, end)] == list(range(start, end))

    run(use())
    run(again())


def test_a_damaged_group_is_reported_with_its_offsets(options: KafkaOptions) -> None:
    from penstock.storage.kafka import committer  # noqa: PLC0415

    async def fill() -> None:
        async with attached(KafkaLog(options)) as used:
            for topic in "abc":
                encode = committer.encode_row_group
                if topic == "b":
                    committer.encode_row_group = flipped(encode)  # type: ignore[assignment]
                try:
                    receipt = used.storage.append(used.batch(topic, topic), "x")
                    await used.storage.flush()
                finally:
                    committer.encode_row_group = encode
                await used.safe(receipt)

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            whole = PartitionRange(0, 0, 6)
            with pytest.raises(LogDamaged) as caught:
                used.rows()
            assert (caught.value.offset, caught.value.resumes_at) == (2, 4)
            assert [each[:2] for each in used.storage.damage(whole)] == [(2, 4)]
            assert [each["offset"] for each in used.rows(4, 6)] == [4, 5]
            none = Selection(topics=frozenset({"none"}))
            assert used.storage.match(whole, none) == (4, 2, 2), "it may have been selected"
            assert used.storage.count_topics(whole, none) == (2, {})
            answers: list[Any] = []
            used.storage.fetch(2, answers.append)
            await used.until(lambda: answers)
            assert isinstance(answers[0], LogDamaged)
            assert answers[0].resumes_at == 4

    run(fill())
    run(use())


def flipped(encode: Callable[..., Any]) -> Callable[..., Any]:
    """Encode a row group with a wrong byte in its last buffer."""

    def wrong(*arguments: Any, **more: Any) -> Any:
        group = encode(*arguments, **more)
        last = bytearray(group.buffers[-1])
        last[-1] ^= 0xFF
        return group._replace(buffers=[*group.buffers[:-1], bytes(last)])

    return wrong


# --- Outages --------------------------------------------------------------------------------------


def test_a_start_without_kafka_says_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_topics, "KAFKA_OPEN_SECONDS_MAX", 0.5)
    with pytest.raises(KafkaUnusable, match=r"127\.0\.0\.1:1: .*storage\.bootstrap"):
        KafkaLog(KafkaOptions("127.0.0.1:1", "t"))


def test_a_message_that_kafka_would_refuse_is_refused_alone(options: KafkaOptions) -> None:
    create(options, **{"max.message.bytes": "4194304"})

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            storage = used.storage
            good = storage.append(used.batch("a"), "x")
            wholly = message("b", bytes(1_200_000), headers=(("h", bytes(1_000_000)),))
            largest = storage.append_record(wholly)
            large = message("b", bytes(2_000_000))
            with pytest.raises(LogUnavailable, match=r"max\.message\.bytes") as caught:
                storage.append_record(large)
            assert "later" not in str(caught.value)

            def prepare(*given: dict[str, object]) -> list[Prepared]:
                rows = pa.RecordBatch.from_pylist(list(given), schema=ROWS_SCHEMA)
                wanted = {"sender": "w", "client": 9, "source": FLIGHT, "correlation": ""}
                return list(storage.prepare(rows, **wanted))

            key = bytes(1_000_000)
            headers = [{"key": "h", "value": bytes(1_000_000)}]
            (prepared,) = prepare(
                {"topic": "b", "value": large.value, "key": key, "headers": headers}
            )
            with pytest.raises(LogUnavailable, match=r"max\.message\.bytes"):
                storage.append_prepared(prepared)
            keyed = prepare(*[{"topic": "b", "value": b"", "key": key, "headers": []}] * 5)
            assert len(keyed) == 5, "they would not fit into one record"
            for each in keyed:
                largest = storage.append_prepared(each)
            batch, topics = Batch(), used.topics
            frames = b"".join(publish(LAMAMQ, "big", value=each) for each in (b"s", large.value))
            lamamq_kernel.scan(frames, 0, batch, topics, Sender(bytes(16), 1), order="big")
            assert len(batch) == 2
            with pytest.raises(LogUnavailable, match=r"max\.message\.bytes"):
                storage.append(batch, "x")
            batch.clear()
            await storage.flush()
            assert is_safe(good, storage)
            assert is_safe(largest, storage)
            assert storage.problem is None
            assert [len(each["value"]) for each in used.rows()] == [1, 1_200_000, *[0] * 5]

    run(use())


def test_a_log_can_be_closed_without_kafka(options: KafkaOptions, kafka: KafkaBroker) -> None:
    async def use() -> float:
        used = Attached(KafkaLog(options))
        await used.put("a")
        kafka.freeze(frozen=True)
        try:
            used.storage.append(used.batch("b"), "x")
            await asyncio.sleep(0)
            started = time.monotonic()
            await asyncio.to_thread(used.storage.close)
            return time.monotonic() - started
        finally:
            kafka.freeze(frozen=False)

    assert run(use()) < 20
