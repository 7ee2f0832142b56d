"""Calls of librdkafka that do not return: clients are served by other threads, or /readyz tells."""

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from confluent_kafka import Consumer

from penstock.ports import Fetched
from penstock.storage.kafka import calls, log, reader_threads
from penstock.storage.kafka.client import Connection
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from tests.unit.storage.test_kafka_follower import WrappedConsumer
from tests.unit.storage.test_port import attached, run
from tools.kafka import KafkaBroker

HANG_SECONDS = 1.0


@pytest.fixture
def options(kafka: KafkaBroker) -> KafkaOptions:
    """A topic of its own, whose messages are always read from Kafka."""
    return KafkaOptions(kafka.address, f"hang-{secrets.token_hex(4)}", cache_bytes_max=0)


@pytest.fixture(autouse=True)
def hangs_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a call hang after a second instead of 30."""
    for module in (log, calls):
        monkeypatch.setattr(module, "KAFKA_WATCH_SECONDS", 0.05)
    for module in (reader_threads, calls):
        monkeypatch.setattr(module, "KAFKA_HANG_SECONDS_MAX", HANG_SECONDS)
    monkeypatch.setattr(log, "KAFKA_READ_SECONDS_MAX", 0.5)


class Hanging:
    """Lets calls of consumers in some threads hang."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        self.left = 0  # calls that are to hang
        self.count = 0
        self.released = threading.Event()
        make = Connection.consumer

        def consumer(self_: Connection, **more: Any) -> Consumer:
            return cast("Consumer", WrappedConsumer(make(self_, **more), self._before))

        monkeypatch.setattr(Connection, "consumer", consumer)

    def _before(self, _name: str) -> None:
        if self.left and threading.current_thread().name in self.names:
            self.left -= 1
            self.count += 1
            self.released.wait()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    found = Hanging(monkeypatch)
    yield found
    found.released.set()


def test_reads_that_hang_leave_their_place_to_others(
    options: KafkaOptions, hanging: Hanging
) -> None:
    async def use() -> float:
        node = KafkaLog(options)
        async with attached(node) as used:
            await used.put("a")
            hanging.names = {calls.READ_THREAD}
            hanging.left = 2
            waiting = [asyncio.ensure_future(used.fetch(0)) for _ in range(2)]
            await used.until(lambda: hanging.count == 2)
            assert isinstance(await used.fetch(0), Fetched)
            assert node.follow_problem is None
            hanging.released.set()
            assert all(isinstance(each, Fetched) for each in await asyncio.gather(*waiting))
            hanging.released.clear()
            hanging.left = 1
            node.fetch(0, lambda _: None)
            await used.until(lambda: hanging.count == 3)
            started = time.monotonic()
        return time.monotonic() - started

    assert run(use()) < 5, "the log is closed without the thread that hangs"


def test_too_many_reads_that_hang_are_a_problem(
    options: KafkaOptions, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_threads, "KAFKA_HANGING_MAX", 1)

    async def use() -> None:
        node = KafkaLog(options)
        async with attached(node) as used:
            await used.put("a")
            hanging.names = {calls.READ_THREAD}
            hanging.left = 1
            node.fetch(0, lambda _: None)
            await used.until(lambda: node.follow_problem)
            assert node.follow_problem == "1 threads hang in librdkafka; restart the node"
            hanging.released.set()
            await used.until(lambda: node.follow_problem is None)

    run(use())


@pytest.mark.parametrize("name", ["penstock-groups_0", "penstock-flight"])
def test_a_thread_that_hangs_and_is_not_replaced_is_a_problem(
    options: KafkaOptions, hanging: Hanging, name: str
) -> None:
    async def use() -> None:
        node = KafkaLog(options)
        async with attached(node) as used:
            hanging.names, hanging.left = {name}, 1
            load: Callable[[], object] = lambda: node.groups.load("job")  # noqa: E731
            thread = threading.Thread(target=load, name=name)
            thread.start()
            await used.until(lambda: node.follow_problem)
            expected = f"librdkafka does not return in {name}; restart the node"
            assert node.follow_problem == expected
            hanging.released.set()
            await used.until(lambda: node.follow_problem is None)
            thread.join(10)

    run(use())
