"""A node writes on though librdkafka does not return from a call, and acknowledges nothing falsely.

Calls of librdkafka may ignore their time limits. Producers are wrapped here, so that they do that.
"""

import asyncio
import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import structlog
from confluent_kafka import KafkaException, Producer

from penstock.core.answers import is_safe
from penstock.errors import LogUnavailable
from penstock.storage.kafka import log, state, writing_thread
from penstock.storage.kafka.client import Connection
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.kafka.reading_thread import Replaced
from penstock.storage.kafka.writing_thread import WritingThread
from tests.unit.storage.test_port import Attached, attached, run
from tools.kafka import KafkaBroker

HANG_SECONDS = 1.0
REASON = "librdkafka has not returned for 1 seconds"


@pytest.fixture
def options(kafka: KafkaBroker) -> KafkaOptions:
    """A topic of its own."""
    return KafkaOptions(kafka.address, f"write-{secrets.token_hex(4)}", commit_seconds_max=3.0)


@pytest.fixture(autouse=True)
def hangs_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call hang after a second instead of 30."""
    monkeypatch.setattr(log, "KAFKA_WATCH_SECONDS", 0.05)
    monkeypatch.setattr(writing_thread, "KAFKA_WATCH_SECONDS", 0.05)
    monkeypatch.setattr(writing_thread, "KAFKA_HANG_SECONDS_MAX", HANG_SECONDS)
    monkeypatch.setattr("penstock.storage.appends.LOG_RETRY_SECONDS", 0.1)


class Hang:
    """Lets the next call of some methods hang, before or after what they do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.released = threading.Event()
        self.calls: list[str] = []
        self.after = False
        self.returned = 0
        make = Connection.transactional

        def transactional(connection: Connection, record_bytes_max: int) -> Producer:
            return cast("Producer", WrappedProducer(make(connection, record_bytes_max), self))

        monkeypatch.setattr(Connection, "transactional", transactional)

    def call(self, name: str, work: Callable[[], object]) -> object:
        if name not in self.calls:
            return work()
        if self.after:
            result = work()  # it does not hang if it fails
        self.calls.remove(name)
        self.released.wait()
        self.returned += 1
        return result if self.after else work()


class WrappedProducer:
    """A producer of librdkafka, with calls that may hang."""

    def __init__(self, producer: Producer, hang: Hang) -> None:
        self._producer = producer
        self._hang = hang

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._producer, name)
        return lambda *args, **more: self._hang.call(name, lambda: found(*args, **more))


@pytest.fixture
def hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hang]:
    """What hangs ends at the end of the test at the latest."""
    found = Hang(monkeypatch)
    yield found
    found.released.set()


async def fail_by_hanging(used: Attached, hang: Hang, *calls: str) -> None:
    """Append a message whose commit hangs; return when it has failed."""
    storage = used.storage
    hang.calls += calls
    receipt = storage.append(used.batch("b"), "sender")
    await used.until(lambda: storage.problem is not None)
    assert storage.problem is not None
    assert storage.problem.endswith(f"Kafka: {REASON}")
    assert receipt.commit <= storage.failed_commit, "its publisher is told that it failed"
    assert not is_safe(receipt, storage)
    with pytest.raises(LogUnavailable):
        storage.append(used.batch("a"), "sender")


@pytest.mark.parametrize("raises", [True, False])
def test_a_commit_of_a_node_that_was_replaced_fails_with_that_reason(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch, *, raises: bool
) -> None:
    """A callback may be called while confluent-kafka raises that the producer is fenced."""
    make = Connection.transactional
    newer: list[KafkaLog] = []

    class Fenced:
        def __init__(self, producer: Producer) -> None:
            self._producer = producer

        def __getattr__(self, name: str) -> Any:
            return getattr(self._producer, name)

        def flush(self, seconds: float) -> int:
            with contextlib.suppress(KafkaException, SystemError):
                return cast("int", self._producer.flush(seconds))
            if not raises:  # it was fenced by another call: the next one finds a fatal error
                self._producer.produce(options.topic, b"x", partition=0)
            raise SystemError("<method 'flush'> returned NULL without setting an exception")

    def transactional(connection: Connection, record_bytes_max: int) -> Producer:
        return cast("Producer", Fenced(make(connection, record_bytes_max)))

    monkeypatch.setattr(Connection, "transactional", transactional)

    async def use() -> None:
        lost: list[Exception] = []
        async with attached(KafkaLog(options, lost=lost.append)) as used:
            await used.put("a")
            newer.append(KafkaLog(options))
            with structlog.testing.capture_logs() as events:
                receipt = used.storage.append(used.batch("b"), "sender")
                await used.until(lambda: lost)
            async with attached(newer[0]):
                pass
        assert not is_safe(receipt, used.storage)
        (failed,) = [each for each in events if each["event"] == "append failed"]
        assert "fenced by a newer instance" in failed["error"]
        assert "log writer failed" not in [each["event"] for each in events]

    run(use())


