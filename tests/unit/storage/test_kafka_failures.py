"""What Kafka refuses, or does not answer, is reported with its reason, and overcome afterwards."""

import asyncio
import dataclasses
import secrets
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from structlog.testing import capture_logs

from penstock.core.answers import is_safe
from penstock.errors import KafkaUnusable
from penstock.limits import KAFKA_CLOSING_MAX
from penstock.ports import Receipt
from penstock.storage.kafka import closing, state
from penstock.storage.kafka.client import Connection
from penstock.storage.kafka.closing import Closing
from penstock.storage.kafka.cluster_topics import create_topics
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from penstock.storage.kafka.state import StateTopic
from tests.unit.storage.test_kafka import create
from tests.unit.storage.test_port import Attached, attached, run
from tools.kafka import KafkaBroker

RETRIABLE = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "loading", retriable=True)


@pytest.fixture
def options(kafka: KafkaBroker) -> KafkaOptions:
    """A topic of its own."""
    return KafkaOptions(kafka.address, f"fail-{secrets.token_hex(4)}", commit_seconds_max=1.0)


class Failing:
    """A producer of Kafka; a method raises an error while `fails` is set."""

    def __init__(
        self, producer: Producer, method: str, error: Exception, fails: threading.Event
    ) -> None:
        self._producer = producer
        self._method = method
        self._error = error
        self._fails = fails

    def __getattr__(self, name: str) -> Any:
        if name == self._method and self._fails.is_set():
            return self._fail
        return getattr(self._producer, name)

    def _fail(self, *_: object, **__: object) -> None:
        raise self._error


def wrap(
    monkeypatch: pytest.MonkeyPatch, method: str, error: Exception, fails: threading.Event
) -> None:
    """Wrap the producers of nodes."""
    make = Connection.transactional

    def transactional(*given: Any, **more: Any) -> Producer:
        return cast("Producer", Failing(make(*given, **more), method, error, fails))

    monkeypatch.setattr(Connection, "transactional", transactional)


async def refused(used: Attached) -> Receipt:
    receipt = used.storage.append(used.batch("b", "b"), "x")
    await asyncio.wait_for(used.storage.flush(), 30)
    assert not is_safe(receipt, used.storage)
    return receipt


@pytest.mark.parametrize(
    ("method", "error", "reason"),
    [
        ("produce", BufferError("Local: Queue full"), "Queue full"),
        ("commit_transaction", KafkaException(RETRIABLE), "no answer for 1 seconds"),
    ],
)
def test_a_commit_that_fails_says_why_and_the_next_one_is_taken(
    options: KafkaOptions,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    error: Exception,
    reason: str,
) -> None:
    fails = threading.Event()
    wrap(monkeypatch, method, error, fails)

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            await used.put("a")
            fails.set()
            await refused(used)
            assert reason in str(used.storage.problem)
            fails.clear()
            await used.until(lambda: used.storage.problem is None)
            await used.put("c")
            assert [each["topic"] for each in used.rows()] == ["a", "c"]

    run(use())


def test_a_producer_that_cannot_begin_is_replaced_until_one_can(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails, broken = threading.Event(), threading.Event()
    wrap(monkeypatch, "init_transactions", KafkaException(RETRIABLE), fails)
    wrap(monkeypatch, "commit_transaction", KafkaException(KafkaError(KafkaError._FAIL)), broken)

    async def use() -> None:
        async with attached(KafkaLog(options)) as used:
            fails.set()
            broken.set()
            await refused(used)
            await used.until(lambda: "no answer for 1 seconds" in str(used.storage.problem))
            broken.clear()
            fails.clear()
            await used.until(lambda: used.storage.problem is None)
            await used.put("c")
            assert [each["topic"] for each in used.rows()] == ["c"]

    run(use())


def test_changes_of_many_topics_fit_into_one_commit(options: KafkaOptions) -> None:
    """librdkafka takes 100,000 records at a time by default."""
    count = 110_000

    async def use() -> None:
        async with attached(KafkaLog(dataclasses.replace(options, commit_seconds_max=60))) as used:
            for number in range(count):
                receipt = used.storage.add_topic(f"t/{number}", bytes(16))
            await asyncio.wait_for(used.storage.flush(), 60)
            assert is_safe(receipt, used.storage)
        async with attached(KafkaLog(options)) as used:
            assert len(used.storage.known_topics) == count

    run(use())


class Unwritten:
    """A producer whose records are refused, or get no answer."""

    def __init__(self, error: KafkaError | None) -> None:
        self._error = error
        self._delivered: list[Callable[[KafkaError, Message | None], None]] = []

    def produce(self, *_: object, on_delivery: Callable[..., None], **__: object) -> None:
        self._delivered.append(on_delivery)

    def flush(self, _: float) -> int:
        if self._error is not None:
            for each in self._delivered:
                each(self._error, None)
        return 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied"), "denied"),
        (None, r"no answer for 0\.1 seconds"),
    ],
)
def test_a_state_that_was_not_written_is_an_error_and_does_not_count(
    options: KafkaOptions, monkeypatch: pytest.MonkeyPatch, error: KafkaError | None, reason: str
) -> None:
    create(options)
    topic = StateTopic(Connection(options))
    try:
        topic.put("group/job", b"first")
        with monkeypatch.context() as patch:
            patch.setattr(state, "KAFKA_READ_SECONDS_MAX", 0.1)
            topic._producer = cast("Producer", Unwritten(error))
            with pytest.raises(OSError, match=reason):
                topic.put("group/job", b"second")
        topic._producer = None
        assert topic.get("group/job") == b"first"
        topic.put("group/job", b"third")
        assert topic.get("group/job") == b"third"
    finally:
        topic.close()


def test_a_client_that_closes_late_is_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "_REPORT_SECONDS", 0.0)
    clients, released = Closing("kafka://b/t"), threading.Event()
    for _ in range(KAFKA_CLOSING_MAX):
        clients.close("reader", released.wait)
    assert not clients.wait(0.01)
    assert clients.problem is None
    with capture_logs() as events:
        clients.report()
        clients.report()
    assert [each["event"] for each in events] == ["kafka client not closed"] * KAFKA_CLOSING_MAX
    expected = f"{KAFKA_CLOSING_MAX} clients of Kafka do not close; restart the node"
    assert clients.problem == expected
    with capture_logs() as events:
        released.set()
        assert clients.wait(10)
        for each in threading.enumerate():
            if each.name == "penstock-close":
                each.join(10)
    assert [each["event"] for each in events] == ["kafka client closed late"] * KAFKA_CLOSING_MAX
    assert {each["client"] for each in events} == {"reader"}
    assert clients.problem is None


def test_a_topic_that_kafka_does_not_create_is_to_be_created_by_the_operator(
    options: KafkaOptions,
) -> None:
    client = AdminClient({"bootstrap.servers": options.bootstrap})
    with pytest.raises(KafkaUnusable, match=f"create '{options.topic}' yourself"):
        create_topics(client, options, [NewTopic(options.topic, 1, 99)])
