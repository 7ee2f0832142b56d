"""Namespaces on Kafka: a node reads only what its subscribers need, and misses nothing."""

import itertools
import secrets
import threading
from collections.abc import Iterator
from typing import Self

import pytest

from penstock.client import connect_sync
from penstock.client.sync import SyncClient
from penstock.core.broker import BrokerSettings
from penstock.limits import KAFKA_NAMESPACE_BYTES_MIN
from penstock.ports import ReferenceCounts
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from tests.support.live import LiveBroker
from tools.kafka import KafkaBroker

SECONDS_MAX = 60.0
PADDING = b"." * KAFKA_NAMESPACE_BYTES_MIN
TIMES = 60
"""Subscriptions that begin while messages are published."""


def node(kafka: KafkaBroker, topic: str, number: int, *, deliver_committed: bool) -> LiveBroker:
    options = KafkaOptions(
        kafka.address,
        topic,
        number,
        deliver_committed=deliver_committed,
        namespaces={"plant-a/#": f"{topic}-a", "plant-b/#": f"{topic}-b"},
    )
    settings = BrokerSettings(deliver_committed=deliver_committed)
    return LiveBroker(open_storage=lambda: KafkaLog(options), settings=settings)


@pytest.fixture(scope="module")
def nodes(kafka: KafkaBroker) -> Iterator[tuple[LiveBroker, ...]]:
    """Three nodes."""
    topic = f"spaces-{secrets.token_hex(4)}"
    with (
        node(kafka, topic, 0, deliver_committed=False) as first,
        node(kafka, topic, 1, deliver_committed=True) as second,
        node(kafka, topic, 2, deliver_committed=False) as third,
    ):
        found = first, second, third
        for each in found:
            each.until(lambda each=each: len(each.server.storage.partitions) == 3, seconds_max=30)
        yield found


def client_of(broker: LiveBroker) -> SyncClient:
    host, port = broker.address
    return connect_sync(f"tcp://{host}:{port}", protocol="lamamq", timeout=30)


def references(broker: LiveBroker) -> ReferenceCounts:
    following = broker.call(lambda: broker.server.storage.status().following)
    assert following is not None
    found: ReferenceCounts = following.references
    return found


def follow_to_the_end(nodes: tuple[LiveBroker, ...]) -> None:
    """Wait until every node has the messages that the others have published."""
    for number, node in enumerate(nodes):
        end = node.call(lambda node=node: node.server.storage.next_offset)
        for other in nodes:
            if other is not node:
                catch_up = other.server.broker.catch_up
                assert catch_up is not None
                partitions = catch_up.partitions
                other.until(
                    lambda partitions=partitions, number=number, end=end: (
                        partitions[number].next_offset == end
                    ),
                    seconds_max=30,
                )


def large(number: int) -> bytes:
    return b"%d" % number + PADDING


def number_of(value: bytes) -> int:
    return int(value.rstrip(b"."))


@pytest.mark.parametrize(("publishes_on", "subscribes_on"), [(0, 1), (1, 2), (1, 0)])
def test_one_order_across_namespaces(
    nodes: tuple[LiveBroker, ...], publishes_on: int, subscribes_on: int
) -> None:
    own = f"from-{publishes_on}-to-{subscribes_on}"
    topics = [f"{first}/{own}/1" for first in ("plant-a", "plant-b", "other", "plant-a")]
    with (
        client_of(nodes[publishes_on]) as publisher,
        client_of(nodes[subscribes_on]) as subscriber,
    ):
        stream = subscriber.subscribe(f"+/{own}/#", timeout=SECONDS_MAX)
        sent = []
        for count, topic in zip(range(120), itertools.cycle(topics), strict=False):
            value = large(count) if count % 5 else b"%d" % count  # small: in the first topic
            publisher.publish(topic, value)
            sent.append((topic, count))
        got = [next(stream) for _ in sent]
        assert [(each.topic, number_of(each.value)) for each in got] == sent


