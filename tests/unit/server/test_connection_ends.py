"""Connections of a listener are counted, limited, and closed or aborted at a stop."""

import asyncio

from penstock.core.broker import Broker
from penstock.gateway.detector import handler_for
from penstock.gateway.options import GatewayOptions
from penstock.server.connections import BaseListener, ConnectionLimit
from tests.support.fakes import FakeClock, RecordingLink
from tests.support.kept_log import KeptLog


def admit(connections: BaseListener, link: RecordingLink) -> None:
    broker = Broker(log=KeptLog(), clock=FakeClock())
    connections.admit(link, lambda: handler_for(broker, link, GatewayOptions()))


def test_a_stop_ends_as_soon_as_the_last_connection_has_closed() -> None:
    async def stop() -> None:
        connections = BaseListener(Broker(log=KeptLog(), clock=FakeClock()), None, None)
        links = [RecordingLink(), RecordingLink()]
        for link in links:
            admit(connections, link)
        assert connections.connections == 2
        stopping = asyncio.create_task(connections.end_all(1000))
        await asyncio.sleep(0)
        assert all(link.closed for link in links)
        for link in links:
            assert not stopping.done()
            connections.closed(link)
            await asyncio.sleep(0)
        await asyncio.wait_for(stopping, 10)
        assert not any(link.aborted for link in links)
        assert connections.connections == 0
        admit(connections, RecordingLink())
        assert not await connections.emptied(0.01), "another one came"

    asyncio.run(stop())


def test_a_connection_that_does_not_close_is_aborted() -> None:
    async def stop() -> None:
        connections = BaseListener(Broker(log=KeptLog(), clock=FakeClock()), None, None)
        link = RecordingLink()
        admit(connections, link)
        stopping = asyncio.create_task(connections.end_all(0.01))
        while not link.aborted:
            await asyncio.sleep(0.001)
        connections.closed(link)
        await asyncio.wait_for(stopping, 10)

    asyncio.run(stop())


def test_a_place_is_free_again_when_a_connection_has_closed_and_only_once() -> None:
    async def connect() -> None:
        limit = ConnectionLimit(1)
        connections = BaseListener(Broker(log=KeptLog(), clock=FakeClock()), None, limit)
        first, second, third, fourth = (RecordingLink() for _ in range(4))
        admit(connections, first)
        admit(connections, second)
        assert (first.aborted, second.aborted) == (False, True)
        connections.closed(second)
        connections.closed(first)
        connections.closed(first)
        admit(connections, third)
        admit(connections, fourth)
        assert (third.aborted, fourth.aborted) == (False, True)

    asyncio.run(connect())
