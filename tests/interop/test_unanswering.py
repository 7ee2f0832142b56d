"""A client leaves a node that no longer answers, though its system still does."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import penstock
from penstock.client import Backoff, Client, State, StateChanged
from penstock.client.options import ClientEvent, ProtocolName
from penstock.transport.addresses import Address
from tests.support.live import LiveBroker

LABELS: tuple[ProtocolName, ...] = ("rheos1", "rheos2", "fleximq", "herald", "lamamq")
TOPIC = "channel/7"
QUICK = Backoff(seconds_min=0.02, seconds_max=0.1)
SILENT = "no answer to keep-alive"


def url(broker: LiveBroker) -> str:
    host, port = broker.address
    return f"tcp://{host}:{port}"


@contextmanager
def stopped(broker: LiveBroker) -> Iterator[None]:
    """Let a broker do nothing, as a process that was suspended."""
    begun, ended = threading.Event(), threading.Event()

    def stop() -> None:
        begun.set()
        ended.wait(30)

    broker._loop.call_soon_threadsafe(stop)
    assert begun.wait(10)
    try:
        yield
    finally:
        ended.set()


def seed(broker: LiveBroker) -> None:
    """Let the topic exist: Rheos subscribes to existing topics only."""
    with penstock.connect_sync(url(broker), protocol="lamamq") as client:
        client.publish(TOPIC, b"seed")


async def until_moved(client: Client) -> None:
    async with asyncio.timeout(20):
        while client.state is State.CONNECTED:
            await asyncio.sleep(0.01)
        while client.state is not State.CONNECTED:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("label", LABELS)
def test_a_subscriber_leaves_a_node_that_does_not_answer(label: ProtocolName) -> None:
    events: list[ClientEvent] = []

    async def follow(first: LiveBroker, second: LiveBroker) -> bytes:
        async with (
            penstock.connect(
                [url(first), url(second)],
                protocol=label,
                keepalive=0.3,
                backoff=QUICK,
                on_event=events.append,
            ) as client,
            client.subscribe(7 if label == "herald" else TOPIC) as messages,
        ):
            await asyncio.sleep(1)
            assert client.state is State.CONNECTED  # it answers
            with stopped(first):
                await until_moved(client)
                async with penstock.connect(url(second), protocol="rheos2") as publisher:
                    await publisher.publish(TOPIC, b"1")
                return (await messages.get(10)).value

    with LiveBroker() as first, LiveBroker() as second:
        seed(first)
        seed(second)
        assert asyncio.run(follow(first, second)) == b"1"
        second.until(lambda: not second.server.broker.counters.frames_rejected.get(label, 0))
    assert StateChanged(State.RECONNECTING, SILENT) in events


def test_a_synchronous_subscriber_does_so_too() -> None:
    with LiveBroker() as first, LiveBroker() as second:
        seed(first)
        seed(second)
        with (
            penstock.connect_sync(
                [url(first), url(second)], protocol="rheos1", keepalive=0.3, backoff=QUICK
            ) as client,
            client.subscribe(TOPIC, timeout=20) as messages,
        ):
            with stopped(first):
                second.until(
                    lambda: any(len(each.subscriptions) for each in second.server.broker.sessions),
                    seconds_max=20,
                )
                client.publish(TOPIC, b"1")
            assert next(messages).value == b"1"


@pytest.mark.parametrize("label", LABELS)
def test_a_ping_changes_nothing(label: ProtocolName) -> None:
    with LiveBroker() as broker:
        seed(broker)
        with penstock.connect_sync(url(broker), protocol=label) as client:
            with client.subscribe(7 if label == "herald" else TOPIC, timeout=10) as messages:
                assert client.ping() >= 0
                client.publish(7 if label == "herald" else TOPIC, b"1")
                assert client.ping() >= 0
                assert next(messages).value == b"1"
            counters = broker.server.broker.counters
            assert not sum(counters.frames_rejected.values())
            assert not sum(counters.messages_refused.values())


def test_a_broker_that_holds_a_publish_back_is_not_left_before_its_time() -> None:
    async def publish(broker: LiveBroker) -> None:
        async with penstock.connect(
            url(broker), protocol="rheos2", keepalive=0.2, timeout=10, reconnect=False
        ) as client:
            with stopped(broker):
                pending = asyncio.create_task(client.publish(TOPIC, b"1"))
                await asyncio.sleep(1.5)
                assert not pending.done()
            assert await pending is not None

    with LiveBroker() as broker:
        seed(broker)
        asyncio.run(publish(broker))


def test_a_client_whose_own_event_loop_was_blocked_stays_connected() -> None:
    async def block(broker: LiveBroker) -> None:
        async with penstock.connect(
            url(broker), protocol="lamamq", keepalive=0.2, reconnect=False
        ) as client:
            for _ in range(4):
                await asyncio.sleep(0.21)  # a ping is on its way
                time.sleep(0.6)
                await asyncio.sleep(0.1)
            assert client.state is State.CONNECTED

    with LiveBroker() as broker:
        asyncio.run(block(broker))


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_the_system_looks_for_brokers_that_vanish(scheme: str) -> None:
    made: list[socket.socket] = []

    async def connected(address: str) -> None:
        client = penstock.connect(address, protocol="fleximq", keepalive=None)
        async with client:
            link = client._supervisor.connection._link  # type: ignore[union-attr]
            transport = link._socket.transport if scheme == "ws" else link._transport  # type: ignore[union-attr]
            made.append(transport.get_extra_info("socket"))
            for level, option, value in (
                (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
                (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
                (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
                (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
            ):
                assert made[0].getsockopt(level, option) == value

    with LiveBroker() as broker:
        address = url(broker)
        if scheme == "ws":
            listening = Address("ws", "127.0.0.1", 0, "/ws")
            found = broker.run(lambda: broker.server.listen(listening))
            address = f"ws://{found.host}:{found.port}/ws"
        asyncio.run(connected(address))
    assert made
