"""A client of several nodes goes on with the next one."""

import asyncio

import pytest

from penstock.client import connect, connect_sync
from penstock.client.errors import BadOption, ConnectFailed
from penstock.protocols.rheos2 import RHEOS2
from tests.support.live import LiveBroker
from tests.support.served import free_port

TOPIC = "channel/7"


def url(broker: LiveBroker) -> str:
    host, port = broker.address
    return f"tcp://{host}:{port}"


def nowhere() -> str:
    return f"tcp://127.0.0.1:{free_port()}"


def test_a_client_connects_to_the_first_node_that_answers_and_then_to_the_next() -> None:
    with LiveBroker() as second:
        with LiveBroker() as first:
            client = connect_sync([nowhere(), url(first), url(second)], protocol=RHEOS2, timeout=20)
            client.open()
            stream = client.subscribe(TOPIC, timeout=20)
            client.publish(TOPIC, b"1")
            assert next(stream).value == b"1"
            assert len(first.server.broker.sessions) == 1
        second.until(lambda: sum(len(s.subscriptions) for s in second.server.broker.sessions) == 1)
        client.publish(TOPIC, b"2")
        assert next(stream).value == b"2"
        client.close()


def test_an_asynchronous_client_does_so_too() -> None:
    async def use(first: LiveBroker, second: LiveBroker) -> None:
        async with connect([url(first), url(second)], protocol=RHEOS2, timeout=20) as client:
            await client.publish(TOPIC, b"1")
            await asyncio.to_thread(first.__exit__, None, None, None)
            while not len(second.server.broker.sessions):
                await asyncio.sleep(0.01)
            await client.publish(TOPIC, b"2")

    with LiveBroker() as second:
        first = LiveBroker().__enter__()
        asyncio.run(use(first, second))


def test_without_any_node_the_error_is_that_of_the_last() -> None:
    last = nowhere()
    with pytest.raises(ConnectFailed, match=last):
        connect_sync([nowhere(), last], protocol=RHEOS2).open()
    with pytest.raises(BadOption, match="empty"):
        connect_sync([], protocol=RHEOS2)
