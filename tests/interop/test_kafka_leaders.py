"""A partition whose leader is gone delays its own messages only.

Three Kafka brokers: each leads one partition of the topic of messages, without another copy. All
other topics have three copies, so they go on when one broker ends.
"""

import asyncio
import dataclasses
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.errors import LogError, OffsetPastEnd
from penstock.limits import KAFKA_READ_SECONDS_MAX, KAFKA_RECORD_BYTES_MIN
from penstock.ports import Fetched, Follower, LogReader, Stored
from penstock.storage.kafka import follower, housekeeping, reading_thread
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from tests.unit.storage.test_port import Attached, attached, run
from tools.kafka import KafkaBroker, KafkaMissing, free_ports, start_brokers

REPORT_SECONDS = 0.5
OBSERVED_SECONDS = 2 * KAFKA_READ_SECONDS_MAX
"""Kafka is asked about the partition, and asked again, in this time."""
MESSAGES = {"min.insync.replicas": "1", "max.message.bytes": str(KAFKA_RECORD_BYTES_MIN)}
SESSIONS = 4
RETRY_SECONDS = 0.1
PROMPT_SECONDS = 5.0
"""Less than one wait for an answer of Kafka."""

pytestmark = pytest.mark.kafka


@pytest.fixture
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[KafkaBroker]]:
    try:
        with start_brokers(tmp_path_factory.mktemp("kafka"), free_ports(3)) as started:
            yield started
    except KafkaMissing as error:
        pytest.skip(f"Apache Kafka: {error}")


@pytest.fixture
def options(brokers: list[KafkaBroker]) -> KafkaOptions:
    """A topic with a partition on each broker."""
    bootstrap = ",".join(each.address for each in brokers)
    topic = f"leaders-{secrets.token_hex(4)}"
    client = AdminClient({"bootstrap.servers": bootstrap})
    messages = NewTopic(topic, 3, replica_assignment=[[1], [2], [3]], config=MESSAGES)
    state = NewTopic(f"{topic}-state", 1, 3, config={"cleanup.policy": "compact"})
    for future in client.create_topics([messages, state]).values():
        future.result(timeout=60)
    return KafkaOptions(bootstrap, topic, cache_bytes_max=0)


class Target:
    """A follower that remembers the offsets and readers, by partition."""

    def __init__(self) -> None:
        self.offsets: dict[int, list[int]] = {}
        self.readers: dict[int, LogReader] = {}

    def partition_found(self, number: int, reader: LogReader, _next_offset: int) -> None:
        self.offsets[number] = []
        self.readers[number] = reader

    def messages_read(self, number: int, stored: Stored) -> None:
        self.offsets[number] += range(stored.base_offset, stored.base_offset + stored.count)

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_: None

    async def fetch(self, number: int, offset: int) -> Fetched | LogError:
        answer: asyncio.Future[Fetched | LogError] = asyncio.get_running_loop().create_future()
        self.readers[number].fetch(offset, answer.set_result)
        return await asyncio.wait_for(answer, 60)


async def timed(work: Awaitable[object]) -> float:
    """Return how many seconds it takes."""
    started = time.monotonic()
    await work
    return time.monotonic() - started


def reported(node: KafkaLog) -> dict[int, float]:
    """The age of the last report of each node, in seconds."""
    now = time.time()
    return {each.number: now - (each.reported_us or 0) / 1e6 for each in node.nodes()}


def test_a_partition_without_a_leader_delays_no_commit_no_delivery_and_no_report(
    options: KafkaOptions, brokers: list[KafkaBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "LOG_RETENTION_SECONDS", REPORT_SECONDS)
    monkeypatch.setattr(follower, "KAFKA_STILL_SECONDS", REPORT_SECONDS)
    monkeypatch.setattr(reading_thread, "KAFKA_UNFOLLOWED_SECONDS_MAX", 5.0)
    others = [dataclasses.replace(options, node=number) for number in (1, 2)]

    async def use() -> None:
        target = Target()
        node, other = KafkaLog(options), KafkaLog(others[0])
        async with attached(node) as used, attached(other) as writer:
            node.follow(cast("Follower", target))
            other.follow(cast("Follower", Target()))
            async with attached(KafkaLog(others[1])) as third:
                await third.put("a")
                await writer.put("a")
                await used.until(lambda: target.offsets.get(2) == target.offsets.get(1) == [0])
            brokers[2].stop()  # it hands over all other partitions
            await observe(used, writer, target)
            assert node._follower.status.replaced == 0, "it still reads the other partitions"
            brokers[2].start()
            async with attached(await asyncio.to_thread(KafkaLog, others[1])) as third:
                await third.put("b")
                await used.until(lambda: target.offsets[2] == [0, 1])
            await used.until(lambda: not node._follower.status.late[2])

    run(use())


async def observe(used: Attached, writer: Attached, target: Target) -> None:
    """Publish on two nodes, and read, while sessions wait for messages of partition 2."""
    node, loop = cast("KafkaLog", used.storage), asyncio.get_running_loop()
    started = time.monotonic()
    seconds: dict[str, list[float]] = {}
    with ThreadPoolExecutor(1) as threads:
        behind = [asyncio.ensure_future(stay_behind(target)) for _ in range(SESSIONS)]
        while time.monotonic() < started + OBSERVED_SECONDS:
            seconds.setdefault("commit", []).append(await timed(used.put("own")))
            count = len(target.offsets[1]) + 1
            await writer.put("other")
            delivered = used.until(lambda count=count: len(target.offsets[1]) == count)
            seconds.setdefault("delivery", []).append(await timed(delivered))
            ages = await loop.run_in_executor(threads, reported, node)
            seconds.setdefault("report", []).append(ages[1])
            known = time.monotonic() > started + KAFKA_READ_SECONDS_MAX + 1
            taken = await timed(target.fetch(1, 0))
            seconds.setdefault("read" if known else "first read", []).append(taken)
        for each in behind:
            assert not each.done()
            each.cancel()
    following = node.status().following
    assert following is not None
    assert following.late == {-1: False, 1: False, 2: True}
    assert node.follow_problem is None, "no other node could read it"
    slowest = {name: max(found) for name, found in seconds.items()}
    for name in ("commit", "delivery", "report", "read"):
        assert slowest[name] < PROMPT_SECONDS, slowest


async def stay_behind(target: Target) -> None:
    """Ask for a message of partition 2 again and again, as a session does."""
    while True:
        assert isinstance(await target.fetch(2, 0), OffsetPastEnd), "its session tries again"
        await asyncio.sleep(RETRY_SECONDS)