@pytest.mark.parametrize(
    ("call", "after"),
    [("flush", False), ("commit_transaction", False), ("commit_transaction", True)],
)
def test_a_commit_that_hangs_fails_and_another_thread_writes_on(
    options: KafkaOptions, hang: Hang, call: str, *, after: bool
) -> None:
    hang.after = after

    async def use() -> None:
        node = KafkaLog(options)
        async with attached(node) as used:
            await used.put("a")
            await fail_by_hanging(used, hang, call)
            await used.until(lambda: node.problem is None)
            acknowledged = await used.put("c")
            settled = used.settled
            hang.released.set()
            await used.until(lambda: hang.returned)
            await used.put("d")
            assert used.settled == settled + 1, "the first thread reports nothing any more"
            assert node.status().writers_replaced == 1
            rows = {row["topic"]: row["offset"] for row in used.rows()}
            assert rows["c"] == acknowledged.first_offset
            assert list(rows) == (["a", "b", "c", "d"] if after else ["a", "c", "d"])
        async with attached(KafkaLog(options)) as again:
            assert [row["topic"] for row in again.rows()] == list(rows)
            names = {each.name for each in again.storage.known_topics}
            assert names == {"a", "b", "c", "d"}, "a topic that was not sent is written later"

    run(use())


def test_a_process_that_was_replaced_while_it_made_a_new_producer_writes_nothing(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked who the owner is, stood still, and fences its successor when it goes on."""
    make = Connection.transactional

    async def use() -> None:
        loop = asyncio.get_running_loop()
        lost: list[Exception] = []
        acknowledged: list[int] = []
        async with contextlib.AsyncExitStack() as stack:
            old_log = KafkaLog(options, lost=lost.append)
            old = await stack.enter_async_context(attached(old_log))
            await old.put("a")

            async def succeed() -> Attached:
                new = await asyncio.to_thread(KafkaLog, options)
                used = await stack.enter_async_context(attached(new))
                acknowledged.extend([(await used.put(name)).first_offset for name in "bcd"])
                return used

            successors: list[Attached] = []

            def transactional(connection: Connection, record_bytes_max: int) -> Producer:
                if connection is old_log._connection:
                    found = asyncio.run_coroutine_threadsafe(succeed(), loop)
                    successors.append(found.result(30))
                return make(connection, record_bytes_max)

            monkeypatch.setattr(Connection, "transactional", transactional)
            fence(options)
            failed = old.storage.append(old.batch("x"), "sender")
            await old.until(lambda: lost or (successors and not old.storage.problem))
            assert lost
            assert not is_safe(failed, old.storage)
            with pytest.raises(LogUnavailable):
                old.storage.append(old.batch("y"), "sender")
            (new,) = successors
            new.storage.append(new.batch("z"), "sender")  # its producer was fenced
            await new.until(lambda: new.storage.problem is not None)
            await new.until(lambda: new.storage.problem is None)
            acknowledged.append((await new.put("e")).first_offset)
            rows = {row["topic"]: row["offset"] for row in new.rows()}
            assert list(rows) == ["a", "b", "c", "d", "e"]
            assert [rows[name] for name in "bcde"] == acknowledged

    run(use())


def fence(options: KafkaOptions) -> None:
    """Fence the producer of a node, as Kafka does when a transaction takes too long."""
    stranger = Producer(
        {"bootstrap.servers": options.bootstrap, "transactional.id": options.transactional_id}
    )
    stranger.init_transactions(30)


def test_a_process_whose_log_is_longer_than_it_has_written_writes_nothing(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        lost: list[Exception] = []
        old_log = KafkaLog(options, lost=lost.append)
        async with attached(old_log) as old, attached(KafkaLog(options)) as new:
            await new.put("a")
            # As if the state topic did not have the other process.
            monkeypatch.setattr(old_log._committer, "check_owner", lambda: True)
            old.storage.append(old.batch("x"), "sender")
            await old.until(lambda: lost)
            with pytest.raises(LogUnavailable):
                old.storage.append(old.batch("y"), "sender")

    run(use())


def test_a_record_that_is_added_late_moves_no_end_back(options: KafkaOptions) -> None:
    async def use() -> None:
        node = KafkaLog(options)
        async with attached(node) as used:
            await used.put("a")
            await used.put("b")
            first, last = node._own.walk(0, 2)
            node._own.add(first)
            assert node._own.bounds == (0, 2)
            assert node._own.last_crc == last.crc32c

    run(use())


def test_an_attempt_to_write_again_that_hangs_is_followed_by_another(
    options: KafkaOptions, hang: Hang
) -> None:
    hang.after = True  # a producer that is initialized late would fence the one that writes

    async def use() -> None:
        node = KafkaLog(options)
        async with attached(node) as used:
            await used.put("a")
            await fail_by_hanging(used, hang, "flush", "init_transactions")
            await used.until(lambda: node.problem is None)
            assert node.status().writers_replaced == 2
            await used.put("c")
            hang.released.set()
            await used.until(lambda: hang.returned == 2)
            await used.put("d")
            assert node.problem is None, "the earlier attempts change nothing any more"
            assert [row["topic"] for row in used.rows()] == ["a", "c", "d"]

    run(use())


def test_work_other_than_a_commit_that_hangs_does_not_fail_the_commit_behind_it(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch, hang: Hang
) -> None:
    monkeypatch.setattr(state, "KAFKA_STATE_SECONDS_MAX", 0.5)

    async def use() -> None:
        node = KafkaLog(options)
        async with attached(node) as used:
            await used.put("a")
            node._committer.later(hang.released.wait)
            await used.put("b")
            assert node.status().writers_replaced == 1
            assert node.failed_commit == 0

    run(use())


def test_a_node_ends_though_its_writer_hangs(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch, hang: Hang
) -> None:
    monkeypatch.setattr(writing_thread, "KAFKA_READ_SECONDS_MAX", 0.5)
    monkeypatch.setattr(writing_thread, "KAFKA_HANG_SECONDS_MAX", 1000.0)

    async def use() -> float:
        node = KafkaLog(options)
        used = Attached(node)
        await used.put("a")
        hang.calls.append("flush")
        node.append(used.batch("b"), "sender")
        await used.until(lambda: not hang.calls)
        started = time.monotonic()
        await asyncio.to_thread(node.close)
        return time.monotonic() - started

    assert run(use()) < 10


def test_a_thread_without_work_does_not_hang(hang: Hang) -> None:
    thread = WritingThread("kafka://")
    thread.start()
    for _ in range(100):
        assert thread.hangs() is None
    thread.later(hang.released.wait)
    reasons: list[str] = []
    while not reasons:
        reasons = [each for each in [thread.hangs()] if each]
    assert reasons == [REASON]
    assert thread.hangs() is None, "it is told once"
    thread.start()
    thread.finish()
    assert thread.replaced == 1


def test_too_many_threads_that_hang_are_not_replaced(
    monkeypatch: pytest.MonkeyPatch, hang: Hang
) -> None:
    monkeypatch.setattr(writing_thread, "KAFKA_HANGING_MAX", 2)
    thread = WritingThread("kafka://")
    ended: list[str] = []

    def work() -> None:
        hang.released.wait()
        try:
            thread.step()
        except Replaced:
            ended.append("replaced")
            raise

    def hung() -> str:
        while not (reason := thread.hangs()):
            pass
        return reason

    thread.later(work)
    thread.later(work)
    thread.start()
    assert hung() == REASON
    assert thread.replaceable
    thread.start()
    assert hung() == "2 threads hang in librdkafka; restart the node"
    assert not thread.replaceable
    threads = list(thread._hanging)
    hang.released.set()
    for each in threads:
        each.join(10)
    assert ended == ["replaced", "replaced"]
