"""Publisher and subscriber on different nodes: every protocol to every other, through Kafka."""

import contextlib
import random
import secrets
from collections.abc import Iterator

import pytest

from penstock.core.broker import BrokerSettings
from penstock.model import ByteOrder
from penstock.protocols import Protocol
from penstock.storage.kafka.log import KafkaLog
from penstock.storage.kafka.options import KafkaOptions
from tests.interop.test_bridges import VALUES, joined, named, receive, settle
from tests.support.agreement import AUDIENCES, SOURCES
from tests.support.live import LiveBroker
from tools.kafka import KafkaBroker


def node(kafka: KafkaBroker, topic: str, number: int, *, deliver_committed: bool) -> LiveBroker:
    options = KafkaOptions(kafka.address, topic, number, deliver_committed=deliver_committed)
    return LiveBroker(
        open_storage=lambda: KafkaLog(options),
        settings=BrokerSettings(deliver_committed=deliver_committed),
    )


@pytest.fixture(scope="module")
def nodes(kafka: KafkaBroker) -> Iterator[tuple[LiveBroker, LiveBroker]]:
    """Two nodes; the second one joins when the first one runs."""
    topic = f"bridges-{secrets.token_hex(4)}"
    with (
        node(kafka, topic, 0, deliver_committed=False) as first,
        node(kafka, topic, 1, deliver_committed=True) as second,
    ):
        first.until(lambda: set(first.server.storage.partitions) == {0, 1}, seconds_max=30)
        yield first, second


@pytest.mark.parametrize(("source", "source_order"), SOURCES, ids=str)
@pytest.mark.parametrize(("target", "target_order"), AUDIENCES, ids=str)
def test_values_arrive_whole_and_in_order(
    nodes: tuple[LiveBroker, LiveBroker],
    source: Protocol,
    source_order: ByteOrder,
    target: Protocol,
    target_order: ByteOrder,
) -> None:
    here, there = nodes
    with (
        joined(there, target, target_order) as subscriber,
        joined(here, source, source_order) as publisher,
    ):
        subscriber.subscribe(7)
        settle(there, 1)
        sent = [(7, value) for value in VALUES]
        for channel, value in sent:
            publisher.publish(channel, value)
        assert receive(subscriber, len(sent)) == named(target, sent)
    settle(there, 0)


@pytest.mark.parametrize("publishes_on", [0, 1])
def test_wildcards_and_every_audience_on_both_nodes(
    nodes: tuple[LiveBroker, LiveBroker], publishes_on: int
) -> None:
    """The second node delivers its own messages when they are committed."""
    with contextlib.ExitStack() as stack:
        subscribers = []
        for broker in nodes:
            mine = [stack.enter_context(joined(broker, *audience)) for audience in AUDIENCES]
            for subscriber in mine:
                subscriber.subscribe(None)
                if not subscriber.wildcards:
                    for channel in range(10):
                        subscriber.subscribe(channel)
            wide = sum(subscriber.wildcards for subscriber in mine)
            settle(broker, wide + 10 * (len(mine) - wide))
            subscribers += mine
        publisher = stack.enter_context(joined(nodes[publishes_on], *SOURCES[0]))
        randomness = random.Random(7)
        sent = [(randomness.randrange(10), n.to_bytes(2, "big")) for n in range(500)]
        for channel, value in sent:
            publisher.publish(channel, value)
        for subscriber in subscribers:
            assert receive(subscriber, len(sent)) == named(subscriber.protocol, sent)
    for broker in nodes:
        settle(broker, 0)