def test_a_node_without_a_subscriber_of_a_namespace_does_not_read_it(
    nodes: tuple[LiveBroker, ...],
) -> None:
    with client_of(nodes[0]) as publisher, client_of(nodes[1]) as subscriber:
        stream = subscriber.subscribe("plant-b/#", timeout=SECONDS_MAX)
        nodes[2].until(lambda: not nodes[2].server.broker.router.interest.subscribed("plant-a/#"))
        follow_to_the_end(nodes)  # messages of earlier tests
        before = references(nodes[1]), references(nodes[2])
        for number in range(20):
            publisher.publish("plant-a/1", large(number))
            publisher.publish("plant-b/1", large(number))
        got = [number_of(next(stream).value) for _ in range(20)]
        assert got == [*range(20)]
        follow_to_the_end(nodes)  # positions move on over what was not read
        after = references(nodes[1]), references(nodes[2])
        assert after[0].read - before[0].read == 20
        assert after[0].passed - before[0].passed == 20
        assert after[0].read_bytes - before[0].read_bytes < 21 * 2 * len(PADDING)
        assert after[1].read - before[1].read == 0
        assert after[1].passed - before[1].passed == 40


def test_a_namespace_of_all_topics_is_needed_by_every_node(nodes: tuple[LiveBroker, ...]) -> None:
    """A node has subscriptions of its own to the topics of services."""
    interest = nodes[0].server.broker.router.interest
    nodes[0].call(lambda: interest.watch("#"))
    assert interest.wants("#")
    assert set(interest.subscribed("#")) >= {"service/request/#"}


class Publishing:
    """Publishes numbers in a thread; `begun` is the last that may be under way."""

    def __init__(self, broker: LiveBroker, topics: list[str]) -> None:
        self._broker = broker
        self._topics = topics
        self.begun = -1
        self._stopping = False
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with client_of(self._broker) as client:
            for number in itertools.count():
                if self._stopping:
                    return
                self.begun = number
                # Some are in the first topic: they must not come before those that were passed.
                value = large(number) if number % 3 else b"%d" % number
                client.publish(self._topics[number % len(self._topics)], value)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._thread.join(SECONDS_MAX)


def test_a_new_subscription_misses_nothing_from_its_confirmation_on(
    nodes: tuple[LiveBroker, ...],
) -> None:
    """Messages are published all the time, while the only subscription begins and ends."""
    before = references(nodes[1])
    with Publishing(nodes[0], ["plant-a/1", "plant-a/2"]) as publishing:
        for _ in range(TIMES):
            with client_of(nodes[1]) as subscriber:
                stream = subscriber.subscribe("plant-a/#", timeout=SECONDS_MAX)
                begun = publishing.begun
                first = number_of(next(stream).value)
                assert first <= begun + 1
                last = first
                while last < begun + 10:
                    number = number_of(next(stream).value)
                    assert number == last + 1
                    last = number
            nodes[1].until(lambda: not nodes[1].server.broker.router.interest.wants("plant-a/#"))
    after = references(nodes[1])
    assert after.passed > before.passed
    assert after.read > before.read


def test_history_and_groups_read_namespaces_of_all_nodes(nodes: tuple[LiveBroker, ...]) -> None:
    topic = "plant-b/history"
    with client_of(nodes[0]) as one, client_of(nodes[1]) as two, client_of(nodes[2]) as three:
        sent = set()
        for number in range(10):
            one.publish(topic, large(number))
            two.publish(topic, large(100 + number))
            sent |= {number, 100 + number}
        stream = three.subscribe(f"{topic}@earliest", timeout=SECONDS_MAX)
        got = [number_of(next(stream).value) for _ in sent]
        assert set(got) == sent
        assert [each for each in got if each < 100] == [*range(10)]
        assert [each for each in got if each >= 100] == [*range(100, 110)]
        one.publish(topic, large(200))
        assert number_of(next(stream).value) == 200
    with (
        client_of(nodes[2]) as member,
        member.consume(topic, group="spaces") as messages,
        client_of(nodes[0]) as one,
        client_of(nodes[1]) as two,
    ):
        for number in range(10):
            one.publish(topic, large(number))
            two.publish(topic, large(100 + number))
        found = set()
        for _ in sent:
            message = messages.get(SECONDS_MAX)
            assert message.ack()
            found.add(number_of(message.value))
        assert found == sent
