"""Every protocol to every other through a live broker: binary values, wildcards, many topics."""

import contextlib
import itertools
import random
import socket
import time
from collections.abc import Iterator

import pytest

from penstock.model import ByteOrder
from penstock.protocols import Protocol
from penstock.protocols.herald import HERALD
from penstock.protocols.rheos1 import RHEOS1
from tests.sim.clients import CLIENTS, SimulatedClient
from tests.support.agreement import AUDIENCES, SOURCES
from tests.support.live import LiveBroker

KINDS = {kind.protocol: kind for kind in CLIENTS}
VALUES = [b"", b"\x00", bytes(range(256)), b"\xfe\xca\x10\xfa\x02" * 40, bytes(60_000)]
SECONDS_MAX = 10
NUMBERS = itertools.count(1)


class SocketLink:
    """A real connection in the shape that the simulated clients speak through."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=SECONDS_MAX)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self) -> bytes:
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the broker closed the connection")
        return data


@contextlib.contextmanager
def joined(broker: LiveBroker, protocol: Protocol, order: ByteOrder) -> Iterator[SimulatedClient]:
    link = SocketLink(broker.address)
    number = next(NUMBERS)  # herald would find the subscriptions of one that had the same
    client = KINDS[protocol](link, random.Random(0), number, order)  # type: ignore[arg-type]
    try:
        client.connect()
        while not client.ready:
            client.read()
        yield client
    finally:
        link.socket.close()


def settle(broker: LiveBroker, subscriptions: int) -> None:
    """The broker holds this many subscriptions."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        if broker.call(
            lambda: sum(len(s.subscriptions) for s in broker.server.broker.sessions)
        ) == (subscriptions):
            return
        time.sleep(0.005)
    raise AssertionError(f"the broker does not hold {subscriptions} subscriptions")


def receive(client: SimulatedClient, count: int) -> list[tuple[str | None, bytes]]:
    while len(client.received) < count:
        client.read()
    return client.received


@pytest.fixture(scope="module")
def broker() -> Iterator[LiveBroker]:
    with LiveBroker() as live:
        yield live


def named(protocol: Protocol, messages: list[tuple[int, bytes]]) -> list[tuple[str | None, bytes]]:
    """What a client notes of messages on channels; Rheos v1 deliveries name no topic."""
    return [
        (None if protocol is RHEOS1 else f"channel/{channel}", value) for channel, value in messages
    ]


@pytest.mark.parametrize(("source", "source_order"), SOURCES, ids=str)
@pytest.mark.parametrize(("target", "target_order"), AUDIENCES, ids=str)
def test_values_arrive_whole_and_in_order(
    broker: LiveBroker,
    source: Protocol,
    source_order: ByteOrder,
    target: Protocol,
    target_order: ByteOrder,
) -> None:
    with (
        joined(broker, target, target_order) as subscriber,
        joined(broker, source, source_order) as publisher,
    ):
        subscriber.subscribe(7)
        settle(broker, 1)
        sent = [(7, value) for value in VALUES]
        for channel, value in sent:
            publisher.publish(channel, value)
        assert receive(subscriber, len(sent)) == named(target, sent)
    settle(broker, 0)


@pytest.mark.parametrize(("source", "source_order"), SOURCES, ids=str)
def test_wildcards_and_every_audience_at_once(
    broker: LiveBroker, source: Protocol, source_order: ByteOrder
) -> None:
    with contextlib.ExitStack() as stack:
        subscribers = [stack.enter_context(joined(broker, *audience)) for audience in AUDIENCES]
        for subscriber in subscribers:
            subscriber.subscribe(None)
            if not subscriber.wildcards:
                for channel in range(10):
                    subscriber.subscribe(channel)
        wide = sum(subscriber.wildcards for subscriber in subscribers)
        settle(broker, wide + 10 * (len(subscribers) - wide))
        publisher = stack.enter_context(joined(broker, source, source_order))
        randomness = random.Random(7)
        sent = [(randomness.randrange(10), n.to_bytes(2, "big")) for n in range(500)]
        for channel, value in sent:
            publisher.publish(channel, value)
        for subscriber in subscribers:
            assert receive(subscriber, len(sent)) == named(subscriber.protocol, sent)
    settle(broker, 0)


def test_a_thousand_topics_in_one_order() -> None:
    """Publishers of every protocol that has names, a thousand topics, everyone sees one order."""
    names = [f"plant/{n % 10}/sensor/{n}" for n in range(1000)]

    class Named(SimulatedClient):
        @staticmethod
        def topic(channel: int | None) -> str:
            return "plant/#" if channel is None else names[channel]

    with LiveBroker() as broker, contextlib.ExitStack() as stack:
        broker.call(lambda: [broker.server.broker.topics.intern(name) for name in names])
        clients = []
        for protocol, order in SOURCES:
            if protocol is not HERALD:
                client = stack.enter_context(joined(broker, protocol, order))
                client.topic = Named.topic  # type: ignore[method-assign]
                client.subscribe(None)
                clients.append(client)
        settle(broker, len(clients))
        for number, client in enumerate(clients):
            for channel in range(1000):
                client.publish(channel, bytes([number]) + channel.to_bytes(2, "big"))
        everything = [receive(client, 1000 * len(clients)) for client in clients]
        orders = [[value for _, value in received] for received in everything]
        assert all(order == orders[0] for order in orders)
        for number in range(len(clients)):
            own = [value for value in orders[0] if value[0] == number]
            assert own == [bytes([number]) + n.to_bytes(2, "big") for n in range(1000)]
        for client, received in zip(clients, everything, strict=True):
            if client.protocol is not RHEOS1:
                assert [names.index(name) for name, _ in received if name] == [
                    int.from_bytes(value[1:], "big") for _, value in received
                ]
